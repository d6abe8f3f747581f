"""Single records of many partitions at once."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from teacup.kafka.errors import KafkaUnavailable, OffsetOutOfRange
from teacup.kafka.log.point_reader import PointReader
from teacup.kafka.write.writer import TopicWriter
from tests.conftest import TopicFactory
from tests.support.transactions import BASE_MS, Transactions


def test_the_record_at_or_after_each_position_is_given(
    kafka: dict[str, str], topic_factory: TopicFactory, transactions: Transactions
) -> None:
    """Across gaps; None if there is none before the end, at once if the range is empty."""
    topic = topic_factory(4)
    writer = TopicWriter(kafka)
    writer.write(topic, [b"k"] * 4, [b"a", b"b", b"c", b"d"], timestamps=[BASE_MS] * 4, partitions=[0, 0, 2, 2])
    writer.flush()
    for commit in (False, True):
        with transactions.open(topic, commit) as send:
            send(b"in", BASE_MS + 1, 1)
    reader = PointReader(topic, kafka)

    first = reader.take({0: (1, 2), 1: (0, 4), 2: (0, 2), 3: (0, 0)})
    again = reader.take({0: (0, 2), 1: (3, 4), 2: (1, 1)})

    assert {
        p: [(record.offset, record.value, record.timestamp_ms) for record in some] for p, some in first.items()
    } == {
        0: [(1, b"b", BASE_MS)],
        1: [(2, b"in", BASE_MS + 1)],
        2: [(0, b"c", BASE_MS)],
        3: [],
    }
    assert {p: [record.value for record in some] for p, some in again.items()} == {0: [b"a"], 1: [], 2: []}


def test_several_records_can_be_taken_in_order(kafka: dict[str, str], topic_factory: TopicFactory) -> None:
    """Up to a count, and never beyond the end."""
    topic = topic_factory()
    writer = TopicWriter(kafka)
    writer.write(topic, None, [b"%d" % i for i in range(20)])
    writer.flush()
    reader = PointReader(topic, kafka)

    assert [record.offset for record in reader.take({0: (3, 20)}, 5)[0]] == [3, 4, 5, 6, 7]
    assert [record.offset for record in reader.take({0: (17, 19)}, 5)[0]] == [17, 18]


def test_a_header_name_that_is_not_utf8_costs_a_record_only_its_headers(
    kafka: dict[str, str], topic_factory: TopicFactory
) -> None:
    """A planner looks at the first and the last records of a partition: one of them must not end it."""
    topic = topic_factory()
    bare = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    writer = TopicWriter(kafka)
    writer.write(topic, None, [b"a", b"b"], pa.array([[(b"n\xff", b"1")], [(b"h", b"2")]], bare))
    writer.flush()

    (first, second) = PointReader(topic, kafka).take({0: (0, 2)}, 2)[0]

    assert (first.value, first.headers) == (b"a", (("teacup.unreadable", b"headers"),))
    assert (second.value, second.headers) == (b"b", (("h", b"2"),))


def test_a_deleted_position_is_refused(kafka: dict[str, str], admin: AdminClient, topic_factory: TopicFactory) -> None:
    """The error names what the log still has; the reader stays usable."""
    topic = topic_factory()
    writer = TopicWriter(kafka)
    writer.write(topic, None, [b"%d" % i for i in range(10)])
    writer.flush()
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(30)
    reader = PointReader(topic, kafka)

    with pytest.raises(OffsetOutOfRange, match=r"\[6, 10\).*retention"):
        reader.take({0: (2, 10)})
    (found,) = reader.take({0: (6, 10)})[0]

    assert found.value == b"6"


def test_an_unreachable_broker_is_reported() -> None:
    """With the partitions that it waited for."""
    reader = PointReader("any", {"bootstrap.servers": "127.0.0.1:1"}, timeout_s=1)

    with pytest.raises(KafkaUnavailable, match=r"partitions \[0\] of any"):
        reader.take({0: (0, 1)})
