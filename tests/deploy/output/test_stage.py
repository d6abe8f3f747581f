"""Delivery of a ticket's rows, its accounts above all: a row that is lost on its way fails the batch."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.errors import AccountsDiffer
from deploy.jobfile.job import Output
from deploy.output.accounts import Accounts, DeliveredBatch, Refused
from deploy.output.deliveries import Writing
from deploy.output.stage import deliver_stage
from joins.errors import JoinError, NoDeadLetterTopic
from joins.items import Begin, Item, Rows
from joins.read.summary import BucketSummary
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec, JoinType, Right, Side
from teacup.base.now import wall_ms
from teacup.kafka.delivery import delivery
from teacup.kafka.delivery.fencing import OutputBucket, settle
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import KafkaIOError, ReceiptRefused
from tests.conftest import TopicFactory
from tests.support.jobprocess import records
from tests.support.provenance import batch_of, left_of
from tests.support.simulatedlookup import lookup_spec
from tests.support.tickets import rows_about, rows_of_right, ticket_with

COUNT = 10


def delivered(
    kafka: Mapping[str, str], topic: str, items: Iterator[Item[BucketSummary]], **side: str
) -> DeliveredBatch[BucketSummary]:
    """Delivers a ticket's rows, exactly once. side: topics for rows that are not results."""
    (found,) = deliver_stage(spec_to(kafka, topic), Output(topic=topic, **side))(items)
    return found


def spec_to(kafka: Mapping[str, str], topic: str) -> JoinSpec:
    """Of a join that is named like its output."""
    return JoinSpec(name=topic, left=Side(topic="l"), right=Right(topic="r", before_ms=1, after_ms=0), kafka=kafka)


def committed(kafka: dict[str, str], topic: str, of: str | None = None) -> list[dict[str, object]]:
    """What readers of committed records see, once a transaction that was committed or abandoned is settled.

    of   the job's output topic, if it is another one
    """
    settle(kafka, [OutputBucket(of or topic, 0, of or topic)])
    return records(kafka, topic)


def test_what_adds_up_is_delivered(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """The summary says how much, by topic."""
    topic = topic_factory()

    done = delivered(kafka, topic, ticket_with(rows_about(list(range(COUNT))), COUNT, COUNT))

    assert done.sent == {topic: COUNT}
    assert len(committed(kafka, topic)) == COUNT


def test_a_bucket_is_committed_while_the_next_one_is_joined(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit only begins once the second ticket's rows are asked for."""
    topic, asked = topic_factory(), threading.Event()
    commit = TransactionalWriter.commit

    def late(self: TransactionalWriter, *of: Any) -> None:
        assert asked.wait(30)
        commit(self, *of)

    def tickets() -> Iterator[Item[BucketSummary]]:
        yield from ticket_with(rows_about([0, 1]), 2, 2)
        asked.set()
        yield from ticket_with(rows_about([0]), 1, 1, bucket=1)

    monkeypatch.setattr(TransactionalWriter, "commit", late)
    done = list(deliver_stage(spec_to(kafka, topic), Output(topic=topic))(tickets()))

    assert [batch.summary.bucket for batch in done] == [0, 1]
    assert [batch.sent for batch in done] == [{topic: 2}, {topic: 1}]


def test_the_producers_of_a_tasks_buckets_are_opened_at_the_same_time(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a broker was away each of them may have to wait for half a second."""
    topic, all_three = topic_factory(), threading.Barrier(3, timeout=30)
    opened = TransactionalWriter.__init__

    def together(self: TransactionalWriter, *of: Any) -> None:
        all_three.wait()
        opened(self, *of)

    def tickets() -> Iterator[Item[BucketSummary]]:
        begin, *rest = ticket_with(rows_about([0]), 1, 1)
        assert isinstance(begin, Begin)
        yield from (replace(begin, ahead=(1, 2)), *rest)
        for bucket in (1, 2):
            yield from ticket_with(rows_about([0]), 1, 1, bucket=bucket)

    monkeypatch.setattr(TransactionalWriter, "__init__", together)
    done = list(deliver_stage(spec_to(kafka, topic), Output(topic=topic))(tickets()))

    assert [batch.sent for batch in done] == [{topic: 1}] * 3


def test_a_commit_that_fails_fails_the_task_and_the_next_attempt_delivers_the_rest(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the output already stays as it is: each row is there once."""
    topic = topic_factory()
    commit = TransactionalWriter.commit

    def refused(self: TransactionalWriter, *of: Any) -> None:
        if self._bucket.number == 0:
            raise KafkaIOError("refused")
        commit(self, *of)

    def tickets() -> Iterator[Item[BucketSummary]]:
        yield from ticket_with(rows_about([0, 1]), 2, 2)
        yield from ticket_with(rows_about([7]), 1, 1, bucket=1)

    deliver = deliver_stage(spec_to(kafka, topic), Output(topic=topic))
    with monkeypatch.context() as patched:
        patched.setattr(TransactionalWriter, "commit", refused)
        with pytest.raises(KafkaIOError, match="refused"):
            list(deliver(tickets()))
    done = list(deliver(tickets()))

    assert [batch.summary.bucket for batch in done] == [0, 1]
    assert len(committed(kafka, topic)) == 3


@pytest.mark.parametrize(
    ("rows", "read", "joined"),
    [
        (list(range(COUNT - 1)), COUNT, COUNT),  # a row was lost between the join and here
        (list(range(COUNT - 1)), COUNT, COUNT - 1),  # the join made no row for a left record
        ([*range(COUNT), COUNT - 1], COUNT, COUNT),  # a row came twice
    ],
)
def test_what_does_not_add_up_is_not_committed(
    kafka: dict[str, str], topic_factory: TopicFactory, rows: list[int], read: int, joined: int
) -> None:
    """Readers of committed records see none of the batch."""
    topic = topic_factory()

    with pytest.raises(AccountsDiffer, match="these must be the same"):
        delivered(kafka, topic, ticket_with(rows_about(rows), read, joined))

    assert committed(kafka, topic) == []


def test_a_result_that_is_not_written_fails_the_batch(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the sink itself had lost one."""
    topic, really = topic_factory(), Writing.write

    def one_less(self: Writing, name: str, out: Outgoing) -> int:
        return really(self, name, out.where(np.arange(len(out)) > 0))

    monkeypatch.setattr(Writing, "write", one_less)

    with pytest.raises(AccountsDiffer, match=r"10 results 9 .* 0 "):
        delivered(kafka, topic, ticket_with(rows_about(list(range(COUNT))), COUNT, COUNT))

    assert committed(kafka, topic) == []


def test_rows_of_right_alone_are_in_the_transaction_that_decides_them(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Of a full join: a batch that fails has written none of them, and the next attempt writes each once."""
    topic = topic_factory()
    spec = spec_to(kafka, topic)
    deliver = deliver_stage(replace(spec, right=replace(spec.right, type=JoinType.FULL)), Output(topic=topic))
    rows = [rows_about([0, 1]), rows_of_right()]

    with pytest.raises(ZeroDivisionError):
        list(deliver(failing_after(in_frames(2, *rows), 3)))
    seen = len(committed(kafka, topic))
    (done,) = deliver(ticket_with(pl.concat(rows), 2, 4))

    assert (seen, done.sent) == (0, {topic: 4})
    assert len(committed(kafka, topic)) == 4


def test_a_batch_that_was_written_in_part_continues_behind_it(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not if it gives other rows now, as with another version: some would be lost, or written twice."""
    topic = topic_factory()
    monkeypatch.setattr(delivery, "PART_BYTES", 1)
    whole = [rows_about([0, 1, 2]), rows_about([3, 4])]

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(in_frames(5, *whole), 3))
    with pytest.raises(ReceiptRefused, match=r"left 0:2; .* left 0:1"):
        delivered(kafka, topic, ticket_with(pl.concat([rows_about([7]), *whole]), 5, 6))
    done = delivered(kafka, topic, ticket_with(pl.concat(whole), 5, 5))

    assert done.delivered_before == 3
    assert [left_of(record["headers"]) for record in committed(kafka, topic)] == [f"0:{i}" for i in range(5)]


def test_a_batch_that_has_become_shorter_than_what_is_in_is_refused(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if records went to side topics and, with another job file, do not: what is missing would count as written."""
    topic = topic_factory()
    monkeypatch.setattr(delivery, "PART_BYTES", 1)

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(in_frames(5, rows_about([0, 1, 2]), rows_about([3, 4])), 3))

    with pytest.raises(ReceiptRefused, match=r"left 0:2; .* no record"):
        delivered(kafka, topic, ticket_with(rows_about([0, 1]), 2, 2))


def test_a_dead_letter_before_the_first_result_does_not_wait_for_it(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """All of right is read in between: the brokers would abort a transaction that lasts that long, at every attempt."""
    topic, side = topic_factory(), topic_factory()
    dead = rows_about([0], "dead_letter")

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(ticket_with(dead, 3, 3), 2), dead_letter=side)
    in_then = len(committed(kafka, side, topic))
    done = delivered(kafka, topic, ticket_with(pl.concat([dead, rows_about([1, 2])]), 3, 3), dead_letter=side)

    assert (in_then, done.delivered_before) == (1, 1)
    assert [left_of(record["headers"]) for record in committed(kafka, topic)] == ["0:1", "0:2"]


@pytest.mark.parametrize("looks_up", [False, True])
def test_rows_that_fill_a_transaction_are_committed_once_more_follow(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch, looks_up: bool
) -> None:
    """Or with the batch: an empty transaction at once behind another one would wait for that one's markers.

    Those of a look-up at once: before more follow, its store may not answer for longer than a transaction may last.
    """
    monkeypatch.setattr(delivery, "PART_BYTES", 1)
    committing, really = [], TransactionalWriter.commit

    def commit(self: Any, receipt: Any, written: Mapping[str, int]) -> None:
        committing.append((receipt.rows, receipt.done, dict(written)))
        really(self, receipt, written)

    monkeypatch.setattr(TransactionalWriter, "commit", commit)
    topic = topic_factory()
    spec = lookup_spec(spec_to(kafka, topic)) if looks_up else spec_to(kafka, topic)

    list(deliver_stage(spec, Output(topic=topic))(in_frames(5, rows_about([0, 1, 2]), rows_about([3, 4]))))

    parts = [(3, False, {topic: 3}), (5, False, {topic: 2}), (5, True, {})]
    assert committing == (parts if looks_up else [(3, False, {topic: 3}), (5, True, {topic: 2})])


def in_frames(lefts: int, *frames: pl.DataFrame) -> Iterator[Item[BucketSummary]]:
    """A ticket whose rows come in these frames."""
    rows = pl.concat(frames)
    begin, _, end = ticket_with(rows, lefts, len(rows))
    return iter([begin, *map(Rows, frames), end])


def failing_after(items: Iterator[Item[BucketSummary]], count: int) -> Iterator[Item[BucketSummary]]:
    for _ in range(count):
        yield next(items)
    raise ZeroDivisionError


def test_rows_without_their_ticket_are_a_defect(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """They are never delivered under another one."""
    topic = topic_factory()

    with pytest.raises(JoinError, match="`Begin`"):
        delivered(kafka, topic, iter([Rows(rows_about([0]))]))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=20), st.data())
def test_left_records_are_counted_once_however_many_rows_they_have(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    """And however the rows are cut into frames; offsets grow, with gaps."""
    offsets, offset = [], -1
    for gap, count in runs:
        offset += gap + 1
        offsets += [offset] * count
    cuts = sorted(data.draw(st.lists(st.integers(0, len(offsets)), max_size=4)))
    accounts = Accounts("bucket 0")

    spans = zip([0, *cuts], [*cuts, len(offsets)], strict=True)
    first = [is_first for a, z in spans for is_first in accounts.receive(rows_about(offsets[a:z], "matched"))]

    assert (accounts.received, accounts.lefts) == (len(offsets), len(runs))
    assert first == [at == 0 or offsets[at] != offsets[at - 1] for at in range(len(offsets))]


def test_a_late_record_has_one_copy_however_many_rows_it_has(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policy `all`; its rows come in two frames, and an attempt that failed has delivered the first of them."""
    monkeypatch.setattr(delivery, "PART_BYTES", 1)
    topic, side = topic_factory(), topic_factory()
    rows = rows_about([0, 1, 1, 1, 2], "matched").with_columns(
        late=pl.Series([False, True, True, True, True]),
        right_offset=pl.Series([0, 0, 1, 2, 3]),
        right_partition=pl.lit(0, dtype=pl.Int32),
    )

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(in_frames(3, rows[:2], rows[2:]), 3), late=side)
    done = delivered(kafka, topic, in_frames(3, rows[:3], rows[3:]), late=side)

    assert done.delivered_before == 2
    assert [left_of(copy["headers"]) for copy in committed(kafka, side, topic)] == ["0:1", "0:2"]
    assert len(committed(kafka, topic)) == 5


LARGE = 30_000
LIMITED = {"max.message.bytes": "20000"}


def test_a_row_too_large_for_its_topic_is_a_dead_letter(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Its left record, with both positions, size and limit; the others are written."""
    topic, side = topic_factory(config=LIMITED), topic_factory()
    rows = rows_about([0, 1, 2]).with_columns(
        left_value=pl.Series([b"v", b"x" * LARGE, b"v"]),
        right_offset=pl.lit(7, dtype=pl.Int64),
        right_partition=pl.lit(0, dtype=pl.Int32),
    )

    done = delivered(kafka, topic, ticket_with(rows, 3, 3), dead_letter=side)
    again = delivered(kafka, topic, ticket_with(rows, 3, 3), dead_letter=side)

    (dead,) = committed(kafka, side, topic)
    headers = dead["headers"]
    assert (again.delivered_before, again.refused) == (3, done.refused)
    assert (done.sent, done.refused) == ({topic: 2, side: 1}, (Refused("unmatched", "", "too_large"),))
    assert [left_of(record["headers"]) for record in committed(kafka, topic)] == ["0:0", "0:2"]
    assert dead["value"] == b"x" * LARGE
    assert int(headers.pop("teacup.size")) > 4 * LARGE // 3
    tag = batch_of(committed(kafka, topic)[0]["headers"])
    assert headers == {
        "teacup.topic": "l",
        "teacup": f"1 0:1 0:7 {tag}",
        "teacup.outcome": "dead_letter",
        "teacup.reason": "too_large",
        "teacup.limit": f"20000 (max.message.bytes of topic {topic!r})",
    }


def test_a_dead_letter_too_large_for_its_own_topic_comes_without_its_value(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """It says so; its headers say where the record is."""
    topic, side = topic_factory(config=LIMITED), topic_factory(config=LIMITED)
    rows = rows_about([0]).with_columns(left_value=pl.lit(b"x" * LARGE))

    delivered(kafka, topic, ticket_with(rows, 1, 1), dead_letter=side)

    (dead,) = committed(kafka, side, topic)
    assert (dead["key"], dead["value"]) == (b"k", None)
    assert (dead["headers"]["teacup.omitted"], left_of(dead["headers"])) == ("value", "0:0")


def test_a_row_too_large_without_a_dead_letter_topic_ends_the_job(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """It is named; nothing of its transaction is committed."""
    topic = topic_factory(config=LIMITED)
    rows = rows_about([0, 1]).with_columns(left_value=pl.Series([b"v", b"x" * LARGE]))

    with pytest.raises(NoDeadLetterTopic) as raised:
        delivered(kafka, topic, ticket_with(rows, 2, 2))

    assert committed(kafka, topic) == []
    assert str(raised.value).startswith(
        f"the row about l-0 offset 1 and no right record cannot be written to topic {topic!r} (too_large): 40,"
    )
    assert f"above the 20,000 of max.message.bytes of topic {topic!r}. Name a dead-letter topic" in str(raised.value)


def test_a_batch_with_refused_rows_that_was_written_in_part_continues_behind_it(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and dead letters are in once each."""
    topic, side = topic_factory(config=LIMITED), topic_factory()
    monkeypatch.setattr(delivery, "PART_BYTES", 1)
    parts = [
        rows_about(lefts).with_columns(left_value=pl.Series([b"x" * LARGE if i % 2 else b"v" for i in lefts]))
        for lefts in ([0, 1, 2], [3, 4])
    ]

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(in_frames(5, *parts), 3), dead_letter=side)
    done = delivered(kafka, topic, ticket_with(pl.concat(parts), 5, 5), dead_letter=side)

    assert done.delivered_before == 3
    found = [[left_of(record["headers"]) for record in committed(kafka, name, topic)] for name in (topic, side)]
    assert found == [["0:0", "0:2", "0:4"], ["0:1", "0:3"]]


def test_times_that_a_topic_refuses_go_into_a_header(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Of results, of their copies, and of dead letters for the very reason of their time."""
    before = {"message.timestamp.before.max.ms": "3600000"}
    topic, alone, side = topic_factory(config=before), topic_factory(), topic_factory(config=before)
    future_ms = wall_ms() + 365 * 86_400_000
    rows = pl.concat(
        [
            rows_about([0], "dead_letter").with_columns(left_time=pl.lit(future_ms), reason=pl.lit("future_time")),
            rows_about([1], "dead_letter").with_columns(left_time=pl.lit(-5, dtype=pl.Int64), reason=pl.lit("no_time")),
            rows_about([2], "dead_letter").with_columns(
                left_time=pl.lit(None, dtype=pl.Int64), reason=pl.lit("no_time")
            ),
            rows_about([3]),
        ]
    )

    delivered(kafka, topic, ticket_with(rows, 4, 4), dead_letter=side, unmatched=alone)

    found = {name: committed(kafka, name, topic) for name in (topic, alone, side)}
    kept = {name: [record["headers"].get("teacup.time") for record in rows] for name, rows in found.items()}
    original = "1700000000000"
    assert kept == {topic: [original], alone: [original], side: [str(future_ms), "-5", None]}
    now_ms = wall_ms()
    assert all(abs(record["time"] - now_ms) < 60_000 for rows in found.values() for record in rows)
