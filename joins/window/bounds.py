"""What earlier batches saw in a partition, as a few numbers: from where a lost window has to be read again. Pure.

A partition is a row of segments, each the offsets that one or several batches have read. A `Bound` ends a segment:

    offset      the segment ends before it
    below_ms    every record of the segment that took part has a time below it
    future_ms   every record of the segment that was turned away as from the future has at least this time

Both times were seen in the records by the task that read them. Neighbours are merged only where one pair of numbers
still tells the records that took part from those that were turned away, so that a window that is read again holds
exactly the records that it held at first, whatever the clock says by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datadelay.progress import UNKNOWN

LATEST_MS = 2**62
"""Above every time."""


class Bound(NamedTuple):
    offset: int
    below_ms: int = UNKNOWN
    future_ms: int = LATEST_MS


Bounds = tuple[Bound, ...]
"""Ascending by offset; the first one stands for all that lies before, which nobody needs any more."""


def low_end(bounds: Bounds, time_ms: int) -> int:
    """The largest known offset below which every record that took part has a time below `time_ms`."""
    low = bounds[0].offset
    for bound in bounds[1:]:
        if bound.below_ms > time_ms:
            break
        low = bound.offset
    return low


def thinned(bounds: Bounds, needed_from_ms: int, spacing_ms: int) -> Bounds:
    """Only what a window from `needed_from_ms` on may ask for; segments less than the spacing apart become one."""
    low = low_end(bounds, needed_from_ms)
    kept = [Bound(low)]
    for bound in bounds:
        if bound.offset <= low:
            kept[0] = Bound(low, max(kept[0].below_ms, bound.below_ms))
            continue
        if len(kept) > 1:
            merged = Bound(
                bound.offset, max(kept[-1].below_ms, bound.below_ms), min(kept[-1].future_ms, bound.future_ms)
            )
            if merged.below_ms <= merged.future_ms and merged.below_ms - kept[-2].below_ms <= spacing_ms:
                kept[-1] = merged
                continue
        kept.append(bound)
    return tuple(kept)


def starting_at(bounds: Bounds, start: int) -> Bounds:
    """The bounds without what lies before `start`, which the log has lost."""
    before = [bound.below_ms for bound in bounds if bound.offset <= start]
    return (Bound(start, max(before, default=UNKNOWN)), *(bound for bound in bounds if bound.offset > start))


def turned_away_from(bounds: Iterable[Bound], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each offset the time from which on a record was turned away, when it was read, as from the future."""
    ends, _, future = (np.array(column, dtype=np.int64) for column in zip(*bounds, strict=True))
    return np.append(future, LATEST_MS)[np.searchsorted(ends, offsets, side="right")]
