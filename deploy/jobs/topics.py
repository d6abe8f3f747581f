"""Checks that the topics of a job exist, before Spark starts.

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from deploy.jobs.job import JoinJob
from joins.flavour import flavour_of
from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import KafkaIOError, TopicMissing

_SIDE_OUTPUTS = ("dead_letter", "late", "unmatched", "unjoined")


class TopicsMissing(KafkaIOError):
    """Topics that the job file names do not exist; the message lists them all, each with its key."""


def check_topics(job: JoinJob) -> None:
    """Before anything is claimed. Raises `TopicsMissing`, `NotCoPartitioned`, `KafkaUnavailable`."""
    read, written = job.spec.kafka, {**job.spec.kafka, **job.output.kafka}
    asked: list[tuple[str, str, Mapping[str, str]]] = [("left.topic", job.spec.left.topic, read)]
    if "right" in flavour_of(job.spec).inputs:  # the feeder reads the right topic of a lookup join
        asked.append(("right.topic", job.spec.right.topic, read))
    asked.append(("output.topic", job.output.topic, written))
    asked += [(f"topics.{name}", topic, written) for name in _SIDE_OUTPUTS if (topic := getattr(job.output, name))]
    with ThreadPoolExecutor(len(asked)) as pool:
        found = dict(pool.map(_partitions, asked))
    missing = [f"{key}: {error}" for key, error in found.items() if isinstance(error, TopicMissing)]
    if missing:
        raise TopicsMissing("; ".join(missing))


def _partitions(asked: tuple[str, str, Mapping[str, str]]) -> tuple[str, int | TopicMissing]:
    key, topic, kafka = asked
    log = BrokerLog(topic, kafka)
    try:
        return key, log.partition_count()
    except TopicMissing as error:
        return key, error
    finally:
        log.close()
