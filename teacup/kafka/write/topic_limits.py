"""The limits of output topics, asked once by each process, and producer properties that respect them.

A producer fills a batch up to `batch.size`, the same for all its topics, and a broker refuses a batch above the topic's
`max.message.bytes`, however small its records are. So the smallest limit of its topics caps `batch.size`.

The producer's queue should hold two full batches for each partition: if it is full before any batch is, only partly
filled ones can be sent, and nothing is sent while it fills again. So more partitions mean smaller batches, not more
memory.

A user who may write to a topic may still not be allowed to see its configuration. Then Kafka's defaults are used, and
a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from teacup.base.process import PerProcess
from teacup.kafka import client
from teacup.kafka.records.limits import TopicLimits, limits_from
from teacup.kafka.write.writer import MESSAGE_MAX_BYTES, TUNING

log = logging.getLogger("teacup.kafka.write.topic_limits")

_LEAST_BATCH_ROWS, _LEAST_BATCH_BYTES = 100, 16_384
_REMEMBERED = 64  # sets of topics
_ANSWERED_WITHIN_S = 5.0  # then another client asks again

KAFKAS_DEFAULTS: dict[str, str] = {"max.message.bytes": "1048588", "message.timestamp.after.max.ms": "3600000"}

Limits = Mapping[str, TopicLimits]


def limits_of(kafka: Mapping[str, str], topics: Iterable[str | None]) -> Limits:
    """Returns the limits of each topic that is not None. Raises `KafkaUnavailable`, `TopicMissing`."""
    named = frozenset(topic for topic in topics if topic is not None)
    return _limits.get((named, frozenset(kafka.items())), lambda: _asked(named, kafka))


def forget_limits(kafka: Mapping[str, str], topics: Iterable[str]) -> None:
    """Asks again next time, as after a refused record, since the limits of these topics may have changed."""
    _limits.discard((frozenset(topics), frozenset(kafka.items())))


def within_limits(kafka: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """Returns properties for a producer whose batches all these topics accept, and whose queue holds enough of them."""
    given = {name: int(kafka.get(name, most)) for name, most in TUNING.items()}
    batches = 2 * max((topic.partitions for topic in limits.values()), default=1)
    room = {
        "batch.size": max(given["queue.buffering.max.kbytes"] * 1024 // batches, _LEAST_BATCH_BYTES),
        "batch.num.messages": max(given["queue.buffering.max.messages"] // batches, _LEAST_BATCH_ROWS),
    }
    sized = {name: min(most, given[name]) if name not in kafka else given[name] for name, most in room.items()}
    sized["batch.size"] = min([sized["batch.size"], *(topic.topic_bytes for topic in limits.values())])
    return {**kafka, **{name: str(value) for name, value in sized.items() if value < given[name]}}


def _asked(topics: frozenset[str], kafka: Mapping[str, str]) -> Limits:
    """Asks for all topics at once, because each admin client has to connect first."""

    def ask() -> dict[str, tuple[dict[str, str], int]]:
        admin = client.admin(kafka)
        client.learn(admin, min(topics), client.LEARN_TIMEOUT_S)  # otherwise the first call waits for a second
        asked = client.topic_configs(admin, sorted(topics), _ANSWERED_WITHIN_S)
        return {topic: (_config(topic, answer), _partitions(admin, topic)) for topic, answer in asked.items()}

    configs = client.retried(ask, kafka) if topics else {}
    return {
        topic: limits_from(topic, config, dict(kafka), MESSAGE_MAX_BYTES, partitions)
        for topic, (config, partitions) in configs.items()
    }


def _partitions(admin: Any, topic: str) -> int:
    try:
        return max(len(admin.list_topics(topic, client.LEARN_TIMEOUT_S).topics[topic].partitions), 1)
    except KafkaException as error:
        raise client.translate(error.args[0], "look-up of the partitions", topic) from error


def _config(topic: str, future: Any) -> dict[str, str]:
    try:
        return {name: entry.value for name, entry in future.result().items()}
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise client.translate(cause, "look-up of the limits", topic) from error
        log.warning(
            "the limits of topic %r are not known, as DescribeConfigs on it is not allowed: Kafka's defaults are "
            "assumed, %s",
            topic,
            KAFKAS_DEFAULTS,
        )
        return KAFKAS_DEFAULTS


_limits: PerProcess[tuple[frozenset[str], frozenset[tuple[str, str]]], Limits] = PerProcess(_REMEMBERED)
