"""Ranges that C reads are what confluent-kafka's messages hold; each error is named."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from teacup.kafka.errors import ConfigError, OffsetOutOfRange, TopicMissing
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read import range_reader
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.messages import read_messages
from tests.support.transactions import BASE_MS, Transactions


def test_an_empty_range_needs_no_broker() -> None:
    """Not even a connection."""
    assert list(RangeReader("any", {"bootstrap.servers": "127.0.0.1:1"}).read(0, 5, 5)) == []


def test_a_login_that_only_confluent_kafka_knows_is_refused() -> None:
    """With another way to the same."""
    kafka = {"bootstrap.servers": "127.0.0.1:1", "sasl.oauthbearer.metadata.authentication.type": "aws_iam"}

    with pytest.raises(ConfigError, match=r"'aws_iam' is refused.*sasl\.oauthbearer\.token"):
        RangeReader("any", kafka)


@pytest.fixture(scope="module")
def mixed(kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions) -> str:
    """A topic with nulls, empty and large values, headers of all kinds, markers and aborted records: 1,000 offsets."""
    topic, chance, writer = topic_factory(), random.Random(3), TopicWriter({**kafka, "compression.type": "lz4"})
    some = [None, b"", b"a", b"\x00\xff", b"b" * 300]
    for _ in range(9):
        count = 100
        headers = [
            chance.choice([None, [], [("h", b"1")], [("é", None), ("", b""), ("a", b"x" * 400), ("a", b"y")]])
            for _ in range(count)
        ]
        keys, values = chance.choices(some, k=count), chance.choices(some, k=count)
        writer.write(topic, keys, values, headers, [chance.randint(1, BASE_MS) for _ in range(count)])
        writer.flush()
        with transactions.open(topic, commit=chance.random() < 0.5) as send:
            for _ in range(chance.randint(1, 9)):
                send(b"sent", BASE_MS)
    writer.close()
    return topic


def test_what_is_read_is_what_messages_hold(mixed: str, kafka: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However the range is cut, by records or bytes; and Arrow finds nothing wrong with the columns."""
    end = BrokerLog(mixed, kafka).ends()[0].stable
    for start, stop, chunk, size in [(0, end, 100_000, 32 << 20), (0, end, 37, 32 << 20), (5, end - 3, 100, 5_000)]:
        monkeypatch.setattr(range_reader, "BATCH_BYTES", size)

        batches = list(RangeReader(mixed, kafka, timeout_s=20).read(0, start, stop, chunk))

        assert pa.Table.from_batches(batches) == pa.Table.from_batches([read_messages(mixed, kafka, start, stop)])
        assert all(batch.num_rows <= chunk for batch in batches)
        for batch in batches:
            batch.validate(full=True)


def test_a_header_name_that_is_not_utf8_costs_its_record_only_its_headers(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """Wherever the name is; confluent-kafka shows no header of such a record."""
    bare = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    headers = [[(b"a", b"1")], [(b"a", b"1"), (b"n\xff", b"2")], None, [(b"", None), (b"\xc3", None), (b"b", b"3")]]
    count = 250 * len(headers)  # enough for the interpreter to make its calls fast
    values, times, parts = pa.array([b"v"] * count), pa.array([BASE_MS] * count), pa.array([0] * count, pa.int32())
    topic, writer = topic_factory(), TopicWriter(kafka)
    writer.write(topic, None, values, pa.array(headers * 250, bare), times, parts)
    writer.flush()
    writer.close()

    table = pa.Table.from_batches(list(RangeReader(topic, kafka, timeout_s=20).read(0, 0, count, count)))

    table.validate(full=True)
    assert table == pa.Table.from_batches([read_messages(topic, kafka, 0, count)])
    unreadable = [{"key": "teacup.unreadable", "value": b"headers"}]
    assert table["headers"].to_pylist() == [[{"key": "a", "value": b"1"}], unreadable, None, unreadable] * 250
    assert table["value"].to_pylist() == [b"v"] * count


def test_errors_are_named(kafka: dict[str, str], admin: AdminClient, topic_factory: TopicFactory) -> None:
    """Deleted and future offsets, no such topic, properties that librdkafka refuses."""
    short, writer = topic_factory(), TopicWriter(kafka)
    writer.write(short, None, [b"v"] * 10, partitions=[0] * 10)
    writer.flush()
    writer.close()
    for future in admin.delete_records([TopicPartition(short, 0, 6)]).values():
        future.result(30)
    for topic, properties, start, kind in [
        (short, {}, 2, OffsetOutOfRange),
        (short, {}, 5_000, OffsetOutOfRange),
        ("nowhere", {"topic.metadata.propagation.max.ms": "500"}, 0, TopicMissing),
        (short, {"no.such.property": "1"}, 6, ConfigError),
    ]:
        with pytest.raises(kind):
            list(RangeReader(topic, {**kafka, **properties}, timeout_s=20).read(0, start, start + 1, 10))
