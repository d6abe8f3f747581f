"""Ranges of a real partition: which records come, in which batches, across which gaps, and what is refused."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st

from teacup.kafka.errors import KafkaUnavailable, OffsetOutOfRange
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read import fetch, range_reader
from teacup.kafka.read.consumer import OwnConsumer
from teacup.kafka.read.fetch import HEADERS, SCHEMA, RecordFetch
from teacup.kafka.read.range_reader import SHORT, RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.profiles import share
from tests.support.transactions import BASE_MS, Transactions

LONG = (0, SHORT)
"""Offsets of a range that is long, whether the log has it or not."""


def fill(kafka: dict[str, str], topic: str, count: int, partition: int = 0) -> None:
    writer = TopicWriter(kafka)
    writer.write(
        topic,
        [b"k%d" % i for i in range(count)],
        [b"v%d" % i for i in range(count)],
        timestamps=[BASE_MS + i for i in range(count)],
        partitions=[partition] * count,
    )
    writer.flush()
    writer.close()


def read(reader: RangeReader, start: int, end: int, partition: int = 0) -> pa.Table:
    return pa.Table.from_batches(list(reader.read(partition, start, end)), SCHEMA)


@pytest.fixture(scope="module")
def filled(kafka: dict[str, str], topic_factory: TopicFactory) -> str:
    """A topic with 1,000 records in its first partition."""
    topic = topic_factory(2)
    fill(kafka, topic, 1_000)
    return topic


PARTITIONS = 5


@pytest.fixture(scope="module")
def many(kafka: dict[str, str], topic_factory: TopicFactory) -> str:
    """A topic with 100 records in each partition."""
    topic = topic_factory(PARTITIONS)
    for partition in range(PARTITIONS):
        fill(kafka, topic, 100, partition)
    return topic


@pytest.fixture(scope="module")
def opened() -> Iterator[list[int]]:
    """A number for each consumer that was opened since the list was cleared."""
    numbers: list[int] = []

    class Counted(OwnConsumer):
        def __init__(self, *arguments: Any) -> None:
            numbers.append(len(numbers))
            super().__init__(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "OwnConsumer", Counted)
        yield numbers


def test_keys_values_headers_and_times_come_back_as_they_were_written(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Including nulls, empty bytes and repeated header names."""
    topic = topic_factory()
    writer = TopicWriter(kafka)
    headers = [None, [("a", b"1"), ("a", None), ("b", b"")], None]
    writer.write(topic, [b"k", None, b""], [None, b"v", b""], headers=headers, timestamps=[BASE_MS, 0, BASE_MS + 2])
    writer.flush()

    table = read(RangeReader(topic, kafka), 0, 3)

    assert table.schema == SCHEMA
    assert table["key"].to_pylist() == [b"k", None, b""]
    assert table["value"].to_pylist() == [None, b"v", b""]
    assert table["headers"].to_pylist() == [
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}],
        None,
    ]
    assert table["timestamp"].to_pylist()[::2] == [BASE_MS, BASE_MS + 2]
    assert table["timestamp_type"].to_pylist() == [1, 1, 1]
    assert table["offset"].to_pylist() == [0, 1, 2]


def test_what_was_read_can_be_written_again(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """The columns of a reader are the columns of a writer, including slices."""
    first, second = topic_factory(), topic_factory()
    entries = pa.array([[("h", b"%d" % i)] if i % 2 else None for i in range(10)], HEADERS)
    writer = TopicWriter(kafka)
    writer.write(first, None, [b"%d" % i for i in range(10)], headers=entries, timestamps=list(range(1, 11)))
    writer.flush()

    batch = next(RangeReader(first, kafka).read(0, 0, 10)).slice(3, 5)
    writer.write(second, batch["key"], batch["value"], batch["headers"], batch["timestamp"])
    writer.flush()

    again = next(RangeReader(second, kafka).read(0, 0, 5))
    columns = ["key", "value", "headers", "timestamp"]
    assert again.select(columns).to_pylist() == batch.select(columns).to_pylist()


def test_batches_hold_at_most_a_chunk(kafka: dict[str, str], filled: str) -> None:
    """And no record is lost between them."""
    batches = list(RangeReader(filled, kafka).read(0, 0, 1_000, chunk=300))

    assert [len(batch) for batch in batches] == [300, 300, 300, 100]


@settings(max_examples=share(4))
@given(cuts=st.lists(st.integers(0, 1_000), max_size=8), jump=st.booleans())
def test_any_cut_into_ranges_gives_every_record_once(
    kafka: dict[str, str], filled: str, cuts: list[int], jump: bool
) -> None:
    """A reader continues from its position, or jumps; what it had fetched ahead is neither lost nor duplicated."""
    reader = RangeReader(filled, kafka)
    bounds = [0, *sorted(cuts), 1_000]
    ranges = list(itertools.pairwise(bounds))
    offsets: list[int] = []
    for start, end in reversed(ranges) if jump else ranges:
        offsets += read(reader, start, end)["offset"].to_pylist()
    reader.close()

    assert sorted(offsets) == list(range(1_000))


def test_an_iteration_given_up_continues_from_its_position(kafka: dict[str, str], filled: str) -> None:
    """The reader knows its position after a caller has stopped early."""
    reader = RangeReader(filled, kafka)
    next(reader.read(0, 0, 1_000, chunk=100))

    assert read(reader, 100, 200)["offset"].to_pylist() == list(range(100, 200))


def test_a_prepared_range_reads_the_same(kafka: dict[str, str], filled: str) -> None:
    """Prefetching changes when, not what."""
    reader = RangeReader(filled, kafka)
    reader.prepare({0: (500, 510)})

    assert read(reader, 500, 510)["value"].to_pylist() == [b"v%d" % i for i in range(500, 510)]


@settings(max_examples=share(4))
@given(data=st.data())
def test_short_ranges_of_many_partitions_come_over_one_consumer(
    kafka: dict[str, str], many: str, opened: list[int], data: st.DataObject
) -> None:
    """Whatever is prepared, left out, given back, given up, read early or again: each range has its records."""
    opened.clear()
    with closing(RangeReader(many, kafka, timeout_s=20)) as reader:
        at = dict.fromkeys(range(PARTITIONS), 0)
        for _ in range(data.draw(st.integers(1, 5))):
            ends = {p: data.draw(st.integers(start, min(start + 30, 100))) for p, start in at.items()}
            reader.prepare({p: (start, ends[p]) for p, start in at.items() if start < ends[p]})
            every = data.draw(st.booleans())
            for p in data.draw(st.permutations([p for p in at if every or data.draw(st.booleans()) or p == 0])):
                if data.draw(st.booleans()) and ends[p] - at[p] > 5:
                    (first,) = itertools.islice(reader.read(p, at[p], ends[p], chunk=5), 1)
                    assert first["offset"].to_pylist() == list(range(at[p], at[p] + 5))
                    at[p] += data.draw(st.sampled_from([5, 0]))  # 0: from its beginning, as a batch that failed
                    continue
                batches = list(reader.read(p, at[p], ends[p]))
                table = pa.Table.from_batches(batches, SCHEMA)
                assert table["offset"].to_pylist() == list(range(at[p], ends[p]))
                assert table["value"].to_pylist() == [b"v%d" % offset for offset in range(at[p], ends[p])]
                assert set(table["partition"].to_pylist()) <= {p}
                kept = data.draw(st.just(ends[p] - at[p]) | st.integers(0, ends[p] - at[p]))
                if kept < ends[p] - at[p]:
                    reader.give_back(p, pa.Table.from_batches(batches, SCHEMA).slice(kept).to_batches())
                at[p] += kept
    assert len(opened) <= 1  # none if there was nothing to read


def test_records_that_came_beyond_a_range_are_not_fetched_again(
    kafka: dict[str, str], many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a number of bytes. Elsewhere it fetches from where the range starts."""
    assigned: list[Mapping[int, int]] = []

    class Noted(OwnConsumer):
        def assign(self, topic: str, starts: Mapping[int, int]) -> None:
            assigned.append(dict(starts))
            super().assign(topic, starts)

    monkeypatch.setattr(fetch, "OwnConsumer", Noted)
    with closing(RangeReader(many, kafka, timeout_s=20)) as reader:
        for start, end in ((0, 10), (10, 30), (40, 50), (50, 100)):
            reader.prepare({0: (start, end), 1: (start, end)})
            for p in (0, 1):
                assert read(reader, start, end, p)["offset"].to_pylist() == list(range(start, end))
        monkeypatch.setattr(fetch, "KEPT_BYTES", 30)
        for start, end in ((20, 30), (30, 50)):
            reader.prepare({0: (start, end)})
            assert read(reader, start, end)["offset"].to_pylist() == list(range(start, end))

    assert assigned == [{0: 0, 1: 0}, {0: 40, 1: 40}, {0: 20}, {0: 36}]


def test_records_that_came_beyond_a_range_and_were_taken_are_fetched_again(kafka: dict[str, str], many: str) -> None:
    """Where a reading that was given up begins again, as that of a batch that failed."""
    with closing(RangeReader(many, kafka, timeout_s=20)) as reader:
        reader.prepare({0: (0, 10)})
        read(reader, 0, 10)
        reader.prepare({0: (10, 30)})
        (first,) = itertools.islice(reader.read(0, 10, 30, chunk=5), 1)
        assert first["offset"].to_pylist() == list(range(10, 15))
        reader.prepare({0: (10, 30)})

        assert read(reader, 10, 30)["offset"].to_pylist() == list(range(10, 30))


def test_what_was_given_back_stays_with_its_partition(
    kafka: dict[str, str], many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the consumer that has read a partition has gone on to another one, and stands at the same offset."""
    monkeypatch.setattr(range_reader, "OPEN_CONSUMERS", 1)
    with closing(RangeReader(many, kafka, timeout_s=20)) as reader:
        read(reader, 0, 3)
        (batch,) = reader.read(1, 0, 10)
        reader.give_back(1, [batch.slice(3)])
        reader.prepare({0: (3, 6)})

        assert read(reader, 3, 6)["partition"].to_pylist() == [0, 0, 0]


def test_what_was_prepared_and_never_read_is_fetched_when_it_is_read(kafka: dict[str, str], many: str) -> None:
    """Other ranges were prepared since, so its partition is no longer assigned."""
    with closing(RangeReader(many, kafka, timeout_s=3)) as reader:
        reader.prepare({0: (3, 6)})
        reader.prepare({1: (0, 5)})

        assert read(reader, 3, 6)["offset"].to_pylist() == [3, 4, 5]


def test_consumers_of_several_partitions_are_opened_at_the_same_time(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each first connects to a bootstrap address, and half a back-off later to the broker."""
    both, opened = threading.Barrier(2, timeout=30), range_reader.RecordFetch

    def together(topic: str, kafka: Mapping[str, str], timeout_s: float) -> RecordFetch:
        both.wait()
        return opened(topic, kafka, timeout_s)

    monkeypatch.setattr(range_reader, "RecordFetch", together)
    reader = RangeReader(topic_factory(partitions=2), kafka)

    reader.prepare({0: LONG, 1: LONG})
    reader.prepare({1: LONG, 0: LONG})  # opens none
    reader.close()


def test_no_more_consumers_are_opened_than_are_kept(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of more partitions takes those that are there in turn."""
    opened, really = [], range_reader.RecordFetch

    def counted(topic: str, kafka: Mapping[str, str], timeout_s: float) -> RecordFetch:
        opened.append(topic)
        return really(topic, kafka, timeout_s)

    monkeypatch.setattr(range_reader, "RecordFetch", counted)
    monkeypatch.setattr(range_reader, "OPEN_CONSUMERS", 2)
    reader = RangeReader(topic_factory(partitions=5), kafka)

    for _ in range(3):
        reader.prepare(dict.fromkeys(range(5), LONG))
    reader.close()

    assert len(opened) == 2


def test_aborted_records_and_markers_are_passed_by_position(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """The range ends behind a marker, where there will never be a record."""
    topic = topic_factory()
    with transactions.open(topic, commit=True) as send:
        send(b"kept", BASE_MS)
    with transactions.open(topic, commit=False) as send:
        send(b"aborted", BASE_MS)

    stable = BrokerLog(topic, kafka).ends()[0].stable
    reader = RangeReader(topic, kafka, timeout_s=20)

    assert stable == 4
    assert read(reader, 0, stable)["value"].to_pylist() == [b"kept"]
    assert read(reader, 2, stable).num_rows == 0
    assert read(reader, 1, 2).num_rows == 0


def test_a_record_fetched_beyond_a_gap_at_the_end_is_kept_for_the_next_range(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """Asked for three offsets, one of which is a marker, librdkafka also returns the record behind it."""
    topic = topic_factory()
    with transactions.open(topic, commit=True) as send:
        send(b"a", BASE_MS)
        send(b"b", BASE_MS)
    fill(kafka, topic, 3)
    reader = RangeReader(topic, kafka, timeout_s=20)

    offsets = [read(reader, start, end)["offset"].to_pylist() for start, end in ((0, 3), (3, 4), (4, 6))]

    assert offsets == [[0, 1], [3], [4, 5]]


def test_a_range_continues_over_markers_that_came_later(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """A reader at the end sees that the log has grown only by a gap."""
    topic = topic_factory()
    fill(kafka, topic, 3)
    reader = RangeReader(topic, kafka, timeout_s=20)
    first = read(reader, 0, 3).num_rows
    with transactions.open(topic, commit=False) as send:
        send(b"aborted", BASE_MS)

    assert first == 3
    assert read(reader, 3, 5).num_rows == 0


def test_records_of_an_open_transaction_are_not_in_reach(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """The stable end stops before them, and a range beyond it times out with a message."""
    topic = topic_factory()
    fill(kafka, topic, 2)
    with transactions.open(topic, commit=True) as send:
        send(b"open", BASE_MS)
        ends = BrokerLog(topic, kafka).ends()[0]
        with pytest.raises(KafkaUnavailable, match=r"stuck at offset 2 .*end 3"):
            read(RangeReader(topic, kafka, timeout_s=3), 0, 3)
    table = read(RangeReader(topic, kafka), 0, 3)

    assert (ends.stable, ends.high, ends.settled) == (2, 3, False)
    assert table["value"].to_pylist() == [b"v0", b"v1", b"open"]


def test_gaps_of_compaction_are_passed_by_position(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Offsets are those of the log, not counted."""
    topic = topic_factory(
        config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100"}
    )
    writer = TopicWriter(kafka)
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka, timeout_s=20)
    deadline = time.monotonic() + 60
    while True:  # a segment is rolled by the next record, and cleaned some time later
        writer.write(topic, [b"same"] * 5, [b"v"] * 5)
        writer.flush()
        end = log.ends()[0].stable
        table = read(reader, 0, end)
        if table.num_rows < end:
            break
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.05)

    offsets = table["offset"].to_pylist()
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == end - 1


def test_a_deleted_offset_is_refused_at_once(
    kafka: dict[str, str], admin: AdminClient, topic_factory: TopicFactory
) -> None:
    """The error names what the log still has; nothing is skipped."""
    topic = topic_factory()
    fill(kafka, topic, 10)
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(30)

    with pytest.raises(OffsetOutOfRange) as caught:
        read(RangeReader(topic, kafka), 2, 10)

    error = caught.value
    assert (error.topic, error.partition, error.offset, error.start, error.end) == (topic, 0, 2, 6, 10)


def test_an_offset_beyond_the_log_is_refused(kafka: dict[str, str], filled: str) -> None:
    """A truncated log looks like this."""
    with pytest.raises(OffsetOutOfRange, match="truncated"):
        read(RangeReader(filled, kafka), 5_000, 5_001)


def test_an_unreachable_broker_is_reported_in_time() -> None:
    """The message gives the position and the last error."""
    with pytest.raises(KafkaUnavailable, match="any-0 was stuck at offset 3 "):
        read(RangeReader("any", {"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1), 3, 4)


def test_a_batch_ends_by_its_bytes(
    kafka: dict[str, str], topic_factory: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and headers count like values; each try gives the same batches."""
    topic = topic_factory()
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 10_000)
    writer = TopicWriter(kafka)
    writer.write(topic, [b"k" * 3_000] * 10, None)
    writer.write(topic, None, [b"v" * 3_000] * 10)
    writer.write(topic, None, [b""] * 10, [[("h", b"x" * 2_999)]] * 10)
    writer.flush()

    tries = [[batch.num_rows for batch in RangeReader(topic, kafka).read(0, 0, 30)] for _ in range(3)]

    assert tries == [[4] * 7 + [2]] * 3


@settings(max_examples=share(4))
@given(
    cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
)
def test_records_that_are_given_back_come_again_in_the_same_batches(
    kafka: dict[str, str], filled: str, cuts: list[tuple[int, int, int]]
) -> None:
    """As a reader without them would fetch them; afterwards it continues behind them without a seek."""
    reader, position = RangeReader(filled, kafka), 0

    for taken, ahead, chunk in cuts:
        batches = list(reader.read(0, position, position + taken + ahead, chunk))
        fresh = RangeReader(filled, kafka)
        assert batches == list(fresh.read(0, position, position + taken + ahead, chunk))
        fresh.close()
        position += taken
        held = [batch.slice(max(position - batch["offset"][0].as_py(), 0)) for batch in batches]
        reader.give_back(0, [batch for batch in held if batch.num_rows])
    reader.close()
