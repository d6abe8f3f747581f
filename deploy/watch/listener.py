"""What a running job tells, and who listens.

    runner (deploy.jobs.runner)  ->  Listeners  ->  Lines      what people and machines read on standard output
                                                    Metrics    numbers for Prometheus, and whether the job lives
                                                    ...        whatever is added: a listener touches no job

There is one source of numbers: the report of a batch (`Report`), which the kind of job makes of what its tasks count,
and a `JobState` a few times a second: what the job waits for, and how much is left to read. A listener that fails is
logged once and called again; it never harms the job. All methods are called by the runner's threads, one at a time, and
must return at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deploy.watch.concerns import Concern, Concerns, Told
from deploy.watch.life.moment import Failures, JobState
from deploy.watch.measures import Measured
from teacup.base.errors import ExitCode
from teacup.base.logs import without_numbers
from teacup.base.now import wall_ms

log = logging.getLogger("teacup")


class Report(Protocol):
    """One batch, as a job reports it."""

    @property
    def records(self) -> int:
        """How many records it read."""
        ...

    @property
    def seconds(self) -> float:
        """How long it took, from its plan to its last summary."""
        ...

    @property
    def concerns(self) -> Sequence[Concern]:
        """What the operator should do something about, in each batch that has it."""
        ...

    def usual(self) -> Sequence[str]:
        """Returns what matters of every batch, most important first, as text."""
        ...

    def rare(self) -> Sequence[str]:
        """Returns what happened that does not happen in most batches."""
        ...

    def for_machines(self) -> dict[str, Any]:
        """Returns all of it; times in milliseconds, unknown ones null."""
        ...

    def samples(self) -> Iterable[Measured]:
        """Returns its numbers as metrics (`deploy.watch.measures`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What does not change while a job runs.

    does      in one line, for people
    sides     what each topic that is read is to the job: `left`, `right`, `source`
    ends      whether it ends by itself, once it has read what was there

    The others are empty unless a listener wants detail:

    zeros     counters before the first batch: one that appears with its first count would hide that count from a rate
    settings  what whoever looks at the job wants to know of its job file (`JobKind.settings`)
    writes    what each topic that is written is to it: `output`, `topics.late`
    brokers   the bootstrap servers
    fields    what is known of the records of topics: by topic, the names of fields and their types
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


class Listener(Protocol):
    """Somebody who follows what a job does. `Quiet` has all methods, and does nothing."""

    @property
    def watches(self) -> bool:
        """Whether it looks at moments. Only for somebody who does is the lag looked up, and what a plan waits for."""
        ...

    @property
    def wants_detail(self) -> bool:
        """Whether it uses more of `About` than what the job is called and does, and its inputs."""
        ...

    def opening(self, about: About) -> None:
        """Takes what does not change; called once, first."""

    def moment(self, now: JobState) -> None:
        """Takes how the job is; called a few times a second from then on, unless a call of ours hangs."""

    def told(self, told: Told) -> None:
        """Takes what is said of concerns: right before each `moment`, `batch` and `ended`."""

    def batch(self, report: Report) -> None:
        """Takes one batch that was carried out; Spark commits it next."""

    def ended(self, code: ExitCode) -> None:
        """Takes how the run has ended; called once, last."""


class Quiet:
    """A listener that does nothing: others override what they need."""

    watches = True
    wants_detail = True

    def opening(self, about: About) -> None:
        pass

    def moment(self, now: JobState) -> None:
        pass

    def told(self, told: Told) -> None:
        pass

    def batch(self, report: Report) -> None:
        pass

    def ended(self, code: ExitCode) -> None:
        pass


class Listeners:
    """Tells several listeners, one after the other. One that fails is logged once, and harms neither job nor others."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners, self._failed = listeners, set[int]()
        self._one_at_a_time = threading.RLock()  # batches come from a thread of Spark's

    @property
    def watches(self) -> bool:
        return any(listener.watches for listener in self._listeners)

    @property
    def wants_detail(self) -> bool:
        return any(listener.wants_detail for listener in self._listeners)

    def opening(self, about: About) -> None:
        self._tell("opening", about)

    def moment(self, now: JobState) -> None:
        self._tell("moment", now)

    def told(self, told: Told) -> None:
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
    """All who listen to a job: its concerns are said once for all of them, and to the log (`deploy.watch.concerns`)."""

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
    """Returns what there is to say of failed attempts: texts that differ in numbers only are the same."""
    return Concern(f"attempts: {without_numbers(failures.text)}", failures.count, str(failures))


def _log(told: Told) -> None:
    for warning in told.warnings:
        log.warning("%s", warning)
    for over in told.over:
        log.info("%s", over)
