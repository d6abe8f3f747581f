"""What the replicas of a topic say about writes to it."""

from __future__ import annotations

import pytest

from teacup.kafka.log.replicas import Replicas, cannot_take, partition_of


@pytest.mark.parametrize(
    ("placed", "in_sync", "minimum", "refusing"),
    [
        ((3, 3), (3, 3), 2, ()),
        ((3, 3), (2, 3), 2, ()),
        ((3, 3), (3, 1), 2, (1,)),
        ((3, 3), (0, 1), 1, (0,)),  # the first has no leader
        ((1, 1), (1, 1), 2, ()),  # Kafka caps the minimum
        ((3, 1), (1, 1), None, (0,)),  # a usual minimum
        ((), (), 2, ()),
    ],
)
def test_partitions_that_take_no_write(placed, in_sync, minimum, refusing):
    """Fewer in sync than the minimum, or no leader."""
    assert Replicas("t", placed, in_sync, minimum).refusing == refusing


def test_of_a_coordinators_topic_one_partition_matters():
    """That of the transactional id."""
    found = [Replicas("t", (3, 3), (3, 1), 2)]

    assert cannot_take(found, {"t": 0}) is None
    error = cannot_take(found, {"t": 1})
    assert error is not None
    assert str(error).startswith("NOT_ENOUGH_REPLICAS: partition 1 of topic 't' has 1 of its 3 replicas in sync, and")


def test_the_message_without_a_leader_names_no_minimum():
    """It would not help to lower it."""
    error = cannot_take([Replicas("t", (1,), (0,), 1)])

    assert error is not None
    assert "partition 0 of topic 't' has no leader" in str(error)
    assert "min.insync" not in str(error)


@pytest.mark.parametrize(
    ("name", "partition"),
    [("", 0), ("a", 47), ("teacup.job/out/0", 11), ("ünïcödé 🍵", 30)],
)
def test_partition_of_an_id(name, partition):
    """By `Utils.abs(id.hashCode) % 50` in Java."""
    assert partition_of(name, 50) == partition
