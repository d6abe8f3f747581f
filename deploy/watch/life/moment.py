"""How a run is at a moment: what the runner tells a few times a second. Plain data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """How far a run has come."""

    STARTING = "starting"
    CONNECTING = "connecting"
    STANDBY = "standby"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """Why nothing may be read now, although there is something to read.

    reason   one of `deploy.watch.measures.REASONS_TO_WAIT`
    since_ms wall clock
    text     for people: who holds the job, and what helps
    """

    reason: str
    since_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What is left to read, at a look at the topics.

    records       by topic
    through_in_s  how long reading it all will take; None: unknown, or it does not become less
    """

    at_ms: int
    records: Mapping[str, int]
    through_in_s: float | None = None

    @property
    def total(self) -> int:
        return sum(self.records.values())


@dataclass(frozen=True, slots=True)
class Failures:
    """Attempts at tasks that failed alike, and are tried again. count: how many; text: of the newest."""

    count: int
    text: str

    def __str__(self) -> str:
        what = "an attempt at a task has" if self.count == 1 else f"{self.count} attempts at tasks have"
        return f"{what} failed, Spark tries again: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a job is now.

    waiting      what its plan waits for; None: it does not wait
    lag          None: not known (yet)
    unreachable  why the brokers do not answer; empty: they do, or nobody has asked them yet
    answered     whether they answered when they were asked last, in this run
    waited_s     for how long the run has waited so far, by reason
    plan_s       how long the plan of the newest batch took; `moment` is called right before `batch`
    behind       of a standby: which process it waits for
    failures     since the moment before
    executors    how many Spark has for it; None: not known (yet)
    no_executor_since_ms   since when it needs executors and has none
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
