"""Which rows each type of join writes, and that all others are accounted for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from deploy.jobfile.job import Output
from deploy.output.accounts import Accounts
from deploy.output.routing import Router
from joins.errors import NoDeadLetterTopic, SpecError
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec, JoinType, Policy, Right, Side
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.records.limits import TopicLimits
from tests.support.tickets import rows_about, rows_of_right

ROWS = {
    JoinType.LEFT: [0, 1, 2, 3, 4, 5],
    JoinType.INNER: [0, 1, 2],
    JoinType.SEMI: [0, 1, 2],
    JoinType.ANTI: [3, 4, 5],
    JoinType.FULL: [0, 1, 2, 3, 4, 5],
}
"""The left offsets of the rows that each type writes; the last one has no key."""


def spec_of(kind: JoinType, **changes: Any) -> JoinSpec:
    right = Right(**{"topic": "r", "before_ms": 1, "type": kind, **changes})
    return JoinSpec(name="j", left=Side(topic="l"), right=right)


def made() -> pl.DataFrame:
    """Three matched left records, two without a match, and one without a key."""
    matched = rows_about([0, 1, 2], "matched").with_columns(
        right_partition=pl.lit(0, pl.Int32), right_offset=pl.lit(7, pl.Int64), right_time=pl.lit(1, pl.Int64)
    )
    alone = rows_about([3, 4]).with_columns(reason=pl.lit("no_candidate"))
    keyless = rows_about([5]).with_columns(reason=pl.lit("null_key"), key=pl.lit(None, pl.Binary))
    return pl.concat([matched, alone, keyless])


def routed(kind: JoinType, rows: pl.DataFrame, **topics: str) -> tuple[Accounts, dict[str, list[Outgoing]]]:
    """What a router writes of rows, by topic."""
    written: dict[str, list[Outgoing]] = {}
    output, accounts = Output(topic="out", **topics), Accounts("a bucket")

    def write(topic: str, out: Outgoing) -> int:
        written.setdefault(topic, []).append(out)
        return len(out.rows)

    limits = {topic: TopicLimits(topic, 1 << 20, 1 << 20) for topic in ("out", *topics.values())}
    router = Router(spec_of(kind), output, limits, BatchTag.of("j", "g", 1), write, accounts, lambda: 0)
    router.route(rows, np.ones(len(rows), np.bool_))
    return accounts, written


def lefts(outs: list[Outgoing]) -> list[int]:
    return [offset for out in outs for offset in out.rows["left_offset"].to_list()]


@pytest.mark.parametrize("kind", JoinType)
def test_each_type_writes_its_rows_and_accounts_for_the_others(kind: JoinType) -> None:
    """An unmatched row has its copy, whether its type leaves it out or not."""
    accounts, written = routed(kind, made(), unmatched="alone")

    accounts.check_written()
    assert lefts(written["out"]) == ROWS[kind]
    assert lefts(written["alone"]) == [3, 4, 5]
    assert (accounts.delivered, accounts.left_out) == (len(ROWS[kind]), 6 - len(ROWS[kind]))


@pytest.mark.parametrize("kind", JoinType)
def test_nothing_is_handed_over_where_all_is_left_out(kind: JoinType) -> None:
    """Not even an empty batch of records."""
    rows = made()
    accounts, written = routed(kind, rows[3:] if kind is not JoinType.ANTI else rows[:3])

    accounts.check_written()
    assert list(written) == (["out"] if not kind.left_out else [])


@pytest.mark.parametrize("kind", JoinType)
def test_rows_that_are_left_out_are_not_refused(kind: JoinType) -> None:
    """Whatever a `select` makes of them: only rows that go somewhere can fail."""
    selected = {f"out_{part}": pl.lit(b"") for part in ("key", "value")}
    rows = made().with_columns(**selected, failed=pl.lit("value"))

    accounts, _ = routed(kind, rows, dead_letter="dead")

    accounts.check_written()
    assert accounts.refused.total() == len(ROWS[kind])


def test_a_row_of_a_semi_join_is_without_its_right_record_and_its_header_names_that() -> None:
    """So that explain and audit know which record matched."""
    _, written = routed(JoinType.SEMI, made())

    (out,) = written["out"]
    _, value, headers = out.record(0)[:3]
    assert json.loads(value)["right"] is None
    assert json.loads(value)["outcome"] == "matched"
    assert dict(headers)["teacup"].split()[1:3] == ["0:0", "0:7"]


def test_a_full_join_writes_right_records_that_are_in_no_row_as_rows_without_left() -> None:
    """With their own time and key; the header names no left record. Of other types they are copies, or nothing."""
    accounts, written = routed(JoinType.FULL, pl.concat([made(), rows_of_right()]))

    accounts.check_written()
    assert accounts.delivered == 8
    (out,) = written["out"]
    key, value, headers = out.record(6)
    assert (key, out.times[6], dict(headers)["teacup"].split()[1:3]) == (b"k", 70, ["-", "1:4"])
    row = json.loads(value)
    assert (row["key"], row["left"], row["outcome"], row["reason"]) == ("k", None, "unjoined", "expired")
    assert (row["right"]["time"], row["right"]["position"]["offset"]) == (70, 4)
    assert json.loads(out.record(7)[1])["key"] is None
    assert out.times[0] == rows_about([0])["left_time"][0]
    assert dict(out.record(0)[2])["teacup"].split()[1:3] == ["0:0", "0:7"]

    accounts, written = routed(JoinType.LEFT, pl.concat([made(), rows_of_right()]), unjoined="alone")
    assert (accounts.delivered, len(written["alone"][0])) == (6, 2)


def test_a_row_of_right_alone_that_cannot_be_written_is_a_dead_letter_about_right() -> None:
    selected = {f"out_{part}": pl.lit(b"") for part in ("key", "value")}
    rows = pl.concat([made(), rows_of_right()]).with_columns(**selected, failed=pl.lit("value"))

    accounts, written = routed(JoinType.FULL, rows, dead_letter="dead")

    accounts.check_written()
    assert [len(out) for out in written["dead"]] == [6, 2]
    assert dict(written["dead"][1].record(0)[2])["teacup"].split()[1:3] == ["-", "1:4"]
    with pytest.raises(NoDeadLetterTopic, match=r"the row about no left record and r-1 offset 4"):
        routed(JoinType.FULL, rows[6:])


@pytest.mark.parametrize("kind", [JoinType.SEMI, JoinType.ANTI])
def test_right_values_are_not_kept_where_no_row_shows_them(kind: JoinType) -> None:
    """And what asks for them is refused, with what to do."""
    assert spec_of(kind).right.keep == ()
    with pytest.raises(SpecError, match=r"right\.keep: rows of type '(semi|anti)' hold left alone; remove it"):
        spec_of(kind, format="json", keep=("$.id",))
    with pytest.raises(SpecError, match="policy: 'all' gives a row for each pair"):
        spec_of(kind, policy=Policy.ALL)


def test_a_type_is_part_of_what_a_checkpoint_is_bound_to_unless_it_is_left() -> None:
    """So checkpoints from before there were types go on."""
    assert "type" not in spec_of(JoinType.LEFT).identity()
    assert spec_of(JoinType.INNER).identity()["type"] == "inner"
