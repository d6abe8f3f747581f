"""The reader of the output knows when it has seen all of it."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from teacup.kafka.log.broker_log import BrokerLog
from tests.crash.reader import CommittedReader
from tests.crash.traffic import PARTITIONS
from tests.support.provenance import header, left_of


@pytest.fixture
def reader(kafka, topic_factory):
    """Of a new topic, with the topic's name."""
    topic = topic_factory(PARTITIONS, prefix="read")
    with closing(CommittedReader(kafka["bootstrap.servers"], [topic], PARTITIONS)) as reader:
        yield reader, topic


def commit(kafka, topic, lefts, *, abort=False):
    """One transaction; a marker follows its records."""
    producer = Producer({**kafka, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for left in lefts:
        producer.produce(topic, b"v", partition=0, headers=[header(left)])
    producer.flush(30)
    if abort:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def settled(log):
    """Where the topic ends once the markers of what was committed are there, a moment after the commit."""
    deadline = time.monotonic() + 60
    while not all(end.settled for end in log.ends().values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return log.ends()


def wait_until_read(read, topic, ends):
    deadline = time.monotonic() + 60
    while not read.has_read(topic, ends):
        assert time.monotonic() < deadline, read.trouble
        time.sleep(0.01)


def test_the_reader_has_read_the_output_when_it_is_past_the_last_marker(kafka, reader):
    """Rows, the marker behind them, and an aborted transaction at the end; the other partition is empty."""
    read, topic = reader
    commit(kafka, topic, ["0:0", "0:1"])
    commit(kafka, topic, ["0:1"])
    commit(kafka, topic, ["0:2"], abort=True)
    with closing(BrokerLog(topic, kafka)) as log:
        ends = settled(log)

    wait_until_read(read, topic, ends)

    assert [left_of(record.headers) for record in read.of(topic)] == ["0:0", "0:1", "0:1"]
    assert ends[0].stable == 7


def test_what_is_committed_later_has_not_been_read_before(kafka, reader):
    """A closed reader stays where it was."""
    read, topic = reader
    with closing(BrokerLog(topic, kafka)) as log:
        before = log.ends()
        wait_until_read(read, topic, before)
        read.close()
        commit(kafka, topic, ["0:0"])
        after = settled(log)

    assert not read.has_read(topic, after)
