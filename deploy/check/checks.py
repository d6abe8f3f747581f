"""What a kind of job gives `teacup check --connect` to look at, beside its topics and its brokers.

Checks that the topics of a job exist, before Spark starts.

A topic for late records or dead letters may be written to for the first time weeks later, and a transaction that meets
a missing topic fails with Kafka's own error: both are bad moments to learn of a mistyped name. So a missing topic is
refused even if the brokers would create topics by themselves, with one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deploy.check.facts import TopicFacts
from deploy.check.findings import Finding
from deploy.errors import TopicsMissing
from deploy.job import CommonJob
from teacup.kafka.errors import TopicMissing
from teacup.kafka.log.broker_log import BrokerLog


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


POSITIONS = "positions for lag tools"
"""What the consumer group of a job's name is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a topic must keep records, and why; must_keep: `on_data_loss: stop`."""

    needed_ms: int
    why: str
    must_keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is checked; each part even if another one has failed.

    content    says what is in the checkpoint; raises if it is another job's, or cannot be read
    retention  by the key of a topic
    records    looks at records of the topics that exist, by their keys; may raise `KafkaIOError` and `JoinError`
    groups     consumer groups: what for, by name
    services   looks at APIs; of the topics that exist, by their keys
    folders    of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    services: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    folders: Mapping[str, Path] = field(default_factory=dict)


class Checkable(Protocol):
    """What is looked at: a job's kind (`deploy.jobs.runner.JobKind`).

    common, kafka   the job, and the librdkafka properties that it reads with
    """

    common: CommonJob
    kafka: Mapping[str, str]

    def topics(self) -> Sequence[Named]:
        """Returns the topics that it reads or writes."""

    def checks(self) -> Checks:
        """Returns what to look at beside the topics."""
