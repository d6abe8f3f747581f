"""The limits of topics that are written to, asked once by each process; and producer properties that respect them.

A producer fills a batch up to `batch.size`, for all its topics alike, and a broker refuses a batch above the topic's
`max.message.bytes`, however small its records: so the smallest limit of its topics caps `batch.size`.

Who may write to a topic need not be allowed to see its configuration. Then Kafka's defaults are taken, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException

from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import KafkaIOError, KafkaUnavailable, TopicMissing
from kafkaio.perprocess import PerProcess
from kafkaio.producible import TopicLimits, limits_from
from kafkaio.writer import MESSAGE_MAX_BYTES, TUNING

log = logging.getLogger("kafkaio.topiclimits")

KAFKAS_DEFAULTS = {"max.message.bytes": "1048588", "message.timestamp.after.max.ms": "3600000"}

Limits = Mapping[str, TopicLimits]


def limits_of(kafka: Mapping[str, str], topics: Iterable[str | None]) -> dict[str, TopicLimits]:
    """The limits of each topic that is named. Raises `KafkaUnavailable`, `TopicMissing`."""
    return {
        topic: _limits.get((topic, frozenset(kafka.items())), lambda topic=topic: _asked(topic, kafka))  # type: ignore[misc]
        for topic in topics
        if topic is not None
    }


def forget_limits(kafka: Mapping[str, str], topics: Iterable[str]) -> None:
    """Ask again the next time, as after a record was refused: the limits may have been changed."""
    for topic in topics:
        _limits.discard((topic, frozenset(kafka.items())))


def within_limits(kafka: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """The properties of a producer whose batches all of these topics take."""
    smallest = min((one.topic_bytes for one in limits.values()), default=TUNING["batch.size"])
    if int(kafka.get("batch.size", TUNING["batch.size"])) <= smallest:
        return dict(kafka)
    return {**kafka, "batch.size": str(smallest)}


def _asked(topic: str, kafka: Mapping[str, str]) -> TopicLimits:
    log_of_topic = BrokerLog(topic, kafka)
    try:
        config = log_of_topic.config()
    except (KafkaUnavailable, TopicMissing):
        raise
    except KafkaIOError as error:
        cause = error.__cause__
        if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        log.warning(
            "the limits of topic %r are not known (%s): Kafka's defaults are assumed, %s. Allow DescribeConfigs on it",
            topic,
            error,
            KAFKAS_DEFAULTS,
        )
        config = KAFKAS_DEFAULTS
    finally:
        log_of_topic.close()
    return limits_from(topic, config, dict(kafka), MESSAGE_MAX_BYTES)


_limits: PerProcess[tuple[str, frozenset[tuple[str, str]]], TopicLimits] = PerProcess(64, lambda limits: None)
