"""The collector's value on a real broker, for a consumer that is stepped by hand through awkward topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from datadelay.collector.reports import Rules
from datadelay.model import Submission
from datadelay.watermark import Idle
from teacup.base.now import wall_ms
from teacup.kafka.log.point_reader import PointReader
from teacup.kafka.records.record import typical
from tests.conftest import TopicFactory
from tests.support.recreating import recreate
from tests.support.stepped import DEADLINE_S, Stepped, produce
from tests.support.transactions import BASE_MS, Transactions

D = 1_000
RULES = Rules(disorder_ms=D, producer_delay_ms=10_000)
Consumers = Callable[[str], Stepped]


def by_clock(found: Submission) -> int:
    """Returns the partition watermark of a caught-up consumer."""
    return found.listed_ms - RULES.producer_delay_ms


def test_each_step_of_a_consumer_moves_the_value(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """Record by record, in disorder; at the end the clock takes over. An empty partition holds nothing back."""
    topic = topic_factory(3)
    times = [BASE_MS + step for step in (0, 500, 200, 900, 100, 3_000)]
    produce(kafka, topic, times)
    produce(kafka, topic, [BASE_MS + 50_000], partition=1)
    consumer = stepped(topic)
    consumer.read(1, 1)

    for step in range(len(times)):
        consumer.read(0, 1 if step else 0)
        found = consumer.collected(RULES)

        assert found.partitions[0].position == step
        assert found.partitions[0].watermark_ms == found.consumed_until_ms
        assert typical(times[step:]) - D <= found.consumed_until_ms <= min(times[step:])
        assert not found.caught_up
        assert [report.watermark_ms for report in found.partitions[1:]] == [by_clock(found)] * 2

    consumer.read(0, 1)
    found = consumer.collected(RULES)
    assert found.caught_up
    assert found.consumed_until_ms == by_clock(found)


@pytest.mark.parametrize("lie_ms", [-30_000, 30_000], ids=["late", "ahead"])
def test_one_wrong_time_at_the_position_moves_nothing(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, lie_ms: int
) -> None:
    """A late one does not send the value back; one ahead of its neighbours does not release left records early."""
    topic = topic_factory()
    times = [BASE_MS + 100 * i for i in range(120)]
    times[60] += lie_ms
    produce(kafka, topic, times)
    consumer = stepped(topic)

    consumer.commit(0, 60)
    found = consumer.collected(RULES)

    assert found.consumed_until_ms is not None
    assert BASE_MS + 100 * 43 - D <= found.consumed_until_ms <= BASE_MS + 100 * 61


def test_a_partition_that_nobody_has_read_is_unknown_once_it_has_records(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """Without a position an empty partition has nothing unread; in one with records the consumer may start anywhere."""
    topic = topic_factory(2)
    consumer = stepped(topic)
    empty = consumer.collected(RULES)

    produce(kafka, topic, [BASE_MS], partition=1)
    found = consumer.collected(RULES)

    assert empty.consumed_until_ms == by_clock(empty)
    assert found.consumed_until_ms is None
    assert found.reason is not None
    assert "partition 1: no committed position" in found.reason


def test_transactions_aborted_and_committed_are_gaps(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, transactions: Transactions
) -> None:
    """Aborted records and markers are never unread; the first record behind them is."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS])
    with transactions.open(topic, commit=False) as send:
        send(b"never", BASE_MS + 1_000)
        send(b"never", BASE_MS + 1_001)
    with transactions.open(topic, commit=True) as send:
        send(b"in", BASE_MS + 20_000)
    consumer = stepped(topic)

    consumer.commit(0, 1)
    behind = consumer.collected(RULES)
    consumer.commit(0, 5)
    only_marker = consumer.collected(RULES)

    assert behind.consumed_until_ms == BASE_MS + 20_000 - D
    assert only_marker.partitions[0].position == 5
    assert only_marker.caught_up
    assert only_marker.consumed_until_ms == by_clock(only_marker)


def test_an_open_transaction_holds_the_value_at_what_was_read(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, transactions: Transactions
) -> None:
    """The times of its records are unknown yet; when it ends, the clock takes over again."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS] * 17 + [BASE_MS + 700])
    consumer = stepped(topic)
    with ExitStack() as opened:
        send = opened.enter_context(transactions.open(topic, commit=True))
        send(b"hidden", BASE_MS + 300)
        unread = consumer_at(consumer, 17).collected(RULES)
        all_read = consumer_at(consumer, 18).collected(RULES)
    committed = consumer.collected(RULES)
    consumer.commit(0, 20)
    done = consumer.collected(RULES)

    assert unread.consumed_until_ms == BASE_MS - D
    assert all_read.consumed_until_ms == BASE_MS - D
    assert all_read.consumed_until_ms <= BASE_MS + 300
    assert not all_read.caught_up
    assert committed.consumed_until_ms == BASE_MS + 300 - D
    assert done.caught_up


def test_an_open_transaction_in_a_new_partition_is_unknown(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, transactions: Transactions
) -> None:
    """No record before it has a time: nothing can be concluded."""
    topic = topic_factory()
    consumer = stepped(topic)
    consumer.commit(0, 0)
    with transactions.open(topic, commit=True) as send:
        send(b"hidden", BASE_MS)
        found = consumer.collected(RULES)

    assert found.consumed_until_ms is None
    assert found.reason is not None
    assert "open transaction" in found.reason


def test_compaction_leaves_gaps_that_the_next_record_answers(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """A position may point at a record that is gone: the first one after it counts."""
    topic = topic_factory(
        config={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.001",
            "segment.ms": "100",
            "max.compaction.lag.ms": "100",
        }
    )
    produce(kafka, topic, [BASE_MS + step for step in range(5)], key=b"same")
    for number in (5, 6):  # two of three unread records are far ahead however soon the log is compacted
        produce(kafka, topic, [BASE_MS + 60_000 + number], key=b"later-%d" % number)
    consumer = stepped(topic)
    consumer.commit(0, 1)
    reader = PointReader(topic, kafka)
    deadline = time.monotonic() + 60
    number = 7
    while True:  # an active segment is never compacted: each append may begin a new one
        produce(kafka, topic, [BASE_MS + 60_000 + number], key=b"later-%d" % number)
        number += 1
        (first,) = reader.take({0: (1, number)})[0]
        if first.offset > 1:
            break
        assert time.monotonic() < deadline, "the log was never compacted"
        time.sleep(0.2)
    reader.close()

    found = consumer.collected(RULES)

    assert found.partitions[0].position == 1
    assert found.consumed_until_ms == first.timestamp_ms


def test_a_position_that_retention_deleted_is_unknown_and_the_others_keep_their_values(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, admin: AdminClient
) -> None:
    """Unread records were lost: somebody has to decide, so the topic is unknown until then."""
    topic = topic_factory(2)
    for partition in (0, 1):
        produce(kafka, topic, [BASE_MS + 10 * step for step in range(6)], partition)
    consumer = stepped(topic)
    consumer.commit(0, 2)
    consumer.commit(1, 4)
    for future in admin.delete_records([TopicPartition(topic, p, 4) for p in (0, 1)]).values():
        future.result(DEADLINE_S)

    found = consumer.collected(RULES)
    consumer.commit(0, 4)
    moved = consumer.collected(RULES)

    assert found.consumed_until_ms is None
    assert found.partitions[0].reason is not None
    assert "start 4: retention deleted 2 offsets" in found.partitions[0].reason
    assert found.partitions[1].watermark_ms == BASE_MS + 40 - D
    assert moved.consumed_until_ms == BASE_MS + 40 - D


def test_a_partition_that_was_read_and_then_deleted_to_its_end_is_caught_up(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, admin: AdminClient
) -> None:
    """An idle topic whose records have all expired does not stall a join."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, BASE_MS + 1])
    consumer = stepped(topic)
    consumer.read(0, 2)
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0, 2)].result(DEADLINE_S)

    found = consumer.collected(RULES)

    assert found.caught_up
    assert found.consumed_until_ms == by_clock(found)


def test_a_position_beyond_the_end_is_unknown(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """The topic was recreated: its old positions mean nothing."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, BASE_MS + 1])
    consumer = stepped(topic)
    consumer.commit(0, 3)

    found = consumer.collected(RULES)

    assert found.consumed_until_ms is None
    assert found.reason == "partition 0: position 3 is beyond the end 2: was the topic recreated, or truncated?"


def test_a_recreated_topic_has_another_generation(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, admin: AdminClient
) -> None:
    """Even if the positions would fit: the API then waits instead of comparing them."""
    topic = topic_factory()
    consumer = stepped(topic)
    before = consumer.collected(RULES).generation
    again = consumer.collected(RULES).generation

    recreate(kafka, topic)

    assert again == before
    assert consumer.collected(RULES).generation != before


def test_log_append_time_is_the_brokers_clock(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """The producer's timestamp does not count there."""
    topic = topic_factory(config={"message.timestamp.type": "LogAppendTime"})
    produce(kafka, topic, [BASE_MS])
    consumer = stepped(topic)
    consumer.commit(0, 0)

    found = consumer.collected(RULES)

    assert not found.caught_up
    assert found.consumed_until_ms == by_clock(found)


def test_payload_times_come_from_the_value(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, transactions: Transactions
) -> None:
    """A record without such a time is a dead letter: the next one counts."""
    topic = topic_factory(config={"message.timestamp.type": "LogAppendTime"})
    with transactions.open(topic, commit=True) as send:
        send(b"no json", BASE_MS)
        send(b'{"at": null}', BASE_MS)
    produce(kafka, topic, [BASE_MS + 5_000])
    consumer = stepped(topic)
    consumer.commit(0, 0)

    found = consumer.collected(RULES, "$.at")

    assert found.consumed_until_ms == BASE_MS + 5_000 - D


def test_unread_records_of_which_none_has_a_time_are_unknown(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """Otherwise a mistake in the path would report that all is consumed; once they are read, the clock counts."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, BASE_MS + 5_000])
    consumer = stepped(topic)
    consumer.commit(0, 0)

    slip = consumer.collected(RULES, "$.att")
    consumer.commit(0, 2)
    read = consumer.collected(RULES, "$.att")

    assert (slip.consumed_until_ms, slip.caught_up) == (None, False)
    assert slip.reason is not None
    assert slip.reason.startswith("partition 0: no record from position 0 on has an event time: is `time` right")
    assert read.consumed_until_ms == by_clock(read)


def test_a_gap_or_the_future_alone_does_not_mean_a_wrong_path(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, transactions: Transactions
) -> None:
    """Aborted records do not count, and those from the future have a time."""
    topic = topic_factory(2)
    with transactions.open(topic, commit=False) as send:
        send(b'{"at": 1}', BASE_MS)
    produce(kafka, topic, [wall_ms() + 3_000_000], 1)
    consumer = stepped(topic)
    for partition in (0, 1):
        consumer.commit(partition, 0)

    found = consumer.collected(RULES, "$.at")

    assert found.caught_up, found.reason
    assert found.consumed_until_ms == by_clock(found)


@pytest.mark.parametrize("only_future", [False, True])
def test_records_from_the_future_are_stepped_over(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers, only_future: bool
) -> None:
    """They would move the value for ever; if nothing else is unread, the clock counts."""
    topic = topic_factory(config={"message.timestamp.after.max.ms": str(2**62)})
    future_ms = wall_ms() + 3_600_000
    produce(kafka, topic, [future_ms, future_ms] + ([] if only_future else [BASE_MS]))
    consumer = stepped(topic)
    consumer.commit(0, 0)

    found = consumer.collected(RULES)

    assert found.consumed_until_ms == (by_clock(found) if only_future else BASE_MS - D)


def test_idle_hold_goes_by_the_newest_records_read(
    kafka: dict[str, str], topic_factory: TopicFactory, stepped: Consumers
) -> None:
    """For topics replayed with old times: a caught-up consumer is not at the current time."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, *[BASE_MS + 400] * 16, BASE_MS + 90_000])
    consumer = stepped(topic)
    consumer.read(0, 18)

    found = consumer.collected(Rules(disorder_ms=D, idle=Idle.HOLD))

    assert found.consumed_until_ms == BASE_MS + 400 - D


def consumer_at(consumer: Stepped, offset: int) -> Stepped:
    consumer.commit(0, offset)
    return consumer
