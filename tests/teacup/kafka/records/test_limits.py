"""What a topic accepts, as predicted: sizes and timestamps, compared with a real broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from teacup.base.now import wall_ms
from teacup.base.times import EARLIEST_MS, LATEST_MS, UNLIMITED_MS
from teacup.kafka.errors import DeliveryFailed, RecordTooLarge
from teacup.kafka.headers import OMITTED, TIME
from teacup.kafka.read.fetch import HEADERS, SCHEMA
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.records.limits import (
    TopicLimits,
    batch_bytes,
    record_bytes,
    restamped,
    shortened,
)
from teacup.kafka.write.topic_limits import forget_limits, limits_of, within_limits
from teacup.kafka.write.writer import Delivered, TopicWriter
from tests.conftest import TopicFactory

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LIMIT = 20_000

contents = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text("abc", max_size=5), contents), max_size=4)
records = st.tuples(contents, contents, headers)


def limits(**given: Any) -> TopicLimits:
    return TopicLimits(**{"topic": "t", "topic_bytes": LIMIT, "producer_bytes": 1_000_000, **given})


def test_the_size_of_a_record_is_what_the_broker_holds_it_against(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """A record of exactly the limit is accepted, one with a byte more is not."""
    topic = topic_factory(config={"max.message.bytes": str(LIMIT)})
    found = limits_of(kafka, [topic])[topic]
    kinds: list[tuple[bytes | None, list[Any]]] = [
        (None, []),
        (b"k" * 70, [("a", b"b"), ("c", None)]),
        (b"", [("n" * 130, b"")]),
    ]
    for key, own in kinds:
        for more in (0, 1):
            value = b"x" * (LIMIT - record_bytes(key, b"x" * 10_000, own) + 10_000 + more)
            writer = TopicWriter(kafka)

            writer.write(topic, [key], [value], [own])
            passed = found.limit_passed(key, value, own)

            assert record_bytes(key, value, own) == LIMIT + more
            if more:
                assert passed == (f"max.message.bytes of topic {topic!r}", LIMIT)
                with pytest.raises(DeliveryFailed, match="too large"):
                    writer.flush()
            else:
                assert passed is None
                assert writer.flush() == Delivered(1, 1)
            writer.close()


def test_compressed_records_count_as_they_are_sent(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """A record that compresses to less than the limit is accepted."""
    topic = topic_factory(config={"max.message.bytes": str(LIMIT)})
    value = b"abcdefgh" * 12_500

    for codec in ("gzip", "snappy", "lz4", "zstd"):
        properties = {**kafka, "compression.type": codec}
        writer = TopicWriter(properties)
        passed = limits_of(properties, [topic])[topic].limit_passed(None, value, [])
        writer.write(topic, None, [value])

        assert passed is None, codec
        assert writer.flush() == Delivered(1, 1), codec
        writer.close()


def test_small_records_never_make_a_batch_too_large_for_a_topic(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """2,000 records of 1 KB, and a limit of 200,000: one batch of them all would be refused."""
    topics = [topic_factory(config={"max.message.bytes": "200000"}), topic_factory()]
    writer = TopicWriter(within_limits(kafka, limits_of(kafka, topics)))
    for topic in topics:
        writer.write(topic, None, [b"x" * 1_000] * 2_000)

    assert writer.flush() == Delivered(4_000, 4_000)

    refused = TopicWriter({**kafka, "linger.ms": "500"})
    refused.write(topics[0], None, [b"x" * 1_000] * 2_000)
    with pytest.raises(DeliveryFailed, match="too large"):
        refused.flush()


def test_the_queue_holds_two_full_batches_for_each_partition(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Of the topic that has most; a user's own sizes stay, unless a topic refuses such batches."""
    few, many = topic_factory(4), topic_factory(40)
    own = {**kafka, "batch.num.messages": "7000", "batch.size": "900000", "queue.buffering.max.messages": "50000"}

    assert within_limits(kafka, limits_of(kafka, [few])) == kafka
    assert within_limits(kafka, limits_of(kafka, [few, many])) == {**kafka, "batch.num.messages": "2500"}
    assert within_limits(own, limits_of(kafka, [many])) == own
    assert within_limits(kafka, {many: TopicLimits(many, 1_000_000, 1_000_000, partitions=4_000)}) == {
        **kafka,
        "batch.num.messages": "100",
        "batch.size": "33554",
    }


def test_limits_are_asked_again_when_forgotten(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Until then a process keeps the limits it got first."""
    topic = topic_factory(config={"max.message.bytes": "30000", "message.timestamp.before.max.ms": "60000"})

    first = limits_of(kafka, [topic, None])
    again = limits_of(kafka, [topic])
    forget_limits(kafka, [topic])
    second = limits_of(kafka, [topic])

    assert first[topic] == TopicLimits(topic, 30_000, 1_000_000, 60_000, HOUR_MS)
    assert first[topic] is again[topic]
    assert second[topic] is not first[topic]


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_whatever_the_time_of_a_record_a_broker_takes_what_was_restamped(
    kafka: dict[str, str], topic_factory: TopicFactory, stamp: str
) -> None:
    """Far in the future, far in the past, negative and missing; with a limit on either side."""
    config = {"message.timestamp.before.max.ms": "7200000", "message.timestamp.type": stamp}
    topic = topic_factory(config=config)
    found = limits_of(kafka, [topic])[topic]
    now_ms = wall_ms()
    times = [now_ms, now_ms + 5 * HOUR_MS, now_ms - 5 * HOUR_MS, -7, 0, None, LATEST_MS, now_ms + HOUR_MS - 1]

    stamps, own = restamped(times, [[("a", b"b")] for _ in times], found, now_ms)
    writer = TopicWriter(kafka)
    writer.write(topic, None, [b"v"] * len(times), own, stamps)

    assert writer.flush() == Delivered(len(times), len(times))
    rows = next(RangeReader(topic, kafka).read(0, 0, len(times))).to_pylist()
    kept = [{header["key"]: header["value"] for header in row["headers"]}.get(TIME) for row in rows]
    changed = [*times[1:5], None, *times[6:]]
    if stamp == "CreateTime":
        assert kept == [None, *(None if time is None else str(time).encode() for time in changed)]
        assert [row["timestamp"] for row in rows] == [now_ms] * len(times)


def test_the_time_0_is_written_as_the_nearest_one_and_not_as_now(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """As librdkafka would, so that a job which joins by Kafka's time would take the record for new."""
    topic = topic_factory()
    stamps, own = restamped([0, 1], [None, None], limits_of(kafka, [topic])[topic], wall_ms())
    writer = TopicWriter(kafka)

    writer.write(topic, None, [b"v", b"v"], own, stamps)
    writer.flush()

    rows = next(RangeReader(topic, kafka).read(0, 0, 2)).to_pylist()
    assert [row["timestamp"] for row in rows] == [1, 1]
    assert own == [[(TIME, "0")], None]


@example(0, UNLIMITED_MS, 0)
@example(0, NOW_MS, 0)
@given(st.integers(EARLIEST_MS, LATEST_MS), st.integers(0, UNLIMITED_MS), st.integers(0, UNLIMITED_MS))
def test_a_time_that_is_kept_lies_within_the_limits(time_ms: int, before: int, after: int) -> None:
    """If it is not kept, the header has it."""
    found = limits(before_ms=before, after_ms=after)
    (stamp,), (own,) = restamped([time_ms], [None], found, NOW_MS)

    instead = 1 if time_ms == 0 and found.keeps(1, 1, NOW_MS) else NOW_MS
    assert NOW_MS - before <= stamp <= NOW_MS + after
    assert stamp == time_ms or (stamp, own) == (instead, [(TIME, str(time_ms))])


@given(records, st.integers(200, 1_000))
def test_a_copy_that_was_shortened_fits_and_says_what_is_missing(record: Any, limit: int) -> None:
    """Or is unchanged; our own headers always stay."""
    key, value, own = record
    found = limits(topic_bytes=limit)
    headers = [*own, ("teacup", "1 0:1 - -")]

    short_key, short_value, short = shortened(key, value, headers, found, "the copy")

    assert record_bytes(short_key, short_value, short) <= limit
    if (short_key, short_value, short) != (key, value, headers):
        omitted = dict(short)[OMITTED].split()
        assert "value" in omitted
        assert short_value is None
        assert short_key == (None if "key" in omitted else key)
        assert [header for header in short if header[0] != OMITTED] == (
            headers if "headers" not in omitted else headers[-1:]
        )


def test_a_topic_too_small_for_our_own_headers_is_named() -> None:
    """Then nothing is left to omit."""
    with pytest.raises(RecordTooLarge, match=r"copy of l-0 .* 100 of max"):
        shortened(b"k", b"v", [("teacup", "0" * 60)], limits(topic_bytes=100), "the copy of l-0")


@given(st.lists(records, min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_the_bytes_of_a_batch_are_those_of_its_records(rows: list[Any], skip: int, drop: int) -> None:
    """Keys, values and headers; also for a slice."""
    columns = [pa.array([0] * len(rows), SCHEMA.field(i).type) for i in range(4)] + [
        pa.array([row[i] for row in rows], pa.binary()) for i in (0, 1)
    ]
    own = [[{"key": k, "value": v} for k, v in row[2]] or None for row in rows]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(own, HEADERS)], schema=SCHEMA)
    cut = batch.slice(skip, max(len(rows) - skip - drop, 0))

    expected = [
        len(k or b"") + len(v or b"") + sum(len(name) + len(content or b"") for name, content in own)
        for k, v, own in rows
    ]

    assert batch_bytes(batch).tolist() == expected
    assert batch_bytes(cut).tolist() == expected[skip : skip + cut.num_rows]
