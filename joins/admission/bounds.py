"""What earlier batches saw in a partition, in a few numbers: from where a lost window must be read again. Pure.

A partition is a sequence of segments; each covers the offsets that one or more batches read. A `Bound` ends a segment:

    offset      the segment ends before it
    below_ms    every record of the segment that took part has a time below it
    future_ms   every record of the segment that was rejected as from the future has at least this time
    expiry_ms   left only, if some records of the segment were late: right records below it were not candidates

The task that read the records saw these times in them. Neighbours are merged only if the merged numbers still separate
the records that took part from the rejected ones, and still say what they could be joined with. A window that is read
again therefore holds exactly the records that it first held, with the same ones marked.

A left partition with late records in every batch has one segment per batch, so each offset that Spark logs would be
larger than the last. Beyond `MOST_SEGMENTS` these segments are merged too. Then, if marks are lost and recomputed, a
right record that was joined only with a late left record may count as unjoined, or another one as joined. No row of a
left record changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkaio.times import EARLIEST_MS, LATEST_MS

MOST_SEGMENTS = 100


class Bound(NamedTuple):
    """The end of a segment; the fields are in the module's docstring."""

    offset: int
    below_ms: int = EARLIEST_MS
    future_ms: int = LATEST_MS
    expiry_ms: int = EARLIEST_MS

    def short(self) -> list[int]:
        """Returns the fields for `Bound(*short)`, without the last two if nothing was rejected, or late."""
        return list(self[:2] if self[2:] == (LATEST_MS, EARLIEST_MS) else self)


Bounds = tuple[Bound, ...]
"""Ascending by offset; the first one covers everything before it, which is no longer needed."""


def low_end(bounds: Bounds, time_ms: int) -> int:
    """Returns the largest known offset below which every record that took part has a time below `time_ms`."""
    low = bounds[0].offset
    for bound in bounds[1:]:
        if bound.below_ms > time_ms:
            break
        low = bound.offset
    return low


def below_within(bounds: Bounds, start: int, end: int) -> int:
    """Returns a time that every record of [start, end) that took part is below; `EARLIEST_MS`: none took part."""
    below_ms, first = EARLIEST_MS, 0
    for bound in bounds:
        if first < end and bound.offset > start:
            below_ms = max(below_ms, bound.below_ms)
        first = bound.offset
    return below_ms if first >= end else LATEST_MS


def thinned(bounds: Bounds, needed_from_ms: int, spacing_ms: int) -> Bounds:
    """Returns what a window from `needed_from_ms` on may need; merges segments less than the spacing apart."""
    low = low_end(bounds, needed_from_ms)
    too_many = len(bounds) > MOST_SEGMENTS
    kept = [Bound(low)]
    for bound in bounds:
        if bound.offset <= low:
            kept[0] = Bound(low, max(kept[0].below_ms, bound.below_ms))
            continue
        if len(kept) > 1 and (too_many or kept[-1].expiry_ms == bound.expiry_ms):
            below_ms, future_ms = max(kept[-1].below_ms, bound.below_ms), min(kept[-1].future_ms, bound.future_ms)
            merged = Bound(bound.offset, below_ms, future_ms, max(kept[-1].expiry_ms, bound.expiry_ms))
            if merged.below_ms <= merged.future_ms and merged.below_ms - kept[-2].below_ms <= spacing_ms:
                kept[-1] = merged
                continue
        kept.append(bound)
    return tuple(kept)


def starting_at(bounds: Bounds, start: int) -> Bounds:
    """Returns the bounds without the offsets before `start`, which the log has lost."""
    before = [bound.below_ms for bound in bounds if bound.offset <= start]
    return (Bound(start, max(before, default=EARLIEST_MS)), *(bound for bound in bounds if bound.offset > start))


def turned_away_from(bounds: Iterable[Bound], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns for each offset the time from which a record was rejected as from the future when it was read."""
    return _of_segments(bounds, "future_ms", offsets, LATEST_MS)


def expiry_at(bounds: Iterable[Bound], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns for each left offset the time below which right records were not candidates; `EARLIEST_MS`: all were."""
    return _of_segments(bounds, "expiry_ms", offsets, EARLIEST_MS)


def _of_segments(
    bounds: Iterable[Bound], name: str, offsets: npt.NDArray[np.int64], behind: int
) -> npt.NDArray[np.int64]:
    segments = tuple(bounds)
    ends = np.array([bound.offset for bound in segments], dtype=np.int64)
    values = np.array([*(getattr(bound, name) for bound in segments), behind], dtype=np.int64)
    return values[np.searchsorted(ends, offsets, side="right")]
