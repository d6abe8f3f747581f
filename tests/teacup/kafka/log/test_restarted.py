"""A broker that is new, restarted, killed, or paused: all of these on one broker of this module's own."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.kafka import client
from teacup.kafka.delivery.fencing import OutputBucket, settle
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import DeliveryFailed, TopicMissing
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.write.writer import Delivered, TopicWriter
from tests.support.recreating import recreate
from tests.teacup.kafka.delivery.attempts import attempt, committed, is_settled

FIRST_READ = """
import sys
from teacup.kafka.log.groups import GroupOffsets
print(GroupOffsets("new", {"bootstrap.servers": sys.argv[1]}).read([("t", 0)]))
"""
COMMITS = """
import sys
from pathlib import Path
from teacup.kafka.log.groups import GroupOffsets
group, number = GroupOffsets("g", {"bootstrap.servers": sys.argv[1]}), 0
while not Path(sys.argv[2]).exists():
    number += 1
    group.commit({("t", 0): number})
    print(number, flush=True)
print(group.read([("t", 0)]) == {("t", 0): number})
"""


@dataclass(frozen=True)
class Own:
    """A broker, and what the first read of a group printed when it was new."""

    broker: Broker
    first_read: subprocess.CompletedProcess[str]

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.broker.bootstrap}

    def topic(self) -> str:
        """A new topic of one partition."""
        name, admin = f"topic-{uuid.uuid4().hex[:8]}", AdminClient(self.kafka)
        admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=30)[name].result(60)
        return name


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """A broker that would create topics. A group is read before anything else: a later read finds a coordinator."""
    with Broker(properties={"auto.create.topics.enable": "true"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=30)["t"].result(60)
        command = [sys.executable, "-c", FIRST_READ, broker.bootstrap]
        yield Own(broker, subprocess.run(command, capture_output=True, text=True, timeout=300, check=False))


def test_the_first_read_of_a_new_cluster_survives_that_its_coordinator_is_not_there_yet(own: Own) -> None:
    """In a process of its own: with the admin client's call librdkafka would end it (its issue 5040)."""
    assert (own.first_read.returncode, own.first_read.stdout) == (0, "{('t', 0): None}\n"), own.first_read.stderr


def test_a_missing_topic_is_not_created(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the brokers would: it is asked for again, as it may have been created just before."""
    monkeypatch.setattr(client, "MISSING_GRACE_S", 0.5)

    for _ in range(2):
        with closing(BrokerLog("missing", own.kafka)) as log, pytest.raises(TopicMissing):
            log.ends()


def test_commits_continue_and_a_leader_of_a_new_epoch_is_looked_up_when_the_broker_was_restarted(
    own: Own, tmp_path: Path
) -> None:
    """Commits in a process of their own: with the admin client's call librdkafka ends it, or never reconnects.

    The admin client keeps using the epoch that it knows, although the broker refuses it.
    """
    again = own.topic()
    command = [sys.executable, "-c", COMMITS, own.broker.bootstrap, str(tmp_path / "end")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as commits:
        assert commits.stdout is not None
        assert commits.stdout.readline() == "1\n"
        own.broker.stop()
        own.broker.start()  # a new epoch of the leaders
        (tmp_path / "end").touch()
        with closing(BrokerLog(again, own.kafka)) as log:
            before = log.ends()[0]
            recreate(own.kafka, again)
            after = log.ends()[0]  # the same connection, its own epoch
        printed, errors = commits.communicate(timeout=300)

    assert (commits.returncode, printed.splitlines()[-1:]) == (0, ["True"]), errors
    assert (before.epoch is not None and before.epoch > 0, after.epoch) == (True, 0)


def test_a_producer_is_abandoned_when_no_broker_answers(own: Own, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the failed task would never be retried; the bucket's next producer aborts its transaction."""
    monkeypatch.setattr("teacup.kafka.write.writer._CLOSE_WITHIN_S", 1.0)
    bucket = OutputBucket("job", 0, own.topic())
    writer = TransactionalWriter({**own.kafka, "transaction.timeout.ms": "60000"}, bucket)
    writer.write(bucket.topic, None, [b"half"], None, [0])
    writer.writer.flush()

    own.broker.pause()
    writer.close()
    own.broker.resume()

    settle(own.kafka, [bucket])
    assert is_settled(own.kafka, bucket.topic)
    assert committed(own.kafka, bucket.topic) == []


def test_a_producer_kept_while_the_broker_was_restarted_delivers_the_next_batch(own: Own) -> None:
    """librdkafka would wait for the coordinator that it knew, for longer than any time-out (its issue 5511)."""
    bucket = OutputBucket("job", 0, own.topic())
    attempt(own.kafka, bucket, 1, [b"before"])

    own.broker.stop()
    own.broker.start()

    attempt(own.kafka, bucket, 2, [b"after"])
    assert committed(own.kafka, bucket.topic) == [b"before", b"after"]


def test_a_broker_killed_before_the_flush_fails_it(own: Own) -> None:
    """Records that `write` accepted are not reported as delivered; a broker restarted on its folder has its topics."""
    topic = own.topic()
    patient, writer = (TopicWriter({**own.kafka, **more}) for more in ({}, {"delivery.timeout.ms": "1500"}))
    patient.write(topic, None, [b"safe"])
    safe = patient.flush()
    patient.close()
    writer.producer.list_topics(topic, timeout=60)

    own.broker.kill()
    writer.write(topic, None, pa.array([b"lost"] * 5))
    with pytest.raises(DeliveryFailed, match=rf"5 records .*'{topic}'"):
        writer.flush()

    own.broker.start()
    assert safe == Delivered(1, 1)
    assert BrokerLog(topic, own.kafka).ends()[0].stable == 1
