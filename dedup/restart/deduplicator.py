"""The deduplicator of one worker process: state, seen ids, and ids under way. Pure.

    begin(attempt)   -> what of the output is to be loaded, and when; None: nothing
    load(pieces)     the ids of the output become seen
    keep(ids)        which rows have no result yet: neither seen, nor earlier in this attempt; also those without an id
    durable()        this attempt's rows are acknowledged: they are seen
    (nothing)        a failed attempt adds nothing: the next one starts without its rows

Once the replay range has passed, nothing is added: rows are only compared with what was loaded or delivered in the
range. A row of a later batch is not a replay, so its own repeats do not concern the deduplicator. What is seen thus
stays within the limit and the range, however long filtering lasts. A task that is retried later begins a new range, and
what was seen in the last one is forgotten.

While it is off, only `begin` is called, and in tasks tried for the first time not even that (`dormant`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import polars as pl

from dedup.identity import BatchTag
from dedup.replay_range import DedupConfig, Loaded, LoadLimits, ReplayRange
from dedup.restart.seen_ids import Mask, SeenIds, fresh_rows, hashes_of
from dedup.restart.states import Attempt, FilterChange, FilterState, Reason, Switch


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be loaded before an attempt.

    settled_ms  by then an earlier attempt's writes have arrived or were given up
    new_range   True: a new replay range, everything within the bounds; False: what was added since the last load
    """

    settled_ms: int
    bounds: LoadLimits
    new_range: bool


class Deduplicator:
    """Decides which rows have no result yet. Used by one thread at a time."""

    def __init__(self, config: DedupConfig, replay: ReplayRange) -> None:
        self.config = config
        self.replay = replay
        self.loads = self.filter_calls = 0
        self.loaded = self.dropped = self.without_id = self.foreign = 0
        self._switch = Switch(replay, config.quiet_ms)
        self._seen = SeenIds()
        self._under_way = SeenIds()
        self._in_range = False

    @property
    def filtering(self) -> bool:
        """Whether rows are compared now; otherwise all of them go through."""
        return self._switch.state is FilterState.FILTERING

    @property
    def seen(self) -> int:
        """How many ids it holds."""
        return len(self._seen)

    @property
    def totals(self) -> dict[str, int]:
        """Counts since creation: loads, calls of the filter, ids loaded, rows dropped, rows let through without an id,
        and records of other writers.
        """
        return {
            "loads": self.loads,
            "filter_calls": self.filter_calls,
            "loaded": self.loaded,
            "dropped": self.dropped,
            "without_id": self.without_id,
            "foreign": self.foreign,
        }

    def dormant(self, attempt: Attempt) -> bool:
        """Returns whether it is off, and this attempt is no reason to change that."""
        return not self.filtering and self._switch.reason(attempt) is None

    def begin(
        self, attempt: Attempt, now_ms: int, since_ms: int | None = None, batch: BatchTag | None = None
    ) -> Load | None:
        """Begins an attempt. Returns what must be loaded before it; None: nothing.

        since_ms   no result of its batch has a record time below it; None: what the driver knew at its start counts
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
        """Adds what the output holds; the clock is read once all of it is there."""
        self.loads += 1
        ids = 0
        for piece in pieces:
            self._seen.add(hashes_of(piece.ids))
            self.foreign += piece.foreign
            ids += len(piece.ids)
        self.loaded += ids
        self._switch.count_loaded(ids, now_ms())

    def keep(self, ids: pl.Series, now_ms: int) -> Mask:
        """Returns which rows have no result yet."""
        self.filter_calls += 1
        fresh = fresh_rows(ids, self._seen, self._under_way if self._in_range else None)
        dropped = len(ids) - int(fresh.sum())
        self.dropped += dropped
        self.without_id += ids.null_count()
        self._switch.count_rows(dropped, ids.null_count(), now_ms)
        return fresh

    def durable(self) -> None:
        """Takes note that what this attempt kept is acknowledged."""
        self._seen.take_over(self._under_way)

    def changes(self) -> list[FilterChange]:
        """Returns the changes of state since the last call."""
        changes, self._switch.changes = self._switch.changes, []
        return changes
