"""Checks that the topics of a job exist, before Spark starts.

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deploy.errors import TopicsMissing
from deploy.jobs.job import DedupJob, FeederJob, JoinJob
from joins.flavour import flavour_of
from kafkaio.brokerlog import BrokerLog
from kafkaio.errors import TopicMissing

_SIDE_OUTPUTS = ("dead_letter", "late", "unmatched", "unjoined")


@dataclass(frozen=True, slots=True)
class Named:
    """A topic that a job file names. key: where; kafka: the properties that it is reached with."""

    key: str
    topic: str
    kafka: Mapping[str, str]
    written: bool = False


def named_by(job: JoinJob | FeederJob | DedupJob) -> list[Named]:
    """The topics that a job reads or writes."""
    if isinstance(job, DedupJob):
        output = Named("output.topic", job.output, {**job.kafka, **job.producer}, written=True)
        return [Named("source.topic", job.source, job.kafka), output]
    if isinstance(job, FeederJob):
        found, written = [Named("right.topic", job.spec.right.topic, job.spec.kafka)], job.spec.kafka
        return found + _side_outputs({"dead_letter": job.spec.dead_letter}, written)
    written = {**job.spec.kafka, **job.output.kafka}
    # The feeder reads the right topic of a lookup join.
    found = [Named(f"{side}.topic", job.spec.side(side).topic, job.spec.kafka) for side in flavour_of(job.spec).inputs]
    found.append(Named("output.topic", job.output.topic, written, written=True))
    return found + _side_outputs({name: getattr(job.output, name) for name in _SIDE_OUTPUTS}, written)


def _side_outputs(topics: Mapping[str, str | None], kafka: Mapping[str, str]) -> list[Named]:
    return [Named(f"topics.{name}", topic, kafka, written=True) for name, topic in topics.items() if topic]


def check_topics(job: JoinJob | FeederJob) -> None:
    """Before anything is claimed. Raises `TopicsMissing`, `NotCoPartitioned`, `KafkaUnavailable`."""
    asked = named_by(job)
    with ThreadPoolExecutor(len(asked)) as pool:
        found = dict(zip([one.key for one in asked], pool.map(_partitions, asked), strict=True))
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
