"""What a kind of job names outside of its file, for whoever looks at it before it runs.

Retention  how long a topic must keep records; Checks: everything but the topics (`deploy.check.uses`)
Checkable  whatever has them: a kind of job
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deploy.check.findings import Finding, TopicFacts
from deploy.check.uses import Named
from deploy.jobfile.job import CommonJob
from teacup.kafka.delivery.fencing import OutputBucket

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
    delivers   the first bucket of those it delivers to in transactions, and the properties; None: without transactions
    services   looks at APIs; of the topics that exist, by their keys
    folders    of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    delivers: tuple[OutputBucket, Mapping[str, str]] | None = None
    services: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    folders: Mapping[str, Path] = field(default_factory=dict)


class Checkable(Protocol):
    """What is looked at: a job's kind (`deploy.kinds.job_kind.JobKind`).

    common, kafka   the job, and the librdkafka properties that it reads with
    """

    common: CommonJob
    kafka: Mapping[str, str]

    def topics(self) -> Sequence[Named]:
        """Returns the topics that it reads or writes."""

    def checks(self) -> Checks:
        """Returns what to look at beside the topics."""
