"""The state of a run at a moment, as the runner reports it a few times a second. Plain data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """The phase of a run."""

    STARTING = "starting"
    CONNECTING = "connecting"
    STANDBY = "standby"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """Why nothing may be read now, although there is something to read.

    reason    one of `deploy.watch.measures.REASONS_TO_WAIT`
    since_ms  wall clock
    text      for people: what holds the job, and what to do about it
    """

    reason: str
    since_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What is left to read.

    at_ms         when the topics were looked at
    records       unread records by topic
    through_in_s  how long reading them all will take; None if unknown, or if they do not become fewer
    partitions    unread records by topic and partition
    """

    at_ms: int
    records: Mapping[str, int]
    through_in_s: float | None = None
    partitions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.records.values())


@dataclass(frozen=True, slots=True)
class Failures:
    """`count` task attempts that failed in the same way and are retried; `text` is the newest error."""

    count: int
    text: str

    def __str__(self) -> str:
        what = "an attempt at a task has" if self.count == 1 else f"{self.count} attempts at tasks have"
        return f"{what} failed, Spark tries again: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job now.

    waiting      what its plan waits for, if anything
    lag          None if not known (yet)
    unreachable  why the brokers do not answer; empty if they do, or have not been asked yet
    answered     whether the brokers answered the last request in this run
    waited_s     how long the run has waited so far, by reason
    plan_s       how long planning the newest batch took; `moment` is called right before `batch`
    behind       the process that a standby waits for
    failures     failures since the previous moment
    executors    how many executors Spark has for the job; None if not known (yet)
    no_executor_since_ms   since when the job has needed executors without having any
    """

    at_ms: int
    phase: Phase
    waiting: WaitingFor | None = None
    lag: TopicLag | None = None
    unreachable: str = ""
    answered: bool = False
    waited_s: Mapping[str, float] = field(default_factory=dict)
    plan_s: float = 0.0
    behind: str = ""
    failures: Sequence[Failures] = ()
    executors: int | None = None
    no_executor_since_ms: int | None = None

    @property
    def stuck(self) -> str:
        """Why no batch can end now; empty if nothing is known to prevent it."""
        if self.executors == 0:
            return "Spark has no executor for the job"
        return "the brokers do not answer" if self.unreachable else ""
