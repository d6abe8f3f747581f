"""Checks that the topics of a job exist, before Spark starts.

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deploy.errors import TopicsMissing
from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import TopicMissing


@dataclass(frozen=True, slots=True)
class Named:
    """A topic that a job file names. key: where; kafka: the properties to reach it."""

    key: str
    topic: str
    kafka: Mapping[str, str]
    written: bool = False


def side_outputs(topics: Mapping[str, str | None], kafka: Mapping[str, str]) -> list[Named]:
    """Returns the topics of the side outputs that have one. topics: by the name of their key."""
    return [Named(f"topics.{name}", topic, kafka, written=True) for name, topic in topics.items() if topic]


def check_topics(asked: Sequence[Named]) -> None:
    """Checks that topics exist, before anything is claimed. Raises `TopicsMissing`, `KafkaUnavailable`."""
    with ThreadPoolExecutor(len(asked)) as pool:
        found = dict(zip([topic.key for topic in asked], pool.map(_partitions, asked), strict=True))
    missing = [f"{key}: {error}" for key, error in found.items() if isinstance(error, TopicMissing)]
    if missing:
        raise TopicsMissing("; ".join(missing))


def _partitions(asked: Named) -> int | TopicMissing:
    log = BrokerLog(asked.topic, asked.kafka)
    try:
        return log.partition_count()
    except TopicMissing as error:
        return error
    finally:
        log.close()
