"""The state of a job: one rule for the page, `/v1/job`, `/readyz`, metrics, terminal and `teacup status`. Pure.

    new          it has never run
    starting     Spark is starting, or the brokers are asked for the topics
    standby      it is warmed up and waits for the process that runs the job
    running      it works; `Progress` says how, if it is known how much is left to read
    held         it has started, but something that it needs is missing: its `reason`
    stopping     it was asked to stop and finishes the batch in progress
    restarting   its run has failed, and this process starts it again
    done         it has ended by itself: all was read
    stopped      it has ended because it was asked to
    failed       it has ended in another way, or cannot be started, and stays down
    unknown      it cannot be seen from here whether it runs

`life` takes the first of `_RULES` that applies. `seen_from_outside` does the same for callers that have only the lock
and the record of the last run. What is unknown is reported as unknown, never as zero or well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from deploy.watch.life.moment import JobState, Phase
from joins.plan.wait_reasons import USUAL_MS
from teacup.base.errors import ExitCode
from teacup.base.times import iso

BROKERS, EXECUTORS = "brokers", "executors"
MISSING = frozenset({BROKERS, EXECUTORS})
"""Reasons that keep a job from running at all, so that it is neither ready nor well."""
STARTS_WITHIN_MS = 30_000
"""How long after its time a restart still counts as due. After that it is not expected any more."""
IDLE_MS = 30_000
"""How long after the last record a job counts as idle."""


SPARK_STARTS = "Spark starts, or the brokers are asked for the topics"


class State(StrEnum):
    """The state of a job in a word."""

    NEW = "new"
    STARTING = "starting"
    STANDBY = "standby"
    RUNNING = "running"
    HELD = "held"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Progress(StrEnum):
    """The progress of a running job."""

    LIVE = "live"
    IDLE = "idle"
    CATCHING_UP = "catching up"


@dataclass(frozen=True, slots=True)
class Life:
    """The state of a job, with details.

    reason    what holds it: one of `deploy.watch.measures.HELD_BY`, or empty
    text      details for people, or empty
    since_ms  since when something has held it, if known
    code      the exit code of its last run, if any
    """

    state: State
    reason: str = ""
    text: str = ""
    since_ms: int | None = None
    code: int | None = None

    @property
    def ready(self) -> bool:
        """Whether the job does what it can: the answer to a readiness probe."""
        return self.state in _READY and self.reason not in MISSING

    @property
    def well(self) -> bool:
        """Whether nobody has to act, as far as is known."""
        return self.state not in _UNWELL and self.reason not in MISSING

    @property
    def runs(self) -> bool:
        """Whether the job has claimed its output and runs."""
        return self.state in (State.RUNNING, State.HELD) and self.reason != EXECUTORS

    @property
    def line(self) -> str:
        """State and text in one line, and since when unless the text says so."""
        if not self.text:
            return str(self.state)
        at = "" if self.since_ms is None else iso(self.since_ms)
        since = f"waits since {at}: " if at and at not in self.text else ""
        return f"{self.state}; {since}{' '.join(self.text.split())}"


_READY = frozenset({State.STANDBY, State.RUNNING, State.HELD})
_UNWELL = frozenset({State.NEW, State.RESTARTING, State.STOPPED, State.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a process knows about one of its jobs.

    now          the last state that its run reported, if any
    unreachable  why the brokers did not answer the last request, even of an earlier run; empty if they did
    code         exit code of its last run; None if it has not ended, or there was none
    error        the last error that it logged
    restart_ms   when it will be started again, if at all
    ends         whether it ends by itself, once all is read
    """

    now_ms: int
    now: JobState | None = None
    unreachable: str = ""
    code: int | None = None
    error: str = ""
    restart_ms: int | None = None
    ends: bool = False


def life(facts: JobFacts) -> Life:
    """Returns the state of a job of this process."""
    return next(life for rule in _RULES if (life := rule(facts)) is not None)


def _ended(facts: JobFacts) -> Life | None:
    """Comes first, because the last reported state no longer applies."""
    if facts.code is None:
        return None
    return _after(facts.code, facts.error, facts.restart_ms, ends=facts.ends)


def _stands_by(facts: JobFacts) -> Life | None:
    """A standby needs no brokers while it waits, but without executors it could not take over the job."""
    if facts.now is None or facts.now.phase is not Phase.STANDBY:
        return None
    waits = f"waits for {facts.now.behind}"
    return _without_executors(facts, State.STANDBY, f"{waits}; ") or Life(State.STANDBY, text=waits)


def _starts(facts: JobFacts) -> Life | None:
    if facts.now is not None and facts.now.phase not in (Phase.STARTING, Phase.CONNECTING):
        return None
    return _without_brokers(facts, State.STARTING) or Life(State.STARTING, text=SPARK_STARTS)


def _stops(facts: JobFacts) -> Life | None:
    """Comes before what holds the job, because it reads nothing more once it is asked to stop."""
    if facts.now is None or facts.now.phase is not Phase.STOPPING:
        return None
    return Life(State.STOPPING, text="the batch in progress is finished first")


def _waits(facts: JobFacts) -> Life | None:
    """Applies only to longer waits than usual, because a join waits a little between batches.

    Without brokers or executors, what the plan waits for is outdated.
    """
    if held := _without_brokers(facts, State.HELD) or _without_executors(facts, State.HELD):
        return held
    waiting = None if facts.now is None else facts.now.waiting
    if waiting is None or facts.now_ms - waiting.since_ms < usual_ms(waiting.reason):
        return None
    return Life(State.HELD, waiting.reason, waiting.text, waiting.since_ms)


def _runs(facts: JobFacts) -> Life:
    now = facts.now
    if now is not None and now.waiting is not None:
        return Life(State.RUNNING, now.waiting.reason, now.waiting.text, now.waiting.since_ms)
    if now is not None and now.lag is None:
        return Life(State.RUNNING, text="how much is left to read is not known")
    return Life(State.RUNNING)


_RULES: tuple[Callable[[JobFacts], Life | None], ...] = (*(_ended, _stands_by, _starts, _stops, _waits, _runs),)


def _without_brokers(facts: JobFacts, state: State) -> Life | None:
    if not facts.unreachable:
        return None
    return Life(state, BROKERS, f"the brokers do not answer: {facts.unreachable}")


def _without_executors(facts: JobFacts, state: State, says: str = "") -> Life | None:
    since_ms = None if facts.now is None else facts.now.no_executor_since_ms
    if since_ms is None:
        return None
    text = f"{says}no executor since {iso(since_ms)}: Spark's master gives this job none"
    return Life(state, EXECUTORS, text, since_ms)


def usual_ms(reason: str) -> float:
    """Returns how long a job may wait for this reason before it counts as held."""
    causes = {str(cause).replace(" ", "_"): ms for cause, ms in USUAL_MS.items()}
    return causes.get(reason, 0)


def progress(left: int, allowed: float, quiet_ms: int, *, full: bool) -> Progress:
    """Returns the progress of a running job.

    left      records left to read
    allowed   the most records left before it counts as catching up
    quiet_ms  time since it last read a record
    full      whether its last batch was about as large as allowed
    """
    if left > allowed or (left and full):
        return Progress.CATCHING_UP
    return Progress.IDLE if quiet_ms >= IDLE_MS else Progress.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """What the record of a run says (`deploy.checkpoint.run_record`).

    life        the last state that was recorded, if any
    code        exit code; None if the run has not ended
    error       the last error that it logged
    restart_ms  when its process meant to start the job again, if at all
    """

    life: Life | None = None
    code: int | None = None
    error: str = ""
    restart_ms: int | None = None


def seen_from_outside(
    record: RecordedRun | None, *, held: bool | None, has_batch: bool, ends: bool, now_ms: int
) -> Life:
    """Returns the state of a job that runs in another process, if at all.

    record     the record of its last run, if any
    held       whether a process holds the lock of its checkpoint; None if that cannot be seen
    has_batch  whether a batch was committed
    ends       as in `JobFacts`
    """
    if held:
        begun = record is not None and record.code is None  # otherwise the record is still that of the previous run
        return record.life if record is not None and begun and record.life else Life(State.STARTING, text=SPARK_STARTS)
    if record is None:
        if held is None:
            return Life(State.UNKNOWN)
        return Life(State.STOPPED if has_batch else State.NEW)
    if record.code is None:
        if held is None:
            return Life(State.UNKNOWN)
        return Life(State.FAILED, text="it was killed, or its machine went down")
    restart_ms = record.restart_ms
    due = restart_ms is not None and now_ms < restart_ms + STARTS_WITHIN_MS
    return _after(record.code, record.error, restart_ms if due else None, ends=ends)


def _after(code: int, error: str, restart_ms: int | None, *, ends: bool) -> Life:
    """Returns the state of a job whose run has ended."""
    if code == ExitCode.DONE:
        return Life(State.DONE if ends else State.STOPPED, code=code)
    if code == ExitCode.STOPPED:
        return Life(State.STOPPED, text="before all was read: start it again", code=code)
    meaning = next((each.meaning for each in ExitCode if each == code), "")
    text = f"exit code {code}: {error or meaning}"
    if restart_ms is None:
        return Life(State.FAILED, text=text, code=code)
    return Life(State.RESTARTING, text=f"is started again at {iso(restart_ms)}; {text}", code=code)


def all_ready(lives: list[Life], *, was_ready: bool) -> bool:
    """Returns whether a process with many jobs does what it can: one ready job is enough once all had their chance.

    When the process starts, it waits for each job, except those that lack something or have failed.
    """
    starts = any(each.state is State.STARTING and not each.reason for each in lives)
    return any(each.ready for each in lives) and (was_ready or not starts)
