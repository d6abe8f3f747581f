"""The broker is killed with -9 in the middle of a batch that is read, or written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.support.waiting import wait_until
from tests.teacup.kafka.delivery.attempts import committed, is_settled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

VALUES = [b"%06d" % number + b"." * 1_000 for number in range(10_000)]
CHUNK = 1_000
ATTEMPTS = 10


@pytest.fixture(scope="module")
def own() -> Iterator[Broker]:
    """One that may be killed."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka(own: Broker) -> dict[str, str]:
    """Properties with which a client notices soon that nobody answers."""
    return {"bootstrap.servers": own.bootstrap, "socket.timeout.ms": "10000", "log_level": "0"}


@pytest.fixture
def topic(kafka: dict[str, str]) -> str:
    """A new topic of one partition."""
    name, admin = f"topic-{uuid.uuid4().hex[:8]}", AdminClient(kafka)
    admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=30)[name].result(60)
    return name


def strike(broker: Broker) -> None:
    broker.kill()
    broker.start()


def test_what_is_read_is_read_once_and_in_order(own: Broker, kafka: dict[str, str], topic: str) -> None:
    """Whether the reader goes on by itself, or fails, and the range is read again."""
    with closing(TopicWriter(kafka)) as writer:
        writer.write(topic, None, VALUES)
        writer.flush()
    kept: list[bytes] = []
    struck = False
    for _ in range(ATTEMPTS):
        reader = RangeReader(topic, kafka)
        try:
            found: list[bytes] = []
            for batch in reader.read(0, 0, len(VALUES), CHUNK):
                found += batch.column("value").to_pylist()
                if not struck and len(found) >= 3 * CHUNK:
                    struck = True
                    strike(own)
            kept = found
            break
        except KafkaIOError:
            assert found == VALUES[: len(found)]
        finally:
            reader.close()

    assert struck
    assert kept == VALUES


@pytest.mark.parametrize("flushed", [True, False])
def test_what_is_written_is_there_once(own: Broker, kafka: dict[str, str], topic: str, flushed: bool) -> None:
    """Half of a transaction's rows are at the broker, or on their way; the attempt fails, or goes on; then all are."""
    bucket, half, struck = OutputBucket(f"job-{topic}", 0, topic), len(VALUES) // 2, False
    kafka = {**kafka, "transaction.timeout.ms": "60000", "delivery.timeout.ms": "60000"}
    failures = []
    for _ in range(ATTEMPTS):
        delivery = ExactlyOnce(kafka, bucket, Batch("g", 1, "d"))
        try:
            if not delivery.written_so_far().done:
                delivery.write(topic, None, VALUES[:half], None, [0] * half)
                if not struck:
                    struck = True
                    if flushed:
                        delivery._transactions.writer.producer.flush(30)
                    strike(own)
                delivery.write(topic, None, VALUES[half:], None, [0] * (len(VALUES) - half))
                delivery.commit(len(VALUES), {topic: len(VALUES)}, done=True)
            break
        except KafkaIOError as error:
            failures.append(error)
            delivery.abandon()
    else:
        raise AssertionError(f"not delivered in {ATTEMPTS} attempts: {failures}")
    wait_until(lambda: is_settled(kafka, topic), within_s=120)

    assert struck
    assert committed(kafka, topic) == VALUES
