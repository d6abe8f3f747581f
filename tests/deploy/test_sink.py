"""Delivery of a ticket's rows, its accounts above all: a row that is lost on its way fails the batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy import sink
from deploy.accounts import Accounts, AccountsDiffer
from deploy.job import Output
from joins.spec import JoinSpec, Side
from joins.window.records import ROW
from joins.window.stage import SUMMARY, TICKET
from kafkaio import delivery
from kafkaio.errors import ReceiptRefused
from kafkaio.fenced import Bucket, settle
from tests.conftest import TopicFactory
from tests.deploy.jobprocess import records

COUNT = 10


def rows_about(lefts: list[int], outcome: str = "unmatched") -> pl.DataFrame:
    """A row a left offset."""
    known = {"left_offset": lefts, "left_partition": [0] * len(lefts), "key": [b"k"] * len(lefts)}
    frame = pl.DataFrame(known, schema={name: ROW[name] for name in known}).with_columns(
        left_time=pl.lit(1_700_000_000_000), left_value=pl.lit(b"v"), outcome=pl.lit(outcome), late=pl.lit(False)
    )
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in ROW.items() if name not in frame.columns}
    return frame.with_columns(**missing).select(*ROW)


def ticket_with(
    rows: pl.DataFrame,
    read: int,
    joined: int,
    left_since_ms: int | None = None,
    *,
    generation: str = "g",
    number: int = 1,
) -> Iterator[pa.RecordBatch]:
    """What the join's stage gives for one ticket, with this summary."""
    about = {"bucket": 0, "number": number, "generation": generation, "left_since_ms": left_since_ms}
    summary = {**about, "read": {"left": read, "right": 0}, "rows": {"unmatched": joined}}
    for outcome, reason in ((TICKET, about), (None, {}), (SUMMARY, summary)):
        told = [{"outcome": outcome, "reason": json.dumps(reason), "late": False}]
        frame = rows if outcome is None else pl.DataFrame(told, schema=ROW)
        yield from frame.to_arrow().to_batches()


@pytest.fixture
def kafka(broker) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap}


def delivered(
    kafka: Mapping[str, str], topic: str, batches: Iterator[pa.RecordBatch], **aside: str
) -> list[dict[str, object]]:
    """Carries a ticket's rows out, exactly once; the summaries. aside: topics for what is no result."""
    spec = JoinSpec(name=topic, left=Side(topic="l"), right=Side(topic="r"), before_ms=1, after_ms=0, kafka=kafka)
    told = sink.deliver_stage(spec, Output(topic=topic, **aside))(batches)
    return [json.loads(text) for batch in told for text in batch.column("summary").to_pylist()]


def committed(kafka: dict[str, str], topic: str, of: str | None = None) -> list[dict[str, object]]:
    """What readers of committed records see, once a transaction that was committed or left is settled.

    of   the job's output topic, where it is another one
    """
    settle(kafka, [Bucket(of or topic, 0, of or topic)])
    return records(kafka, topic)


def test_what_adds_up_is_delivered(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """The summary says how much, by topic."""
    topic = topic_factory()

    (summary,) = delivered(kafka, topic, ticket_with(rows_about(list(range(COUNT))), COUNT, COUNT))

    assert summary["sent"] == {topic: COUNT}
    assert len(committed(kafka, topic)) == COUNT


@pytest.mark.parametrize(
    ("rows", "read", "joined"),
    [
        (list(range(COUNT - 1)), COUNT, COUNT),  # a row was lost between the join and here
        (list(range(COUNT - 1)), COUNT, COUNT - 1),  # the join made no row of a left record
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
    topic, really = topic_factory(), sink.BucketSink._write

    def one_less(self: sink.BucketSink, name: str, *columns: list[object]) -> int:
        return really(self, name, *(column[1:] if column is not None else None for column in columns))

    monkeypatch.setattr(sink.BucketSink, "_write", one_less)

    with pytest.raises(AccountsDiffer, match="of 10 results 9 were written and 0 dropped"):
        delivered(kafka, topic, ticket_with(rows_about(list(range(COUNT))), COUNT, COUNT))

    assert committed(kafka, topic) == []


def test_a_batch_that_went_in_part_goes_on_behind_it(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not where it gives other rows now, as with another version: some would be lost, or written twice."""
    topic = topic_factory()
    monkeypatch.setattr(delivery, "PART_BYTES", 1)
    whole = [rows_about([0, 1, 2]), rows_about([3, 4])]

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(ticket_with(whole[0], 5, 5), 2))
    with pytest.raises(ReceiptRefused, match="the last about left 0:2; now it is about left 0:1"):
        delivered(kafka, topic, ticket_with(pl.concat([rows_about([7]), *whole]), 5, 6))
    (summary,) = delivered(kafka, topic, ticket_with(pl.concat(whole), 5, 5))

    assert summary["delivered_before"] == 3
    assert [one["headers"]["teacup.left"] for one in committed(kafka, topic)] == [f"0:{i}" for i in range(5)]


def test_a_batch_that_has_become_shorter_than_what_is_in_is_refused(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where records were put aside and, with another job file, are not: what is missing would count as written."""
    topic = topic_factory()
    monkeypatch.setattr(delivery, "PART_BYTES", 1)

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(ticket_with(rows_about([0, 1, 2]), 5, 5), 2))

    with pytest.raises(ReceiptRefused, match="the last about left 0:2; now it is about no record"):
        delivered(kafka, topic, ticket_with(rows_about([0, 1]), 2, 2))


def test_what_is_put_aside_before_the_first_result_does_not_wait_for_it(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """All of right is read in between: the brokers would abort a transaction that lasts as long, at every attempt."""
    topic, aside = topic_factory(), topic_factory()
    dead = rows_about([0], "dead_letter")

    with pytest.raises(ZeroDivisionError):
        delivered(kafka, topic, failing_after(ticket_with(dead, 3, 3), 2), dead_letter=aside)
    in_then = len(committed(kafka, aside, topic))
    (summary,) = delivered(kafka, topic, ticket_with(pl.concat([dead, rows_about([1, 2])]), 3, 3), dead_letter=aside)

    assert (in_then, summary["delivered_before"]) == (1, 1)
    assert [one["headers"]["teacup.left"] for one in committed(kafka, topic)] == ["0:1", "0:2"]


def failing_after(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for _ in range(count):
        yield next(batches)
    raise ZeroDivisionError


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

    for start, end in zip([0, *cuts], [*cuts, len(offsets)], strict=True):
        accounts.receive(rows_about(offsets[start:end], "matched"))

    assert (accounts.received, accounts.lefts) == (len(offsets), len(runs))
