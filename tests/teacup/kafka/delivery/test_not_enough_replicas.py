"""Two brokers of which one is lost, and topics that need both: each failure names the topic, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from teacup.kafka.delivery import fencing
from teacup.kafka.delivery.delivery import AtLeastOnce, ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.errors import NotEnoughReplicas
from teacup.kafka.log.replicas import MINIMUM, TRANSACTIONS
from tests.support.cluster import Cluster
from tests.teacup.kafka.delivery.attempts import BATCH, attempt, committed

pytestmark = pytest.mark.slow

TOPIC = "out"
FIRST, SECOND, OTHER = ([b"%s %d" % (name, i) for i in range(20)] for name in (b"first", b"second", b"other"))


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), 2) as made:
        admin = AdminClient(made.kafka)
        new = NewTopic(TOPIC, 2, 2, config={MINIMUM: "2"})
        admin.create_topics([new], operation_timeout=30)[TOPIC].result(60)
        yield made


def set_minimum(cluster: Cluster, topic: str, count: int) -> None:
    entry = ConfigEntry(MINIMUM, str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(cluster.kafka)
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_write_that_too_few_replicas_can_take_says_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first attempt; the next one, which finds a transaction that cannot be ended; without transactions; and where
    it is the coordinator that lacks replicas. Once they are back all goes on, each row once.
    """
    monkeypatch.setattr(fencing, "INIT_TIMEOUT_S", 5.0)
    kafka, bucket, other = (
        {**cluster.kafka, "transaction.timeout.ms": "6000"},
        *(OutputBucket("job", number, TOPIC) for number in (0, 1)),
    )
    assert attempt(kafka, bucket, 1, FIRST, keyed=True) == len(FIRST)

    cluster.brokers[1].kill()
    cluster.await_in_sync(TOPIC, 1)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicas) as raised:
            attempt(kafka, bucket, 2, SECOND, keyed=True)
        found = raised.value
        assert (found.topic, found.in_sync, found.placed, found.minimum) == (TOPIC, 1, 2, 2)
        assert (found.refusing, found.of) == (2, 2)
        assert "NOT_ENOUGH_REPLICAS" in str(found)
    plain = AtLeastOnce({**cluster.kafka, "delivery.timeout.ms": "6000"})
    plain.write(TOPIC, None, OTHER, None, None)
    with pytest.raises(NotEnoughReplicas):
        plain.commit(len(OTHER), {TOPIC: len(OTHER)}, done=True)
    plain.abandon()
    assert "records wait to be acknowledged: NOT_ENOUGH_REPLICAS" in caplog.text

    set_minimum(cluster, TOPIC, 1)
    set_minimum(cluster, TRANSACTIONS, 2)
    with pytest.raises(NotEnoughReplicas) as raised:
        attempt(kafka, other, 1, OTHER, keyed=True)
    assert (raised.value.topic, raised.value.in_sync, raised.value.minimum) == (TRANSACTIONS, 1, 2)

    monkeypatch.undo()
    cluster.brokers[1].start()
    cluster.await_in_sync(TRANSACTIONS, 2)
    assert attempt(kafka, bucket, 2, SECOND, keyed=True) == len(SECOND)
    assert attempt(kafka, other, 1, OTHER, keyed=True) == len(OTHER)
    assert sorted(committed(kafka, TOPIC)) == sorted([*FIRST, *SECOND, *OTHER])


def test_a_retry_names_the_side_topic_that_lacks_replicas(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry has written nothing yet, and is only told of the earlier transaction, which cannot be ended."""
    monkeypatch.setattr(fencing, "INIT_TIMEOUT_S", 5.0)
    kafka, bucket = {**cluster.kafka, "transaction.timeout.ms": "6000"}, OutputBucket("job", 0, TOPIC, ("dead", "late"))
    new = NewTopic("dead", 1, 2, config={MINIMUM: "2"})
    admin = AdminClient(cluster.kafka)
    admin.create_topics([new], operation_timeout=30)["dead"].result(60)
    set_minimum(cluster, TOPIC, 1)

    def dead_letters() -> int:
        delivery = ExactlyOnce(kafka, bucket, BATCH)
        try:
            assert not delivery.written_so_far().done
            delivery.write("dead", None, FIRST, None, [0] * len(FIRST))
            delivery.commit(len(FIRST), {"dead": len(FIRST)}, done=True)
            return len(FIRST)
        except BaseException:
            delivery.abandon()
            raise

    cluster.brokers[1].kill()
    cluster.await_in_sync("dead", 1)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicas) as raised:
            dead_letters()
        found = raised.value
        assert (found.topic, found.in_sync, found.placed, found.minimum) == ("dead", 1, 2, 2)

    monkeypatch.undo()
    cluster.brokers[1].start()
    cluster.await_in_sync("dead", 2)
    assert dead_letters() == len(FIRST)
    assert sorted(committed(kafka, "dead")) == sorted(FIRST)
