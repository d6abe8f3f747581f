"""What a batch found out: where it ended, and what its records prove. The next batch plan starts from it. Pure.

Facts are a function of the batch plan and the log: reading the batch's ranges again finds them again
(`joins.read.batch_reader.find_facts`). The task that carries out a batch keeps them beside its slices; a job's driver
gets them in the summary and keeps them too. These files may be lost (`joins.read.facts_files`).

What all batches found out about a partition is kept in a few numbers, enough to read a lost window again. A partition
is a sequence of segments, each with the offsets that one or more batches read. A `Bound` ends a segment:

    offset      the segment ends before it
    below_ms    every record of the segment that took part has a time below it
    future_ms   every record of the segment that was rejected as from the future has at least this time
    expiry_ms   left only, if records of the segment were late: right records below it were not candidates

Neighbours are merged only if the merged numbers still separate the records that took part from the rejected ones, and
still say what they could be joined with. A window that is read again therefore holds exactly the records that it first
held, with the same ones marked.

A left partition with late records in every batch has one segment per batch, so each plan would be larger
than the last. Beyond `MOST_SEGMENTS` these segments are merged too. Then, if marks are lost and recomputed, a
right record that was joined only with a late left record may count as unjoined, or another one as joined. No row of a
left record changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from datadelay.watermark import UNKNOWN
from joins.spec import BothSides
from teacup.base.times import EARLIEST_MS, LATEST_MS


class RangeFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One partition after a batch. A list in JSON: a batch may have thousands of partitions.

    end           the next offset to read; for left at most the planned one
    watermark_ms  every record from `end` on has at least this time
    tail          the times before `end` that do not fill a block yet: the first, then how much later each next one is
    below_ms      the records of the batch that took part have times below it
    future_ms     the records that were rejected as from the future have at least this time
    held_ms       left only: the time of the record at `end`, if it was held back
    late          some records of the batch were late
    schemas       the schemas that decoded records of the batch, each with its first offset (Avro, Protobuf)
    """

    end: int
    watermark_ms: int
    tail: tuple[int, ...] = ()
    below_ms: int = EARLIEST_MS
    future_ms: int = LATEST_MS
    held_ms: int | None = None
    late: bool = False
    schemas: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BucketFacts(BothSides[Mapping[int, RangeFacts]]):
    """One bucket after a batch; `oldest_ms` is the smallest time in its window, None if the window is empty."""

    left: Mapping[int, RangeFacts] = field(default_factory=dict)
    right: Mapping[int, RangeFacts] = field(default_factory=dict)
    watermark_ms: int = UNKNOWN
    expiry_ms: int = UNKNOWN
    oldest_ms: int | None = None

    @classmethod
    def of_parts(cls, parts: Iterable[BucketFacts]) -> BucketFacts:
        """Merges the parts of a bucket.

        All parts saw the same partitions; only part 0 reports them in full. Each reports its own window.
        """
        first, *others = parts
        oldest = [part.oldest_ms for part in (first, *others) if part.oldest_ms is not None]
        return replace(first, oldest_ms=min(oldest, default=None))


MOST_SEGMENTS = 100


_SHORT = {"offset": "o", "below_ms": "b", "future_ms": "f", "expiry_ms": "e"}


class Bound(msgspec.Struct, frozen=True, omit_defaults=True, rename=_SHORT, forbid_unknown_fields=True):
    """The end of a segment; the fields are in the module's docstring. In JSON their names are short: there are many."""

    offset: int
    below_ms: int = EARLIEST_MS
    future_ms: int = LATEST_MS
    expiry_ms: int = EARLIEST_MS


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
    """Returns what a window from `needed_from_ms` on may need, with segments less than the spacing apart merged."""
    low = low_end(bounds, needed_from_ms)
    too_many = len(bounds) > MOST_SEGMENTS
    fewer = [Bound(low)]
    for bound in bounds:
        if bound.offset <= low:
            fewer[0] = Bound(low, max(fewer[0].below_ms, bound.below_ms))
            continue
        if len(fewer) > 1 and (too_many or fewer[-1].expiry_ms == bound.expiry_ms):
            below_ms, future_ms = max(fewer[-1].below_ms, bound.below_ms), min(fewer[-1].future_ms, bound.future_ms)
            merged = Bound(bound.offset, below_ms, future_ms, max(fewer[-1].expiry_ms, bound.expiry_ms))
            if merged.below_ms <= merged.future_ms and merged.below_ms - fewer[-2].below_ms <= spacing_ms:
                fewer[-1] = merged
                continue
        fewer.append(bound)
    return tuple(fewer)


def starting_at(bounds: Bounds, start: int) -> Bounds:
    """Returns the bounds from `start` on; the log has lost what is before."""
    before = [bound.below_ms for bound in bounds if bound.offset <= start]
    return (Bound(start, max(before, default=EARLIEST_MS)), *(bound for bound in bounds if bound.offset > start))


def turned_away_from(bounds: Iterable[Bound], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns for each offset the time from which records were rejected as from the future when it was read."""
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
