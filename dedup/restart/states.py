"""When the deduplicator filters: its two states, and why it changes from one to the other. Pure.

    off --------> filtering   a batch that an earlier driver may have run (`driver_restart`), a task that was tried
                              before (`task_attempt`)
    filtering --> off         the replay range has passed, and no duplicate came during the quiet period (`quiet`)

The replay range ends with the batch that is rerun. What is delivered in it is seen. Rows of later batches are not a
replay: they are compared with what is seen, and add nothing to it.

Each task of a batch is checked once. A task that was tried before needs what the earlier attempt wrote, perhaps a
moment ago: the output is loaded again (its new part), even while filtering.

What deduplicators report of a batch. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from dedup.replay_range import ReplayRange


class FilterState(StrEnum):
    """Whether rows are compared with what is in the output."""

    OFF = "off"
    FILTERING = "filtering"


class Reason(StrEnum):
    """Why the state changed: the driver restarted, a task was retried, or no duplicate came for a while."""

    DRIVER_RESTART = "driver_restart"
    TASK_ATTEMPT = "task_attempt"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one task; attempts count from 0."""

    batch: int
    task: int = 0


@dataclass(frozen=True, slots=True)
class FilterChange:
    """A change of state; loaded, dropped and without_id (rows let through) are counts since filtering began."""

    at_ms: int
    state: FilterState
    reason: Reason
    batch: int
    loaded: int = 0
    dropped: int = 0
    without_id: int = 0

    def to_json(self, name: str) -> dict[str, object]:
        """Returns a log line's content; `name` is the job's, as one log may hold those of several."""
        return {
            "event": "deduplicator",
            "name": name,
            "at_ms": self.at_ms,
            "state": str(self.state),
            "reason": str(self.reason),
            "batch": self.batch,
            "loaded": self.loaded,
            "dropped": self.dropped,
            "without_id": self.without_id,
        }


class Switch:
    """The state of one worker process's deduplicator."""

    def __init__(self, replay: ReplayRange, quiet_ms: int) -> None:
        self.state = FilterState.OFF
        self.changes: list[FilterChange] = []
        self.loaded = self.dropped = self.without_id = 0
        self._replay = replay
        self._quiet_ms = quiet_ms
        self._met_restart = False
        self._until_batch = -1
        self._quiet_since_ms = 0

    def reason(self, attempt: Attempt) -> Reason | None:
        """Returns why this attempt needs the output loaded; None if it does not."""
        if attempt.task:
            return Reason.TASK_ATTEMPT
        if not self._met_restart and self._replay.covers(attempt.batch):
            return Reason.DRIVER_RESTART
        return None

    def in_range(self, batch: int) -> bool:
        """Returns whether rows of this batch may be a replay."""
        return batch <= self._until_batch

    def begin(self, attempt: Attempt, now_ms: int) -> Reason | None:
        """Begins an attempt. Returns why the output has to be loaded before it; None if it does not."""
        reason = self.reason(attempt)
        if reason is None:
            self._rest(attempt.batch, now_ms)
            return None
        self._met_restart = self._met_restart or self._replay.covers(attempt.batch)
        last = self._replay.last_batch if self._replay.covers(attempt.batch) else None
        self._until_batch = max(self._until_batch, attempt.batch, -1 if last is None else last)
        self._quiet_since_ms = now_ms
        if self.state is FilterState.OFF:
            self.state = FilterState.FILTERING
            self.loaded = self.dropped = self.without_id = 0
            self._changed(reason, attempt.batch, now_ms)
        return reason

    def count_loaded(self, ids: int, now_ms: int) -> None:
        """Counts ids that were read back from the output."""
        self.loaded += ids
        self._quiet_since_ms = now_ms  # no duplicate could come while loading

    def count_rows(self, dropped: int, without_id: int, now_ms: int) -> None:
        """Counts rows that were dropped, and rows that were let through without an id."""
        self.dropped += dropped
        self.without_id += without_id
        if dropped:
            self._quiet_since_ms = now_ms

    def _rest(self, batch: int, now_ms: int) -> None:
        if self.state is FilterState.OFF or self.in_range(batch):
            return
        if now_ms - self._quiet_since_ms >= self._quiet_ms:
            self.state = FilterState.OFF
            self._changed(Reason.QUIET, batch, now_ms)

    def _changed(self, reason: Reason, batch: int, now_ms: int) -> None:
        self.changes.append(FilterChange(now_ms, self.state, reason, batch, self.loaded, self.dropped, self.without_id))


@dataclass(frozen=True, slots=True)
class FilterReport:
    """What the deduplicator of a worker, or of several, has done since their last reports.

    filtering    how many of them filter
    loaded       ids that were read from the output
    without_id   rows let through without an id
    foreign      records of other writers in what was loaded
    """

    filtering: int = 0
    loads: int = 0
    filter_calls: int = 0
    loaded: int = 0
    dropped: int = 0
    without_id: int = 0
    foreign: int = 0
    changes: tuple[FilterChange, ...] = ()

    def __add__(self, other: FilterReport) -> FilterReport:
        return FilterReport(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
