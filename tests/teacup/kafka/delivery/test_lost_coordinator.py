"""The coordinator of a bucket's group goes away, as in each rolling restart: another broker is asked at once.

librdkafka would wait for the one that it knew, for longer than any time-out (its issues 5511 and 5456).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.dev.broker.broker import Broker
from deploy.dev.broker.lifeline import HOST, free_port
from teacup.kafka.delivery.fencing import OutputBucket
from tests.teacup.kafka.delivery.attempts import attempt, committed

TOPIC = "out"
ROWS = 20
ON_BOTH = {"offsets.topic.replication.factor": "2", "transaction.state.log.replication.factor": "2"}


@dataclass(frozen=True)
class Cluster:
    """Two brokers; the first is also the controller. Partitions are led by both."""

    first: Broker
    second: Broker

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": f"{self.first.bootstrap},{self.second.bootstrap}", "log_level": "0"}

    def bucket_of_second(self) -> OutputBucket:
        """A bucket whose receipts the second broker keeps."""
        admin = AdminClient(self.kafka)
        for number in range(1, 100):  # about every second one
            bucket = OutputBucket("job", number, TOPIC)
            described = admin.describe_consumer_groups([bucket.group])[bucket.group].result(60)
            if described.coordinator.id == 2:
                return bucket
        raise AssertionError("the second broker coordinates no group")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    port, folder = free_port(), tmp_path_factory.mktemp("second")
    with Broker(properties=ON_BOTH) as first, Broker(folder, second_of(first, port), port=port) as second:
        made = Cluster(first, second)
        admin = AdminClient(made.kafka)
        admin.create_topics([NewTopic(TOPIC, 4, 2)], operation_timeout=30)[TOPIC].result(60)
        deliver(made.kafka, OutputBucket("job", 0, TOPIC), 1)  # creates the topics of both coordinators
        yield made


def second_of(first: Broker, port: int) -> dict[str, str]:
    """What makes a broker the second node of another one's cluster."""
    voters = next(line for line in (first.folder / "server.properties").read_text().splitlines() if "voters" in line)
    listener = f"PLAINTEXT://{HOST}:{port}"
    return {
        **ON_BOTH,
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": voters.partition("=")[2],
        "listeners": listener,
        "advertised.listeners": listener,
    }


def values(bucket: OutputBucket, number: int) -> list[bytes]:
    return [b"%s, batch %d, row %d" % (bucket.group.encode(), number, row) for row in range(ROWS)]


def deliver(kafka: dict[str, str], bucket: OutputBucket, number: int) -> None:
    """Delivers a batch, at the first attempt."""
    assert attempt(kafka, bucket, number, values(bucket, number), keyed=True) == ROWS


def test_a_bucket_whose_coordinator_has_gone_goes_on_at_the_first_attempt(cluster: Cluster) -> None:
    """Its producer, kept from the batch before, knows from new metadata that the broker has left the cluster."""
    bucket = cluster.bucket_of_second()
    deliver(cluster.kafka, bucket, 1)

    cluster.second.stop()
    deliver(cluster.kafka, bucket, 2)
    deliver(cluster.kafka, bucket, 3)

    rows = [row for row in committed(cluster.kafka, TOPIC) if row.startswith(bucket.group.encode())]
    assert sorted(rows) == sorted(values(bucket, 1) + values(bucket, 2) + values(bucket, 3))
