"""The coordinator of a bucket's group goes away, as in each rolling restart: another broker is asked at once.

librdkafka would wait for the one that it knew, for longer than any time-out (its issues 5511 and 5456).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from teacup.kafka.delivery.fencing import OutputBucket
from tests.support.cluster import Cluster
from tests.teacup.kafka.delivery.attempts import attempt, committed

TOPIC = "out"
ROWS = 20


def bucket_of_second(cluster: Cluster) -> OutputBucket:
    """A bucket whose receipts the second broker keeps."""
    admin = AdminClient(cluster.kafka)
    for number in range(1, 100):  # about every second one
        bucket = OutputBucket("job", number, TOPIC)
        described = admin.describe_consumer_groups([bucket.group])[bucket.group].result(60)
        if described.coordinator.id == 2:
            return bucket
    raise AssertionError("the second broker coordinates no group")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Partitions are led by both brokers."""
    with Cluster(tmp_path_factory.mktemp("cluster"), 2) as made:
        admin = AdminClient(made.kafka)
        admin.create_topics([NewTopic(TOPIC, 4, 2)], operation_timeout=30)[TOPIC].result(60)
        deliver(made.kafka, OutputBucket("job", 0, TOPIC), 1)  # creates the topics of both coordinators
        yield made


def values(bucket: OutputBucket, number: int) -> list[bytes]:
    return [b"%s, batch %d, row %d" % (bucket.group.encode(), number, row) for row in range(ROWS)]


def deliver(kafka: dict[str, str], bucket: OutputBucket, number: int) -> None:
    """Delivers a batch, at the first attempt."""
    assert attempt(kafka, bucket, number, values(bucket, number), keyed=True) == ROWS


def test_a_bucket_whose_coordinator_has_gone_goes_on_at_the_first_attempt(cluster: Cluster) -> None:
    """Its producer, kept from the batch before, knows from new metadata that the broker has left the cluster."""
    bucket = bucket_of_second(cluster)
    deliver(cluster.kafka, bucket, 1)

    cluster.brokers[1].stop()
    deliver(cluster.kafka, bucket, 2)
    deliver(cluster.kafka, bucket, 3)

    rows = [row for row in committed(cluster.kafka, TOPIC) if row.startswith(bucket.group.encode())]
    assert sorted(rows) == sorted(values(bucket, 1) + values(bucket, 2) + values(bucket, 3))
