"""Topics as the brokers describe them to this user. Nothing is changed.

    wait_for_brokers   whether they answer at all, asked before anything else: a mistyped address gives one line, within
                       seconds
    describe           partitions, and what the user may do. Brokers without an authorizer allow everything; for brokers
                       that do not say, the operations are None
    truncated          whether a partition still holds what it held up to an offset, asked of its leader (KIP-320,
                       `OffsetForLeaderEpoch`)

A leader knows at which offset each of its epochs ended. If the epoch of an offset ended below that offset, the records
from there on are gone, whatever is there now. librdkafka asks when a consumer seeks to an offset with a leader epoch,
but not for an assignment with one (2.16). With `auto.offset.reset=error` a truncated log then gives an error event
instead of records. Anything else that arrives after the seek says that the offset is valid.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition

from teacup.kafka import client
from teacup.kafka.client import last_error, said
from teacup.kafka.errors import KafkaIOError, KafkaUnavailable
from teacup.kafka.log.topic_log import LeaderPosition

_silent = logging.getLogger("teacup.kafka.log.admin.librdkafka")
_silent.disabled = True  # our own line says what it reports for each attempt

ANSWERED_WITHIN_S = 10.0
_ONE_TRY_S = 1.0
_POLL_S = 0.1
TUNING: Mapping[str, object] = {
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 1,  # one record fills the queue, after which it would pause for a second by default
    "fetch.message.max.bytes": 1_024,
    "fetch.wait.max.ms": 5,
}
"""Properties of the consumer that looks for truncation."""


@dataclass(frozen=True, slots=True)
class Described:
    """A topic. operations: lower-case names of ACL operations ("read", "describe_configs"), or None if not known."""

    partitions: int
    operations: frozenset[str] | None


def describe(kafka: Mapping[str, str], topics: Sequence[str]) -> dict[str, Described | KafkaIOError]:
    """Describes each topic, or returns the error that says why it cannot, after one attempt of at most ten seconds."""
    troubles: list[KafkaError] = []
    admin = client.admin(kafka, troubles.append)
    futures = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=ANSWERED_WITHIN_S
    )
    by_topic: dict[str, Described | KafkaIOError] = {}
    for topic, future in futures.items():
        try:
            described = future.result()
        except KafkaException as error:
            admin.poll(0)
            by_topic[topic] = client.translate(
                error.args[0], "look-up", topic, None, troubles[-1] if troubles else None
            )
        else:
            by_topic[topic] = Described(len(described.partitions), _names(described.authorized_operations))
    return by_topic


def _names(operations: Sequence[Any] | None) -> frozenset[str] | None:
    names = frozenset(operation.name.lower() for operation in operations or ())
    return names or None


BROKERS_WITHIN_S = 5.0
"""How long a command that only looks waits for brokers to answer."""


def wait_for_brokers(
    kafka: Mapping[str, str],
    stopped: Callable[[], bool] = lambda: False,
    give_up_after_s: float | None = None,
) -> None:
    """Returns once a broker has answered or `stopped()`; warns after the first try, finally raises `KafkaUnavailable`.

    Raises `ConfigError` for properties that librdkafka does not accept.
    """
    troubles: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            troubles[:] = [error]

    admin = client.admin(kafka, note, _silent)

    def ask() -> None:
        if stopped():
            return
        try:
            admin.list_topics(timeout=_ONE_TRY_S)
        except KafkaException as error:
            admin.poll(0)
            why = troubles[0] if troubles else error.args[0]
            if client.is_not_let_in(why):
                raise client.not_let_in(why, kafka) from error
            raise KafkaUnavailable(
                f"no broker answered ({said(why)}): correct bootstrap.servers, or start the broker"
            ) from error

    client.retried(ask, kafka, give_up_after_s, say_after_s=0.0)


def truncated(topic: str, positions: Mapping[int, LeaderPosition], kafka: Mapping[str, str]) -> set[int]:
    """Returns the partitions that are no longer what they were up to these positions.

    Raises `KafkaUnavailable`, `KafkaIOError`.
    """
    troubles: list[KafkaError] = []
    everything = {**kafka, "isolation.level": "read_uncommitted"}  # an open transaction would hide the end
    consumer = client.consumer(everything, TUNING, troubles.append)
    try:
        client.learn(consumer, topic, client.REQUEST_TIMEOUT_S)
        spots = [TopicPartition(topic, p, at.offset, leader_epoch=at.epoch) for p, at in positions.items()]
        consumer.incremental_assign([TopicPartition(topic, spot.partition, spot.offset) for spot in spots])
        return _judged(consumer, topic, spots, troubles)
    except KafkaException as error:
        raise client.translate(error.args[0], "look for truncation", topic) from error
    finally:
        consumer.close()


def _judged(consumer: Consumer, topic: str, spots: list[TopicPartition], troubles: list[KafkaError]) -> set[int]:
    deadline = time.monotonic() + client.REQUEST_TIMEOUT_S
    cut: set[int] = set()
    waiting = {spot.partition for spot in spots}
    while waiting:
        if time.monotonic() > deadline:
            last = last_error(troubles[-1] if troubles else None)
            raise KafkaUnavailable(f"partitions {sorted(waiting)} of {topic} returned no answer{last}")
        spots = [spot for spot in spots if not _sought(consumer, spot)]
        event: Any = consumer.poll(_POLL_S)
        if event is None:
            continue
        partition, error = event.partition(), event.error()
        if partition not in waiting or any(spot.partition == partition for spot in spots):
            continue  # nothing is checked until the seek has begun
        if error is not None and client.is_about_its_group(error):
            continue
        if error is not None and client.is_out_of_range(error):
            cut.add(partition)
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            if not client.is_transient(error):
                raise client.translate(error, "look for truncation", topic, partition)
            troubles.append(error)
            continue
        waiting.discard(partition)
        consumer.incremental_unassign([TopicPartition(topic, partition)])
    return cut


def _sought(consumer: Consumer, spot: TopicPartition) -> bool:
    """Seeks. Returns whether the seek has begun, as an assignment that has not begun refuses it."""
    try:
        consumer.seek(spot)
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION):
            return False
        raise
    return True
