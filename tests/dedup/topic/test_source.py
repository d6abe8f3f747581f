"""The source of `kind: dedup` on a real broker, without Spark: what a run under `available_now` reads, and outages."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dedup.topic.source import Ranges, RangesReader
from deploy.broker.broker import Broker
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.broker_log import BrokerLog
from teacup.spark.stream_reader import ReaderControl, pickled
from tests.support.morepartitions import add_partitions
from tests.support.putting import put_records
from tests.support.waiting import wait_until

DEADLINE_S = 60.0


def reader_of(kafka, topic):
    ranges = Ranges(topic, kafka, max_records=100, start="earliest")
    return RangesReader("dedup", ranges, ReaderControl(), pickled(lambda value: iter([])))


def put(kafka, topic, partition, count):
    put_records(kafka, topic, count, partition=partition, values=[b"v"] * count)


def test_a_partition_that_is_new_under_available_now_is_read_by_the_next_run(kafka, topic_factory):
    """A run reads what its first look found; the partition's records are not lost."""
    topic = topic_factory(1)
    put(kafka, topic, 0, 2)
    reader = reader_of(kafka, topic)
    reader.available_now()
    first = reader.latest({})
    add_partitions(kafka, topic, 2)
    put(kafka, topic, 0, 1)
    put(kafka, topic, 1, 3)

    second = reader.latest(first)
    reader.disconnect()
    following = reader_of(kafka, topic)
    following.available_now()
    third = following.latest(second)
    following.disconnect()

    assert first["ranges"] == {"0": [0, 2]}
    assert second == first
    assert third["ranges"] == {"0": [2, 3], "1": [0, 3]}


def test_planning_waits_for_a_broker_that_does_not_answer_and_connects_again(kafka, topic_factory, caplog, monkeypatch):
    """With a line each time, here; the broker answers the third connection."""
    monkeypatch.setattr("teacup.spark.stream_reader.SAY_EVERY_S", -1.0)
    monkeypatch.setattr("teacup.spark.stream_reader.HOLD_S", 0.01)
    answers, asked = BrokerLog.ends, []

    def ends(log):
        asked.append(log)
        if len(asked) < 3:
            raise KafkaUnavailable("the broker does not answer")
        return answers(log)

    topic = topic_factory(1)
    put(kafka, topic, 0, 2)
    reader = reader_of(kafka, topic)
    monkeypatch.setattr(BrokerLog, "ends", ends)

    found = reader.latest({})
    reader.disconnect()

    assert found["ranges"] == {"0": [0, 2]}
    assert len({id(log) for log in asked}) == 3
    assert sum("dedup holds: the broker does not answer" in line for line in caplog.messages) == 2


@pytest.mark.slow
def test_an_unreachable_broker_is_waited_for_with_a_line_and_connected_to_again(tmp_path, caplog, monkeypatch):
    """It was silent for five minutes, and kept its old connection."""
    monkeypatch.setattr("teacup.spark.stream_reader.SAY_EVERY_S", -1.0)
    with Broker(tmp_path / "broker", {"broker.session.timeout.ms": "120000"}) as own:
        kafka = {"bootstrap.servers": own.bootstrap}
        admin = AdminClient(kafka)
        admin.create_topics([NewTopic("in", 1)])["in"].result(DEADLINE_S)
        put(kafka, "in", 0, 2)
        reader, found = reader_of(kafka, "in"), {}
        first = reader.latest({})
        put(kafka, "in", 0, 1)
        before = reader._log
        own.pause()
        asking = threading.Thread(target=lambda: found.update(reader.latest(first)))
        with monkeypatch.context() as impatient:
            impatient.setattr("teacup.kafka.client.RETRY_TIMEOUT_S", 0.1)
            impatient.setattr("teacup.kafka.log.broker_log._ANSWERED_WITHIN_S", 0.5)
            asking.start()
            wait_until(lambda: sum("dedup holds: " in line for line in caplog.messages) >= 2)
        own.resume()
        asking.join(DEADLINE_S)
        after = reader._log
        reader.disconnect()

    assert found["ranges"] == {"0": [2, 3]}
    assert after is not before
    assert "gives up after 300 s" in caplog.text
