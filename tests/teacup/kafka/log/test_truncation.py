"""A log that another leader has cut off is known by its leader epochs, however long it is now."""

from __future__ import annotations

import shutil
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.topic_log import LeaderPosition
from tests.support.sparkjoin import Put, produce


def test_an_epoch_that_the_leader_does_not_know_is_not_its_log(kafka, topic_factory):
    """As after a truncation of all that was written in it; whatever stands at the offset, and at the end of the log."""
    topic = topic_factory(2)
    produce(kafka, topic, [Put(p, b"k", 1_000 + i, b"v") for i in range(5) for p in (0, 1)])
    with closing(BrokerLog(topic, kafka)) as log:
        epochs = {p: ends.epoch for p, ends in log.ends().items()}

        for offset in (3, 5):
            asked = {0: LeaderPosition(offset, epochs[0] + 7, 9), 1: LeaderPosition(offset, epochs[1], 9)}
            assert log.truncated(asked) == {0}


@pytest.mark.slow
def test_a_log_that_was_truncated_and_has_grown_again_is_noticed(tmp_path):
    """A broker that lost the end of a partition leads it again, as after an unclean election."""
    with Broker() as own:
        kafka = {"bootstrap.servers": own.bootstrap}
        admin = AdminClient(kafka)
        admin.create_topics([NewTopic("t", 2, 1)], operation_timeout=30)["t"].result(60)

        def more(count):
            produce(kafka, "t", [Put(p, b"k", 1_000 + i, b"v") for i in range(count) for p in (0, 1)])

        def listed():
            with closing(BrokerLog("t", kafka)) as log:
                return log.ends()

        more(5)
        short = listed()
        own.stop()
        shutil.copytree(own.folder / "data" / "t-0", tmp_path / "t-0")
        own.start()
        more(5)
        long = listed()
        own.stop()
        shutil.rmtree(own.folder / "data" / "t-0")
        shutil.copytree(tmp_path / "t-0", own.folder / "data" / "t-0")
        own.start()
        more(10)
        with closing(BrokerLog("t", kafka)) as log:
            now = log.ends()

            def truncated(before, offset):
                return log.truncated({p: LeaderPosition(offset, before[p].epoch, now[p].epoch) for p in (0, 1)})

            assert {p: (short[p].high, long[p].high, now[p].high) for p in (0, 1)} == {0: (5, 10, 15), 1: (5, 10, 20)}
            assert short[0].epoch < long[0].epoch < now[0].epoch
            assert truncated(long, 10) == {0}
            assert truncated(long, 6) == {0}
            assert truncated(long, 5) == set()
            assert truncated(short, 5) == set()
            assert truncated(long, 10) == {0}
