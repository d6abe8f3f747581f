"""What a kind of job names outside of its file, for whoever looks at it before it runs.

Named      a topic; Retention: how long it must keep records; Checks: everything else
Checkable  whatever has them: a kind of job
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deploy.check.findings import Finding, TopicFacts
from deploy.job import CommonJob
from teacup.kafka.delivery.fencing import OutputBucket

POSITIONS = "positions for lag tools"
"""What the consumer group of a job's name is for."""


@dataclass(frozen=True, slots=True)
class Named:
    """A topic that a job file names. key: where; kafka: the properties to reach it.

    also_read   one that is written is read as well, or transactions commit offsets of it, for which Kafka asks the same
    """

    key: str
    topic: str
    kafka: Mapping[str, str]
    written: bool = False
    also_read: bool = False

    @property
    def operations(self) -> tuple[str, ...]:
        """Returns what the user must be allowed to do with it, as `kafka-acls` spells it."""
        if not self.written:
            return ("Read", "DescribeConfigs")
        return ("Read", "Write", "DescribeConfigs") if self.also_read else ("Write", "DescribeConfigs")


def side_outputs(topics: Mapping[str, str | None], kafka: Mapping[str, str], *, also_read: bool = False) -> list[Named]:
    """Returns the topics of the side outputs that have one. topics: by the name of their key."""
    return [
        Named(f"topics.{name}", topic, kafka, written=True, also_read=also_read)
        for name, topic in topics.items()
        if topic
    ]


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
    delivers   to which topic it delivers in transactions: the first bucket; None: without transactions
    services   looks at APIs; of the topics that exist, by their keys
    folders    of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    delivers: OutputBucket | None = None
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
