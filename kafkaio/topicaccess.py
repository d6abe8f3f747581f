"""Topics as the brokers describe them to this user: partitions, and what the user may do. Nothing is changed.

Without an authorizer at the brokers everything is allowed; brokers that do not say give None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kafkaio import client
from kafkaio.errors import KafkaIOError

ANSWERED_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Described:
    """A topic. operations: lower-case names of ACL operations ("read", "describe_configs"); None: not known."""

    partitions: int
    operations: frozenset[str] | None


def describe(kafka: Mapping[str, str], topics: Sequence[str]) -> dict[str, Described | KafkaIOError]:
    """Describes each topic, or returns the error that says why it cannot. One attempt, of at most ten seconds."""
    troubles: list[KafkaError] = []
    admin = client.admin(kafka, troubles.append)
    futures = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=ANSWERED_WITHIN_S
    )
    found: dict[str, Described | KafkaIOError] = {}
    for topic, future in futures.items():
        try:
            described = future.result()
        except KafkaException as error:
            admin.poll(0)
            found[topic] = client.translate(error.args[0], "look-up", topic, None, troubles[-1] if troubles else None)
        else:
            found[topic] = Described(len(described.partitions), _names(described.authorized_operations))
    return found


def _names(operations: Sequence[Any] | None) -> frozenset[str] | None:
    names = frozenset(operation.name.lower() for operation in operations or ())
    return names or None
