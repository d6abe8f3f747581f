"""The two paths on which ranges are read, in C and in Python, give the same batches and raise the same errors."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from teacup.kafka.errors import ConfigError, OffsetOutOfRange, TopicMissing
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.native import library, rdkafka
from teacup.kafka.read import range_reader
from teacup.kafka.read.fetch import MessageFetch
from teacup.kafka.read.native_fetch import RecordFetch
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.transactions import BASE_MS, Transactions


def test_the_path_in_use_is_the_one_that_was_chosen(
    path: str, kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """And properties that only confluent-kafka understands take its path."""
    fetch = range_reader._open_fetch(topic_factory(), kafka, 10)

    assert isinstance(fetch, {"native": RecordFetch, "python": MessageFetch}[path])
    assert not rdkafka.takes({**kafka, "sasl.oauthbearer.metadata.authentication.type": "aws_iam"})
    fetch.close()


def test_an_empty_range_needs_no_broker() -> None:
    """Not even a connection."""
    assert list(RangeReader("any", {"bootstrap.servers": "127.0.0.1:1"}).read(0, 5, 5)) == []


def on_both_paths(
    monkeypatch: pytest.MonkeyPatch,
    native: ctypes.CDLL,
    topic: str,
    kafka: dict[str, str],
    start: int,
    end: int,
    chunk: int,
) -> list[Any]:
    """The batches of a range, or the error, of either path."""
    found: list[Any] = []
    for library_or_none in (native, None):
        monkeypatch.setattr(library, "loaded", lambda given=library_or_none: given)
        reader = RangeReader(topic, kafka, timeout_s=20)
        try:
            found.append(list(reader.read(0, start, end, chunk)))
        except Exception as error:
            found.append((type(error), str(error)))
        reader.close()
    return found


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


def test_both_paths_give_the_same_batches(
    mixed: str, kafka: dict[str, str], native_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the range is cut, by records or bytes; and Arrow finds nothing wrong with them."""
    end = BrokerLog(mixed, kafka).ends()[0].stable
    for start, stop, chunk, size in [(0, end, 100_000, 32 << 20), (0, end, 37, 32 << 20), (5, end - 3, 100, 5_000)]:
        monkeypatch.setattr(range_reader, "BATCH_BYTES", size)
        native, python = on_both_paths(monkeypatch, native_library, mixed, kafka, start, stop, chunk)

        assert [batch.num_rows for batch in native] == [batch.num_rows for batch in python]
        assert all(batch.equals(other) for batch, other in zip(native, python, strict=True))
        for batch in native:
            batch.validate(full=True)


def test_a_header_name_that_is_not_utf8_costs_its_record_only_its_headers(
    kafka: dict[str, str], topic_factory: TopicFactory, native_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both paths alike, wherever the name is; confluent-kafka shows no header of such a record."""
    bare = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    headers = [[(b"a", b"1")], [(b"a", b"1"), (b"n\xff", b"2")], None, [(b"", None), (b"\xc3", None), (b"b", b"3")]]
    count = 250 * len(headers)  # enough for the interpreter to make its calls fast
    values, times, parts = pa.array([b"v"] * count), pa.array([BASE_MS] * count), pa.array([0] * count, pa.int32())
    monkeypatch.setattr(library, "loaded", lambda: native_library)
    topic, writer = topic_factory(), TopicWriter(kafka)
    assert writer._native is not None, "only C writes such a name, and only from Arrow columns"
    writer.write(topic, None, values, pa.array(headers * 250, bare), times, parts)
    writer.flush()
    writer.close()

    native, python = on_both_paths(monkeypatch, native_library, topic, kafka, 0, count, count)

    table = pa.Table.from_batches(native)
    table.validate(full=True)
    assert table == pa.Table.from_batches(python)
    unreadable = [{"key": "teacup.unreadable", "value": b"headers"}]
    assert table["headers"].to_pylist() == [[{"key": "a", "value": b"1"}], unreadable, None, unreadable] * 250
    assert table["value"].to_pylist() == [b"v"] * count


def test_both_paths_raise_the_same_errors(
    mixed: str,
    kafka: dict[str, str],
    admin: AdminClient,
    topic_factory: TopicFactory,
    native_library: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deleted and future offsets, no such topic, no such partition, properties that librdkafka refuses."""
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
        native, python = on_both_paths(
            monkeypatch, native_library, topic, {**kafka, **properties}, start, start + 1, 10
        )

        assert native == python
        assert native[0] is kind
