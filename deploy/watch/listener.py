"""What a running job reports, and to whom.

    runner (deploy.jobs.runner)  ->  Listeners  ->  Lines      what people and machines read on standard output
                                                    Metrics    numbers for Prometheus, and whether the job is alive
                                                    ...        more can be added without changing a job

All numbers come from one source: the report of a batch (`Report`), which the kind of job makes from its tasks' counts,
and a `JobState` a few times a second, with what the job waits for and how much is left to read. If a listener fails,
this is logged once, and it is called again; it never harms the job. All methods are called by the runner's threads, one
at a time, and must return at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deploy.watch.concerns import Concern, ConcernNews, Concerns
from deploy.watch.life.moment import Failures, JobState
from deploy.watch.measures import Measured
from teacup.base.errors import ExitCode
from teacup.base.logs import without_numbers
from teacup.base.now import wall_ms

log = logging.getLogger("teacup")


class Report(Protocol):
    """A job's report of one batch."""

    @property
    def records(self) -> int:
        """The number of records read."""
        ...

    @property
    def seconds(self) -> float:
        """How long the batch took, from its plan to its last summary."""
        ...

    @property
    def concerns(self) -> Sequence[Concern]:
        """What the operator should act on; repeated in each batch that has it."""
        ...

    def usual(self) -> Sequence[str]:
        """Returns texts with the essentials that every batch has, most important first."""
        ...

    def rare(self) -> Sequence[str]:
        """Returns texts about what most batches do not have."""
        ...

    def for_machines(self) -> dict[str, Any]:
        """Returns the complete report, with times in milliseconds, null if unknown."""
        ...

    def samples(self) -> Iterable[Measured]:
        """Returns the numbers as metrics (`deploy.watch.measures`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """What does not change while a job runs.

    does      what the job does, in one line for people
    sides     the role of each topic that the job reads: `left`, `right`, `source`
    ends      whether the job ends by itself, once it has read what was there

    The others are empty unless a listener wants detail:

    zeros     counters before the first batch; a counter that first appears with a count would hide it from rates
    settings  the settings of the job file that are worth showing (`JobKind.settings`)
    writes    the role of each topic that the job writes: `output`, `topics.late`
    brokers   the bootstrap servers
    fields    by topic, the known fields of its records: names and types
    """

    name: str
    kind: str
    does: str
    version: str = ""
    sides: Mapping[str, str] = field(default_factory=dict)
    ends: bool = False
    zeros: Sequence[Measured] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)
    brokers: str = ""
    fields: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class Listener:
    """Follows what a job does. Does nothing itself: others override what they need.

    watches        whether it uses `moment`. If no listener does, the lag and what a plan waits for are not looked up
    wants_detail   whether it uses more of `JobDescription` than the job's name, what it does, and its inputs
    """

    watches: bool = True
    wants_detail: bool = True

    def opening(self, description: JobDescription) -> None:
        """Takes what does not change. Called once, first."""

    def moment(self, now: JobState) -> None:
        """Takes the state of the job. Called a few times a second from then on, unless one of our own calls hangs."""

    def told(self, told: ConcernNews) -> None:
        """Takes the news about concerns. Called right before each `moment`, `batch` and `ended`."""

    def batch(self, report: Report) -> None:
        """Takes the report of a completed batch, which is committed next."""

    def ended(self, code: ExitCode) -> None:
        """Takes how the run has ended. Called once, last."""


class Listeners(Listener):
    """Calls several listeners in turn. One that fails is logged once, and harms neither the job nor the others."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners, self._failed = listeners, set[int]()
        self.watches = any(listener.watches for listener in listeners)
        self.wants_detail = any(listener.wants_detail for listener in listeners)
        self._one_at_a_time = threading.RLock()  # batches come from the loop's thread

    def opening(self, description: JobDescription) -> None:
        self._tell("opening", description)

    def moment(self, now: JobState) -> None:
        self._tell("moment", now)

    def told(self, told: ConcernNews) -> None:
        self._tell("told", told)

    def batch(self, report: Report) -> None:
        self._tell("batch", report)

    def ended(self, code: ExitCode) -> None:
        self._tell("ended", code)

    def _tell(self, what: str, content: object) -> None:
        with self._one_at_a_time:
            for listener in self._listeners:
                try:
                    getattr(listener, what)(content)
                except Exception as error:
                    if id(listener) not in self._failed:
                        self._failed.add(id(listener))
                        log.warning(
                            "%s cannot take what the job reports; the job goes on: %s: %s",
                            *(type(listener).__name__, type(error).__name__, error),
                            exc_info=error,
                        )


class JobListeners(Listeners):
    """All listeners of a job. Its concerns are followed once for all of them and logged (`deploy.watch.concerns`)."""

    def __init__(self, *listeners: Listener, clock_ms: Callable[[], int] = wall_ms) -> None:
        super().__init__(*listeners)
        self._concerns, self._clock_ms = Concerns(), clock_ms

    def moment(self, now: JobState) -> None:
        with self._one_at_a_time:
            told = self._concerns.take(map(_concern, now.failures), self._clock_ms())
            self.told(told)
            super().moment(now)
        _log(told)

    def batch(self, report: Report) -> None:
        with self._one_at_a_time:
            told = self._concerns.take(report.concerns, self._clock_ms())
            self.told(told)
            super().batch(report)
        _log(told)

    def ended(self, code: ExitCode) -> None:
        with self._one_at_a_time:
            told = self._concerns.end()
            self.told(told)
        _log(told)
        super().ended(code)


def _concern(failures: Failures) -> Concern:
    """Returns the concern about failed attempts. Texts that differ only in numbers count as the same."""
    return Concern(f"attempts: {without_numbers(failures.text)}", failures.count, str(failures))


def _log(told: ConcernNews) -> None:
    for warning in told.warnings:
        log.warning("%s", warning)
    for over in told.over:
        log.info("%s", over)
