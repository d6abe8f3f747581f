"""The deduplicator of one worker process: when it filters, and which rows have no result yet. Pure.

It has two states:

    off --------> filtering   a batch that an earlier driver may have run (`driver_restart`), a task that was tried
                              before (`task_attempt`)
    filtering --> off         the replay range has passed, and no duplicate came during the quiet period (`quiet`)

A task calls it in this order; while it is off, only `begin`, and in tasks tried for the first time not even that
(`dormant`):

    begin(attempt)   -> what of the output is to be loaded, and when; None: nothing
    load(pieces)     the ids of the output become seen
    keep(ids)        which rows have no result yet: neither seen, nor earlier in this attempt; also those without an id
    durable()        this attempt's rows are acknowledged: they are seen
    (nothing)        a failed attempt adds nothing: the next one starts without its rows

The replay range ends with the batch that is rerun, and what is delivered in it is seen. Rows of later batches are not a
replay, so repeats among them do not concern the deduplicator: they are compared with what was loaded or delivered in
the range, and add nothing to it. What is seen thus stays within the limit and the range, however long filtering lasts.

Each task of a batch is checked once. A task that was tried before needs what the earlier attempt wrote, perhaps a
moment ago: the output is loaded again (its new part), even while filtering. If the range has passed by then, a new one
begins, and what was seen in the last one is forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

import polars as pl

from dedup.replay_range import DedupConfig, Loaded, LoadLimits, ReplayRange
from dedup.restart.seen_ids import Mask, SeenIds, fresh_rows, hashes_of
from teacup.kafka.delivery.provenance import BatchTag


@dataclass(frozen=True, slots=True)
class Load:
    """What must be loaded before an attempt.

    settled_ms  by then an earlier attempt's writes have arrived or were given up
    new_range   True: a new replay range, everything within the bounds; False: what was added since the last load
    """

    settled_ms: int
    bounds: LoadLimits
    new_range: bool


class Deduplicator:
    """Decides which rows have no result yet. Used by one thread at a time.

    counts   since creation, by the names of `FilterReport`
    """

    def __init__(self, config: DedupConfig, replay: ReplayRange) -> None:
        self.config = config
        self.replay = replay
        self.counts: Counter[str] = Counter()
        self._switch = Switch(replay, config.quiet_ms, self.counts)
        self._seen = SeenIds()
        self._under_way = SeenIds()
        self._in_range = False

    @property
    def filtering(self) -> bool:
        """Whether rows are compared now; otherwise all of them pass."""
        return self._switch.state is FilterState.FILTERING

    @property
    def seen(self) -> int:
        """How many ids it holds."""
        return len(self._seen)

    def dormant(self, attempt: Attempt) -> bool:
        """Returns whether it is off and this attempt is no reason to change that."""
        return not self.filtering and self._switch.reason(attempt) is None

    def begin(
        self, attempt: Attempt, now_ms: int, since_ms: int | None = None, batch: BatchTag | None = None
    ) -> Load | None:
        """Begins an attempt. Returns what must be loaded before it; None: nothing.

        since_ms   no result of its batch has an earlier record time; None: what the driver knew at its start counts
        batch      the tag of its results; None: they have no tag
        """
        self._under_way = SeenIds()
        new_range = not self._switch.in_range(attempt.batch)
        reason = self._switch.begin(attempt, now_ms)
        self._in_range = self._switch.in_range(attempt.batch)
        if not self.filtering or (new_range and reason is not None):
            self._seen = SeenIds()
        if reason is None:
            return None
        ended_ms = self.replay.started_ms if reason is Reason.DRIVER_RESTART else now_ms
        bounds = self.config.bounds(self.replay.since_ms if since_ms is None else since_ms, batch)
        return Load(self.config.settled_at_ms(ended_ms), bounds, new_range)

    def load(self, pieces: Iterable[Loaded], now_ms: Callable[[], int]) -> None:
        """Adds the ids in the output; the clock is read once all of them are there."""
        self.counts["loads"] += 1
        for piece in pieces:
            self._seen.add(hashes_of(piece.ids))
            self.counts.update(loaded=len(piece.ids), foreign=piece.foreign)
        self._switch.not_quiet(now_ms())

    def keep(self, ids: pl.Series, now_ms: int) -> Mask:
        """Returns which rows have no result yet."""
        fresh = fresh_rows(ids, self._seen.contains, self._under_way if self._in_range else None)
        dropped = len(ids) - int(fresh.sum())
        self.counts.update(filter_calls=1, dropped=dropped, without_id=ids.null_count())
        if dropped:
            self._switch.not_quiet(now_ms)
        return fresh

    def durable(self) -> None:
        """Notes that the rows that this attempt kept are acknowledged."""
        self._seen.take_over(self._under_way)

    def changes(self) -> list[FilterChange]:
        """Returns the changes of state since the last call."""
        changes, self._switch.changes = self._switch.changes, []
        return changes


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
    """One try of one task; earlier: how many came before."""

    batch: int
    earlier: int = 0


@dataclass(frozen=True, slots=True)
class FilterChange:
    """A change of state; loaded, dropped and without_id (rows passed) are counts since filtering began."""

    at_ms: int
    state: FilterState
    reason: Reason
    batch: int
    loaded: int = 0
    dropped: int = 0
    without_id: int = 0

    def to_json(self, name: str) -> dict[str, object]:
        """Returns the content of a log line; `name` is the job's, as one log may be shared by several."""
        return {"event": "deduplicator", "name": name, **asdict(self)}


class Switch:
    """The state of one worker process's deduplicator."""

    def __init__(self, replay: ReplayRange, quiet_ms: int, counts: Counter[str]) -> None:
        self.state = FilterState.OFF
        self.changes: list[FilterChange] = []
        self._counts, self._counts_before = counts, Counter[str]()
        self._replay = replay
        self._quiet_ms = quiet_ms
        self._met_restart = False
        self._until_batch = -1
        self._quiet_since_ms = 0

    def reason(self, attempt: Attempt) -> Reason | None:
        """Returns why this attempt needs the output loaded; None if it does not."""
        if attempt.earlier:
            return Reason.TASK_ATTEMPT
        if not self._met_restart and self._replay.covers(attempt.batch):
            return Reason.DRIVER_RESTART
        return None

    def in_range(self, batch: int) -> bool:
        """Returns whether rows of this batch may be a replay."""
        return batch <= self._until_batch

    def begin(self, attempt: Attempt, now_ms: int) -> Reason | None:
        """Begins an attempt. Returns why the output must be loaded first; None if it need not be."""
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
            self._counts_before = self._counts.copy()
            self._changed(reason, attempt.batch, now_ms)
        return reason

    def not_quiet(self, now_ms: int) -> None:
        """Notes that a duplicate came, or that none could, as ids were loaded."""
        self._quiet_since_ms = now_ms

    def _rest(self, batch: int, now_ms: int) -> None:
        if self.state is FilterState.OFF or self.in_range(batch):
            return
        if now_ms - self._quiet_since_ms >= self._quiet_ms:
            self.state = FilterState.OFF
            self._changed(Reason.QUIET, batch, now_ms)

    def _changed(self, reason: Reason, batch: int, now_ms: int) -> None:
        since = self._counts - self._counts_before
        counts = (since[name] for name in ("loaded", "dropped", "without_id"))
        self.changes.append(FilterChange(now_ms, self.state, reason, batch, *counts))


@dataclass(frozen=True, slots=True)
class FilterReport:
    """What the deduplicators of one or more workers have done since their last reports.

    filtering    how many of them filter
    loaded       ids that were read from the output
    without_id   rows passed without an id
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
