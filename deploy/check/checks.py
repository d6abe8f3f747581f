"""What a kind of job depends on outside of its file, to be checked before it runs.

Retention  how long a topic must keep records
Checks     everything except the topics (`deploy.check.uses`)
Checkable  a kind of job, which provides them
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
"""The purpose of the consumer group with the job's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a topic must keep records, and why. `must_keep` is set by `on_data_loss: stop`."""

    needed_ms: int
    why: str
    must_keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What to check. Each part is checked even if another one has failed.

    content    says what is in the checkpoint; raises if it is another job's or cannot be read
    retention  by the key of a topic
    records    checks records of the existing topics (by key); may raise `KafkaIOError` and `JoinError`
    groups     the purposes of consumer groups, by name
    delivers   the first bucket that the job delivers to, with its properties; None if it uses no transactions
    services   checks APIs, given the existing topics (by key)
    folders    folders of this machine, by key
    """

    content: Callable[[], str]
    retention: Mapping[str, Retention] = field(default_factory=dict)
    records: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    groups: Mapping[str, str] = field(default_factory=dict)
    delivers: tuple[OutputBucket, Mapping[str, str]] | None = None
    services: Callable[[Mapping[str, TopicFacts]], Iterable[Finding]] = lambda topics: ()
    folders: Mapping[str, Path] = field(default_factory=dict)


class Checkable(Protocol):
    """A kind of job (`deploy.kinds.job_kind.JobKind`), as far as checks need it.

    common, kafka   the job, and the librdkafka properties that it reads with
    """

    common: CommonJob
    kafka: Mapping[str, str]

    def topics(self) -> Sequence[Named]:
        """Returns the topics that the job reads or writes."""

    def checks(self) -> Checks:
        """Returns what to check besides the topics."""
