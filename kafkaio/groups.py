"""Committed positions of a consumer group, without being a member of it.

Lag tools see a job through such a group; collectors read the group of a feeder. Brokers answer stale
positions while a commit is on its way unless told otherwise (`require_stable`), and partition by partition
may fail where the whole call succeeds: every answer is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from kafkaio import client
from kafkaio.errors import KafkaIOError

Spot = tuple[str, int]  # topic and partition

_HAS_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.NON_EMPTY_GROUP,
)


class GroupOffsets:
    """Reads and writes the committed offsets of one group. Calls are retried, then raise `KafkaUnavailable`."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        self.group = group
        self._admin = client.admin(kafka)

    def read(self, spots: Iterable[Spot]) -> dict[Spot, int | None]:
        """The committed offset (the next one to read) of each partition, None where the group has none."""
        asked = [TopicPartition(topic, partition) for topic, partition in spots]
        if not asked:
            return {}

        def ask() -> dict[Spot, int | None]:
            futures = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self.group, asked)],
                require_stable=True,
                request_timeout=client.REQUEST_TIMEOUT_S,
            )
            answers = self._partitions(futures[self.group], "read of the committed offsets")
            return {(at.topic, at.partition): None if at.offset == OFFSET_INVALID else at.offset for at in answers}

        return client.retried(ask)

    def commit(self, offsets: Mapping[Spot, int]) -> None:
        """Set the committed offsets; refused by Kafka while the group has members."""
        if not offsets:
            return

        def ask() -> None:
            wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
            futures = self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self.group, wanted)], request_timeout=client.REQUEST_TIMEOUT_S
            )
            self._partitions(futures[self.group], "commit of offsets")

        client.retried(ask)

    def activity(self) -> str | None:
        """The group's state and members where it has any, None where nobody is in it, or it does not exist."""

        def ask() -> str | None:
            future = self._admin.describe_consumer_groups([self.group], request_timeout=client.REQUEST_TIMEOUT_S)
            try:
                found = future[self.group].result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return None
                raise self._translated(error.args[0], "description", None) from error
            if found.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
                return None
            members = sorted({f"{member.client_id} on {member.host}" for member in found.members})
            return f"{found.state.name.lower()}, {len(found.members)} members: {', '.join(members[:3]) or 'unnamed'}"

        return client.retried(ask)

    def _partitions(self, future: Any, doing: str) -> list[TopicPartition]:
        try:
            answers: list[TopicPartition] = future.result().topic_partitions
        except KafkaException as error:
            raise self._translated(error.args[0], doing, None) from error
        for at in answers:
            if at.error is not None:
                raise self._translated(at.error, doing, at)
        return answers

    def _translated(self, error: KafkaError, doing: str, at: TopicPartition | None) -> KafkaIOError:
        if error.code() in _HAS_MEMBERS:
            return KafkaIOError(f"{doing} of group {self.group!r} refused ({error.name()}): it has members")
        doing = f"{doing} of group {self.group!r}, part"
        return client.translate(error, doing, at.topic if at else "the group", at.partition if at else None)
