"""Ids seen within a window of record times, in buckets of a quarter of it. Pure.

    known    an id whose record's time is at most the window below the row's own, or up to a quarter more
    clock    the typical time of the last block of records that were added (`kafkaio.eventtime`); it never goes back
    dropped  buckets that are more than the window below the clock; at the limit the oldest ones

Whether an id is known depends on the two records' own times: a wrong time affects only the id of its record.
The clock decides only how long an id is kept. It rests on blocks, so a record ahead of its neighbours does not end the
window for the others. If records are few it lags, which only costs memory. A record without a time, or older than all
that is kept, counts as one of the clock's time; to a row without a time all kept ids are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dedup.restart.hashing import Hashes, Mask
from dedup.restart.seen import Known, SeenIds
from kafkaio.eventtime import OUTLIERS, typical

I64 = npt.NDArray[np.int64]

NO_TIME = -1
_PARTS = 4
_BUCKETS_AT_MOST = 256  # far more than a window has; if record times are scattered, the oldest buckets are dropped
_BLOCK = 2 * OUTLIERS + 1


def with_valid_times(times: I64, ceiling_ms: int) -> I64:
    """Returns the times, with `NO_TIME` in place of invalid ones: negative, or in the future."""
    return np.where((times >= 0) & (times <= ceiling_ms), times, NO_TIME)


class SeenWindow:
    """The ids of a window, at most `limit`. Times are valid ones, or `NO_TIME`."""

    def __init__(self, window_ms: int, limit: int) -> None:
        self._window_ms, self._limit = window_ms, limit
        self._width_ms = max(window_ms // _PARTS, 1)
        self._buckets: dict[int, list[SeenIds]] = {}
        self._tail = np.zeros(0, np.int64)
        self._clock_ms = 0

    def __len__(self) -> int:
        return sum(len(part) for parts in self._buckets.values() for part in parts)

    def add(self, hashes: Hashes, times: I64) -> int:
        """Adds ids of records with these times, in the order of the log.

        Returns how many ids were forgotten early because of the limit.
        """
        self._see(times[times != NO_TIME])
        oldest = (self._clock_ms - self._window_ms) // self._width_ms
        at = times // self._width_ms
        at[(times == NO_TIME) | (at < oldest)] = self._clock_ms // self._width_ms
        for bucket in np.unique(at).tolist():
            self._put(bucket, hashes.at(at == bucket))
        for bucket in [bucket for bucket in self._buckets if bucket < oldest]:
            del self._buckets[bucket]
        return self._keep_within_limits()

    def contains(self, hashes: Hashes, times: I64) -> Mask:
        """Returns whether each id is known to a row of this time."""
        found = np.zeros(len(hashes), np.bool_)
        for bucket, parts in self._buckets.items():
            in_reach = (times == NO_TIME) | (times - self._window_ms < (bucket + 1) * self._width_ms)
            if in_reach.any():
                for part in parts:
                    found |= part.contains(hashes) & in_reach
        return found

    def to_rows_at(self, times: I64) -> Known:
        """Returns what is known to rows with these times, one per row."""
        return _ToRowsAt(self, times)

    def _see(self, times: I64) -> None:
        """Advances the clock. Fewer records than a block prove no more than the smallest of their times."""
        self._tail = np.concatenate([self._tail, times[-_BLOCK:]])[-_BLOCK:]
        if len(self._tail):
            block: list[int] = self._tail.tolist()
            self._clock_ms = max(self._clock_ms, typical(block) if len(block) == _BLOCK else min(block))

    def _put(self, bucket: int, hashes: Hashes) -> None:
        parts = self._buckets.setdefault(bucket, [SeenIds()])
        if len(parts[-1]) >= max(self._limit // _PARTS, 1):
            parts.append(SeenIds())
        parts[-1].add(hashes)

    def _keep_within_limits(self) -> int:
        forgotten = 0
        while len(self._buckets) > _BUCKETS_AT_MOST or (len(self) > self._limit and self._parts > 1):
            oldest = min(self._buckets)
            forgotten += len(self._buckets[oldest].pop(0))
            if not self._buckets[oldest]:
                del self._buckets[oldest]
        return forgotten

    @property
    def _parts(self) -> int:
        return sum(len(parts) for parts in self._buckets.values())


@dataclass(frozen=True, slots=True)
class _ToRowsAt:
    window: SeenWindow
    times: I64

    def contains(self, hashes: Hashes) -> Mask:
        return self.window.contains(hashes, self.times)
