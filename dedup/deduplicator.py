"""The deduplicator of one worker process: states, seen ids, and what is under way. Pure.

    begin(attempt)   -> when the output may be loaded (an earlier attempt's writes are settled by then), None: no need
    load(pieces)     the ids of the output become seen
    keep(ids)        which rows have no result yet: neither seen, nor earlier in this attempt; also those without an id
    durable()        this attempt's rows are acknowledged: they are seen
    (nothing)        an attempt that failed adds nothing: the next one begins without its rows

While it is off nothing but `begin` is called, and in tasks tried for the first time not even that (`dormant`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import polars as pl

from dedup.hashing import Mask, hashes_of
from dedup.replayrange import DedupConfig, ReplayRange
from dedup.results import Loaded
from dedup.seen import SeenIds, fresh_rows
from dedup.states import Attempt, Change, Reason, State, Switch


class Deduplicator:
    """Used by one thread at a time."""

    def __init__(self, config: DedupConfig, replay: ReplayRange) -> None:
        self.config = config
        self.replay = replay
        self.loads = self.filter_calls = 0
        self.loaded = self.dropped = self.without_id = self.foreign = 0
        self._switch = Switch(replay, config.quiet_ms)
        self._seen = SeenIds()
        self._under_way = SeenIds()

    @property
    def filtering(self) -> bool:
        return self._switch.state is State.FILTERING

    @property
    def seen(self) -> int:
        return len(self._seen)

    @property
    def totals(self) -> dict[str, int]:
        """Since it was made: loads, calls of the filter, ids loaded, rows dropped, rows let through as they have no id,
        records of other writers met."""
        return {
            "loads": self.loads,
            "filter_calls": self.filter_calls,
            "loaded": self.loaded,
            "dropped": self.dropped,
            "without_id": self.without_id,
            "foreign": self.foreign,
        }

    def dormant(self, attempt: Attempt) -> bool:
        """Off, and this attempt is no reason to change that."""
        return not self.filtering and self._switch.reason(attempt) is None

    def begin(self, attempt: Attempt, now_ms: int) -> int | None:
        """An attempt begins. When the output may be loaded, which must then be done; None: nothing is to be loaded."""
        self._under_way = SeenIds()
        reason = self._switch.begin(attempt, now_ms)
        if reason is None:
            if not self.filtering:
                self._seen = SeenIds()
            return None
        ended_ms = self.replay.started_ms if reason is Reason.DRIVER_RESTART else now_ms
        return self.config.settled_at_ms(ended_ms)

    def load(self, pieces: Iterable[Loaded], now_ms: Callable[[], int]) -> None:
        """Take in what the output holds; the clock is asked when all of it is there."""
        self.loads += 1
        ids = 0
        for piece in pieces:
            self._seen.add(hashes_of(piece.ids))
            self.foreign += piece.foreign
            ids += len(piece.ids)
        self.loaded += ids
        self._switch.count_loaded(ids, now_ms())

    def keep(self, ids: pl.Series, now_ms: int) -> Mask:
        """Which rows have no result yet."""
        self.filter_calls += 1
        fresh = fresh_rows(ids, self._seen, self._under_way)
        dropped = len(ids) - int(fresh.sum())
        self.dropped += dropped
        self.without_id += ids.null_count()
        self._switch.count_rows(dropped, ids.null_count(), now_ms)
        return fresh

    def durable(self) -> None:
        """What this attempt kept is acknowledged."""
        self._seen.take_over(self._under_way)
        self._under_way = SeenIds()

    def changes(self) -> list[Change]:
        """The changes of state since the last call."""
        changes, self._switch.changes = self._switch.changes, []
        return changes
