"""What a flush guarantees, and that no failure is missed."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from teacup.kafka.errors import DeliveryFailed
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.templates import Form, ListedHeaders, MadeHeaders, MadeTexts, TextHeader, TextPiece, listed
from teacup.kafka.write.writer import Delivered, TopicWriter, discard_writer, open_writer
from tests.conftest import TopicFactory


def test_texts_become_records(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Keys, values, headers, times and partitions."""
    topic = topic_factory(2)
    rows = pl.DataFrame(
        {
            "key": [b'a"', None, b"\xff"],
            "count": [1, -2, None],
            "right": [True, False, None],
            "own": listed([[("o", b"1"), ("o", None)], [], [("é", b"")]]),
            "time": [1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003],
        }
    )
    key, count = TextPiece(column="key", form=Form.STRING), TextPiece(column="count", form=Form.NUMBER)
    text = (TextPiece("["), key, TextPiece(","), count, TextPiece(",r", where="right"), TextPiece("]"))
    plan = (TextHeader("n", (count,), where="right"), ListedHeaders("own"), TextHeader("all", (TextPiece("x"),)))
    writer = TopicWriter(kafka)
    partitions = pa.array([1, 1, 1], pa.int32())

    sent = writer.write(topic, rows["key"], MadeTexts(text, rows), MadeHeaders(plan, rows), rows["time"], partitions)
    delivered = writer.flush()
    writer.close()

    assert (sent, delivered) == (3, Delivered(3, 3))
    found = next(RangeReader(topic, kafka).read(1, 0, 3)).to_pylist()
    assert [(row["key"], row["value"], row["timestamp"]) for row in found] == [
        (b'a"', rb'["a\"",1,r]', 1_700_000_000_001),
        (None, b"[null,-2]", 1_700_000_000_002),
        (b"\xff", b'[{"base64": "/w=="},null]', 1_700_000_000_003),
    ]
    assert [[(header["key"], header["value"]) for header in row["headers"]] for row in found] == [
        [("n", b"1"), ("o", b"1"), ("o", None), ("all", b"x")],
        [("all", b"x")],
        [("é", b""), ("all", b"x")],
    ]


def test_a_flush_counts_what_was_acknowledged(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Since the last flush; with Arrow columns, including chunked ones."""
    topic = topic_factory(3)
    writer = TopicWriter(kafka)
    keys = pa.chunked_array([[b"a", b"b"], [b"c"]])

    writer.write(topic, keys, pa.array([b"1", None, b"3"]), partitions=pa.array([2, 2, 2], pa.int32()))
    first = writer.flush()
    second = writer.flush()

    assert (first, second) == (Delivered(3, 3), Delivered(0, 0))
    rows = next(RangeReader(topic, kafka).read(2, 0, 3)).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(b"a", b"1"), (b"b", None), (b"c", b"3")]


def test_keys_go_where_the_java_client_sends_them(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """murmur2: topics written by both kinds of clients stay co-partitioned (Kafka's own test vectors)."""
    topic = topic_factory(7)
    writer = TopicWriter(kafka)
    # org.apache.kafka.common.utils.UtilsTest: murmur2 of the key, made positive, modulo 7
    murmur2 = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    writer.write(topic, pa.array(list(murmur2)), pa.array([b"v"] * len(murmur2)))
    writer.flush()

    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    found = {
        key: partition
        for partition, at in log.ends().items()
        for batch in reader.read(partition, 0, at.stable)
        for key in batch["key"].to_pylist()
    }

    assert found == {key: (value & 0x7FFFFFFF) % 7 for key, value in murmur2.items()}


def test_a_full_queue_holds_the_caller_back(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Nothing is lost or duplicated by it."""
    topic = topic_factory()
    writer = TopicWriter({**kafka, "queue.buffering.max.messages": "100", "linger.ms": "1"})
    values = [b"%d" % i for i in range(3_000)]

    writer.write(topic, None, pa.array(values))

    assert writer.flush() == Delivered(3_000, 3_000)
    batch = pa.Table.from_batches(list(RangeReader(topic, kafka).read(0, 0, 3_000)))
    assert batch["value"].to_pylist() == values


def test_a_record_too_large_for_its_topic_fails_the_flush(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """The broker refuses it after `write` has returned; topic, partition and reason are named."""
    topic = topic_factory(config={"max.message.bytes": "1000"})
    discard_writer(kafka)
    writer = open_writer(kafka)
    writer.write(topic, None, pa.array([b"x" * 5_000]))

    with pytest.raises(DeliveryFailed, match=f"1 records .* '{topic}' partition 0: .*too large"):
        writer.flush()
    discard_writer(kafka)
    renewed = open_writer(kafka)

    assert renewed is not writer
    assert renewed.write(topic, None, [b"x"]) == 1
    assert renewed.flush() == Delivered(1, 1)


def test_a_record_too_large_for_the_producer_is_refused_at_once(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """librdkafka's own limit, `message.max.bytes`."""
    topic = topic_factory()

    with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
        TopicWriter(kafka).write(topic, None, pa.array([b"x" * 2_000_000]))
