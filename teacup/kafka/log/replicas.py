"""Whether the brokers can take a write: they acknowledge none to a partition without enough replicas in sync.

    Replicas        of a topic: how many each partition has, and how many of them are in sync
    cannot_take     the partitions that take no write now, as an error; None: each takes one
    why_not_taken   the same, but the brokers are asked, after a write that was not acknowledged

librdkafka keeps the brokers' NOT_ENOUGH_REPLICAS to itself and retries until a record, or a call, times out. A
coordinator whose own topic has too few does the same: it only answers that it is not available. And if an earlier
transaction cannot be ended for that reason, the next producer of its id gets CONCURRENT_TRANSACTIONS. So the topics
themselves are described, except those that the user may not describe.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaException

from teacup.kafka import client
from teacup.kafka.errors import KafkaIOError, NotEnoughReplicas

log = logging.getLogger("teacup.kafka.log.replicas")


MINIMUM = "min.insync.replicas"
TRANSACTIONS, GROUPS = "__transaction_state", "__consumer_offsets"
"""The coordinators' own topics. An id, or a group, has its partition (`partition_of`)."""
_USUAL_MINIMUM = 2  # of the transactions' coordinator; most other topics with a minimum have this one
_ANSWERED_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a topic's partitions, in order.

    placed, in_sync   how many each has, and how many of these are in sync; 0 if it has no leader. A topic that does
                      not exist has no partitions
    minimum           `min.insync.replicas`; None if it may not be looked at
    """

    topic: str
    placed: tuple[int, ...]
    in_sync: tuple[int, ...]
    minimum: int | None = None

    @classmethod
    def of(cls, metadata: Any) -> Replicas:
        """Reads a topic's metadata, as any librdkafka client lists it; the minimum is not included."""
        partitions = [metadata.partitions[p] for p in sorted(metadata.partitions)]
        in_sync = tuple(len(partition.isrs) if partition.leader >= 0 else 0 for partition in partitions)
        return cls(metadata.topic, tuple(len(partition.replicas) for partition in partitions), in_sync)

    @property
    def all_in_sync(self) -> bool:
        """Returns whether no replica is missing."""
        return self.in_sync == self.placed

    @property
    def refusing(self) -> tuple[int, ...]:
        """Returns the partitions that take no write. An unknown minimum is taken for the usual one.

        Kafka caps the minimum at the number of replicas.
        """
        minimum = _USUAL_MINIMUM if self.minimum is None else self.minimum
        counts = enumerate(zip(self.placed, self.in_sync, strict=True))
        return tuple(p for p, (placed, in_sync) in counts if in_sync < max(min(minimum, placed), 1))

    @property
    def fewest(self) -> int:
        """Returns how many replicas the partition with the fewest has."""
        return min(self.placed, default=0)


def cannot_take(replicas: Iterable[Replicas], only: Mapping[str, int | None] | None = None) -> NotEnoughReplicas | None:
    """Returns the error for the first topic with partitions that take no write.

    only   of these topics only one partition matters
    """
    for topic in replicas:
        one = (only or {}).get(topic.topic)
        refusing = [p for p in topic.refusing if one is None or p == one]
        if refusing:
            p = refusing[0]
            return NotEnoughReplicas(
                topic.topic, p, topic.in_sync[p], topic.placed[p], topic.minimum, len(refusing), len(topic.placed)
            )
    return None


def why_not_taken(
    kafka: Mapping[str, str], lists: client.ListsTopics, topics: Iterable[str], transactional_id: str | None = None
) -> NotEnoughReplicas | None:
    """Returns why a write to these topics was not acknowledged; None if for another reason, or if that is not known.

    lists              an existing client, already connected
    transactional_id   of the write; also the group whose offsets are in the transaction
    """
    ids = {} if transactional_id is None else dict.fromkeys((TRANSACTIONS, GROUPS), transactional_id)
    replicas = []
    for topic in [*topics, *ids]:
        try:
            replicas += _listed(lists, topic)
        except KafkaException:
            return None  # no broker answers, which the failed call itself reports
    lacking = [about for about in replicas if not about.all_in_sync or not all(about.in_sync)]
    if not lacking:
        return None
    minimums = minimums_of(kafka, [about.topic for about in lacking])
    with_minimum = [replace(about, minimum=minimums.get(about.topic)) for about in lacking]
    return cannot_take(
        with_minimum, {a.topic: partition_of(ids[a.topic], len(a.placed)) for a in lacking if a.topic in ids}
    )


def _listed(lists: client.ListsTopics, topic: str) -> list[Replicas]:
    """Returns the topic, or nothing if it may not be looked at. Raises `KafkaException`."""
    metadata = lists.list_topics(topic, client.LEARN_TIMEOUT_S).topics[topic]
    may_be_described = metadata.error is None or not client.lacks_acl(metadata.error.code())
    return [Replicas.of(metadata)] if may_be_described else []


def replicas_of(kafka: Mapping[str, str], topics: Iterable[str]) -> dict[str, Replicas]:
    """Returns the replicas of those topics that may be looked at. Raises `KafkaUnavailable`."""
    admin = client.admin(kafka)
    try:
        replicas = [about for topic in topics for about in _listed(admin, topic)]
    except KafkaException as error:
        raise client.failure(error.args[0], f"look-up of replicas failed: {client.said(error.args[0])}") from error
    minimums = minimums_of(kafka, [about.topic for about in replicas if about.placed])
    return {about.topic: replace(about, minimum=minimums.get(about.topic)) for about in replicas}


def broker_count(kafka: Mapping[str, str]) -> int:
    """Returns the number of brokers. Raises `KafkaUnavailable`."""
    try:
        return len(client.admin(kafka).list_topics(timeout=_ANSWERED_WITHIN_S).brokers)
    except KafkaException as error:
        raise client.failure(error.args[0], f"look-up of the brokers failed: {client.said(error.args[0])}") from error


def minimums_of(kafka: Mapping[str, str], topics: Iterable[str]) -> dict[str, int]:
    """Returns `min.insync.replicas` of those topics whose configuration may be looked at."""
    topics, minimums = list(topics), dict[str, int]()
    if not topics:
        return minimums
    try:
        admin = client.admin(kafka)
        asked = client.topic_configs(admin, topics, _ANSWERED_WITHIN_S)
    except KafkaIOError as error:
        log.debug("%s", error)
        return minimums
    for topic, answer in asked.items():
        try:
            minimums[topic] = int(answer.result()[MINIMUM].value)
        except KafkaException as error:
            log.debug("%s of %s is not known: %s", MINIMUM, topic, client.said(error.args[0]))
    return minimums


def partition_of(name: str, partitions: int) -> int:
    """Returns the partition of a coordinator's topic that holds a transactional id or a group, by Java's hash."""
    code = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partitions
