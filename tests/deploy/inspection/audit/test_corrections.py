"""Corrections, applied to the output, give the join by brute force over all records, those that came late included."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.watermark import Idle
from deploy.inspection.audit.corrections import corrected_rows, corrections_of, with_corrects, withdrawals
from deploy.inspection.audit.records import spot_of
from deploy.inspection.audit.verify.corrected import correct
from deploy.inspection.audit.written import past_corrections_of
from joins.read.parse import parse
from joins.rows.frames import RECORD
from joins.spec import JoinPath, JoinType, Policy
from joins.testing import oracle
from joins.testing.history import History, TopicHistory
from joins.testing.oracle import Result
from joins.testing.strategies import cuts, histories, specs, tables
from teacup.base.times import EARLIEST_MS, LATEST_MS
from teacup.kafka.delivery.provenance import BatchTag
from teacup.kafka.read.fetch import SCHEMA
from tests.support.audited import (
    OUTPUT,
    Audited,
    AuditedLookup,
    AuditedSimulation,
    AuditedTable,
    Written,
    joined,
    record,
)
from tests.support.canary import searched
from tests.support.joinhistories import advancing
from tests.support.lookuphistories import LOOKUPS, STEPS
from tests.support.making import changed
from tests.support.profiles import share
from tests.support.provenance import header
from tests.support.simulatedtable import play

Record = dict[str, Any]


def corrections(run: Any, earlier: Sequence[Record] = (), number: int = 1, known: int | None = None) -> list[Record]:
    """The records that a run of the command writes, given those of earlier runs. Read and written in memory."""
    with Audited([run], known).verified() as (db, scope, _):
        batch = pa.RecordBatch.from_pylist([{**one, "offset": at} for at, one in enumerate(earlier)], schema=SCHEMA)
        db.run("CREATE TABLE past_corrections (spot BIGINT, lpos BIGINT, rpos BIGINT, withdrawn BOOLEAN, run BIGINT)")
        if earlier:
            db.insert("past_corrections", past_corrections_of(batch))
        correct(db, scope)
        found = [pl.DataFrame(pl.from_arrow(one)) for one in db.batches("FROM corrections ORDER BY ALL")]
    if not found:
        return []

    def read(name: str, positions: pl.Series) -> pl.DataFrame:
        side, log = run.spec.side(name), run.side(name)
        parts = [pl.DataFrame(schema=RECORD)]
        for p, offset in sorted(map(spot_of, positions)):
            batch = log.fetch(p, offset, offset + 1)
            parts.append(parse(name, side, batch, LATEST_MS // 2, run.spec.max_future_skew_ms, EARLIEST_MS).records)
        return pl.concat(parts[1:] or parts)

    def key_and_time(row: dict[str, Any]) -> dict[str, Any]:
        of = (earlier if row["corrected"] else run.written.topics["rows"])[row["spot"]]
        return {**row, "key": of["key"], "time": of["timestamp"]}

    some = with_corrects(pl.concat(found))
    tag, made = BatchTag.of("job", "generation", number), Written()
    rows = corrected_rows(run.spec, some.filter(~pl.col("withdrawn")), read, direct=scope.direct)
    made.add("corrections", corrections_of(run.spec, OUTPUT, rows, tag))
    gone = [key_and_time(row) for row in some.filter("withdrawn").to_dicts()]
    schema = {**some.schema, "key": pl.Binary(), "time": pl.Int64()}
    made.add("corrections", withdrawals(pl.DataFrame(gone, schema=schema), tag))
    return made.topics.get("corrections", [])


def identity(spec: Any, record: Record) -> tuple[str, ...]:
    """What a row is identified by: a user needs no more than the header to apply corrections."""
    _, left, right, _ = dict(record["headers"])["teacup"].decode().split()
    return (left, right) if left == "-" or spec.right.policy is Policy.ALL else (left,)


def applied(run: Any, corrections: Sequence[Record]) -> list[Result]:
    """The output without the rows of which there are corrections, and the newest of these that have a value."""
    spec = run.spec
    newest = {identity(spec, record): record for record in corrections}
    rows = [row for row in run.written.topics.get("rows", []) if identity(spec, row) not in newest]
    rows += [record for record in newest.values() if record["value"] is not None]
    return sorted(map(result, rows), key=lambda row: (row.order, row.right or ()))


def result(row: Record) -> Result:
    _, *positions, _ = dict(row["headers"])["teacup"].decode().split()
    left, right = ((None, None) if one == "-" else tuple(map(int, one.split(":"))) for one in positions)
    said = json.loads(row["value"])
    return Result(*left, *right, said["outcome"], said["reason"])


def brute_force(run: Any, history: History) -> list[Result]:
    return sorted(oracle.join(history, run.spec), key=lambda row: (row.order, row.right or ()))


@st.composite
def delayed(draw: st.DrawFn, spec: Any, **more: Any) -> History:
    """A history in which some partitions pause, so that what comes then is late."""
    history = draw(histories(spec, reordered=True, wrong_times_key=None, **more))

    def paused(topic: TopicHistory) -> TopicHistory:
        partitions = []
        for events in topic.partitions:
            first, ms = draw(st.integers(0, len(events))), draw(st.sampled_from((0, 500, 30_000)))
            partitions.append(
                (
                    *events[:first],
                    *(
                        replace(one, appended_ms=one.appended_ms + ms, readable_ms=one.readable_ms + ms)
                        for one in events[first:]
                    ),
                )
            )
        return TopicHistory(topic.topic, tuple(partitions))

    right = paused(history.right)
    return replace(history, left=right if spec.one_topic else history.left, right=right)


@st.composite
def joins(draw: st.DrawFn, of: st.SearchStrategy[Any] = advancing) -> tuple[Any, History]:
    """A window join with late records, of any type, path and cut, perhaps with `max_wait`."""
    spec = draw(of)
    if draw(st.booleans()):
        spec = replace(spec, path=JoinPath.SHUFFLED, buckets=draw(st.none() | st.integers(1, 5)))
    if draw(st.booleans()):
        spec = changed(spec, max_wait_ms=draw(st.sampled_from((1, 20, 100))))
    history = draw(delayed(spec, co_partitioned=spec.path is not JoinPath.SHUFFLED))
    run = AuditedSimulation(history, spec).play(draw(cuts(max_steps=10)))
    run.drain()
    return run, history


@st.composite
def lookups(draw: st.DrawFn, made: Any, of: st.SearchStrategy[Any]) -> tuple[Any, History]:
    """A lookup join with late records, of a stream or a table."""
    spec = draw(of)
    history = draw(delayed(spec))
    run = made(history, spec)
    play(run, draw(STEPS))
    return run, history


RUNS = {
    "window": joins(),
    "one topic": joins(specs(one_topic=True).filter(lambda spec: spec.idle is Idle.ADVANCE)),
    "store": lookups(AuditedLookup, LOOKUPS),
    "table": lookups(AuditedTable, tables()),
}


def differs(joined: tuple[Any, History]) -> bool:
    """Whether late records have changed what brute force gives."""
    return applied(joined[0], []) != brute_force(*joined)


@pytest.mark.parametrize("kind", RUNS)
@settings(max_examples=share(5))
@given(data=st.data(), known=st.sampled_from((None, 0, 3)))
def test_the_corrected_output_is_brute_force_over_all_records(kind, data, known):
    """Whatever the run was like, and after a run that was killed; another run writes nothing."""
    run, history = data.draw(RUNS[kind].filter(differs))

    first = corrections(run, known=known)
    killed = first[: data.draw(st.integers(0, len(first) - 1))]
    second = [*killed, *corrections(run, killed, 2, known=known)]

    assert applied(run, first) == applied(run, second) == brute_force(run, history)
    assert len(second) == len(first)
    assert corrections(run, second, 3, known=known) == []


def correction(left: Any, right: Any, run: int = 1, *, withdrawn: bool = False) -> Record:
    """One that an earlier run has written, with a value that nobody reads."""
    named = ("-" if one is None else f"{one[0]}:{one[1]}" for one in (left, right))
    headers = [header(*named, BatchTag.of("job", "generation", run)), *([("teacup.outcome", b"withdrawn")] * withdrawn)]
    return record(b"k", None if withdrawn else b"outdated", headers, 1)


def test_a_right_record_that_a_killed_run_has_freed_gets_its_row_back():
    """Its row was withdrawn as a late record matched it, and a later run was killed as soon as another one did."""
    run = joined(Policy.NEAREST, type=JoinType.FULL)
    rows = applied(run, [])
    match = next(row for row in rows if row.outcome == "matched")
    alone = next(row for row in rows if row.outcome == "unjoined" and row.reason == "expired")
    left = match.order[0]
    earlier = [correction(left, alone.right), correction(None, alone.right, withdrawn=True)]
    earlier.append(correction(left, match.right, 2))

    (made,) = corrections(run, earlier, 3)

    assert identity(run.spec, made) == ("-", f"{alone.right_partition}:{alone.right_offset}")
    assert made["value"] is not None


@st.composite
def outdated(draw: st.DrawFn, spec: Any, truth: Sequence[Result]) -> list[Record]:
    """Corrections that are wrong by now: another right record, a row withdrawn that there is, or one of right alone."""
    rights = sorted({row.right for row in truth if row.right is not None})
    pairs = {(row.order[0], row.right) for row in truth}
    each: dict[Any, Record] = {}
    rows = [row for row in truth if row.left_partition is not None or row.reason != "null_key"]
    for row in draw(st.lists(st.sampled_from(rows), max_size=8)) if rows else ():
        left = row.order[0] if row.left_partition is not None else None
        one = correction(left, row.right, withdrawn=True)
        if left is not None and rights and draw(st.booleans()):
            other = draw(st.sampled_from(rights))
            if (left, other) in pairs:
                continue
            one = correction(left, other)
        elif row.outcome == "matched" and spec.right.type is JoinType.FULL and draw(st.booleans()):
            one = correction(None, row.right)
        each[identity(spec, one)] = one
    return list(each.values())


@settings(max_examples=share(10))
@given(st.data())
def test_whatever_corrections_stand_the_output_becomes_brute_force(data):
    """A killed run leaves any of its corrections, and those of earlier runs were made when less was known."""
    run, history = data.draw(joins(st.one_of(advancing, advancing.map(lambda spec: changed(spec, type=JoinType.FULL)))))
    earlier = data.draw(outdated(run.spec, brute_force(run, history)))

    after = [*earlier, *corrections(run, earlier, 2)]

    assert applied(run, after) == brute_force(run, history)
    assert corrections(run, after, 3) == []


@pytest.mark.canary
@pytest.mark.parametrize("kind", RUNS)
def test_canary_without_corrections_the_output_is_not_brute_force(kind):
    """Late records change it, in each kind of join: the property above asks for something."""

    @searched(seed=1)
    @given(RUNS[kind])
    def uncorrected(joined):
        assert not differs(joined)

    with pytest.raises(AssertionError):
        uncorrected()
