"""Which right records a left record is joined with: the policies, over the groups of candidates in slices. Pure numpy.

A group holds the candidates of one key in order of (time, partition, offset), so every policy is a search for a time in
it. With t the left time, and [t - before, t + after] the interval:

    first    the first record at or above t - before
    last     the last record at or below t + after
    nearest  the first record at or above t, or the first of those that share the time of its predecessor; the
             smaller distance wins; if both are equal, the earlier record
    all      the records from the first at or above t - before to the last at or below t + after

If left's topic is right's too, a record is no candidate for itself: a search that finds it takes the next one.

Nothing below the window's expiry is a candidate, however far the interval reaches: what a late left record finds must
not depend on how much of the past a slice happens to still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.batch.rules import earliest_right, latest_right
from joins.rows.frames import I64, Bools, is_null, positions, rows_at
from joins.spec import Policy, Right
from joins.window.slices import Slice, grouped_order, key_hashes, lower_bound

NONE = -1
PAIRS_AT_ONCE = 500_000


@dataclass(frozen=True, slots=True)
class Picks:
    """Pairs of left rows and the slice and row of their right record, in the order in which they are written.

    `slice_of` is `NONE` where a left row has no right record; every left row is in at least one pair.
    """

    left: I64
    slice_of: I64
    row: I64

    def __getitem__(self, part: slice) -> Picks:
        return Picks(self.left[part], self.slice_of[part], self.row[part])


@dataclass(frozen=True, slots=True)
class Candidates:
    """Left records, and for each of them the rows of a slice that may have its key.

    left        the left record's row in the probe
    start, end  the group of its key: rows [start, end) of the slice
    time        its time; low, high: its interval, both ends included
    own         where the slice has the left record itself; `NONE`: nowhere. None: left's topic is another
    """

    slice: Slice
    left: I64
    start: I64
    end: I64
    time: I64
    low: I64
    high: I64
    own: I64 | None = None

    def first_from(self, wanted: I64) -> I64:
        """Returns for each group the first row with at least this time; the group's end if there is none."""
        return lower_bound(self.slice.times, self.start, self.end, wanted)

    def is_own(self, row: I64) -> I64:
        """Returns 1 where a row is the left record itself, otherwise 0."""
        return np.zeros(len(row), np.int64) if self.own is None else (row == self.own).astype(np.int64)

    def among(self, rows: I64, at: int) -> Candidates:
        """Returns the left record at this place, with these rows of the slice as its only candidates."""
        whole, here = self.slice, [at]
        part = Slice(
            rows_at(whole.frame, rows), whole.hashes[rows], whole.ignored_bits, whole.offset_ranges, whole.marks[rows]
        )
        start, end = np.zeros(1, np.int64), np.full(1, len(rows), np.int64)
        own = None
        if self.own is not None:
            own = np.where(np.isin(self.own[here], rows), np.searchsorted(rows, self.own[here]), NONE)
        return Candidates(part, self.left[here], start, end, self.time[here], self.low[here], self.high[here], own)


Search = Callable[[Candidates], I64]
"""Returns the row that is picked for each left record, or `NONE`."""


def _first(candidates: Candidates) -> I64:
    row = candidates.first_from(candidates.low)
    return _up_to_high(candidates, row + candidates.is_own(row))


def _last(candidates: Candidates) -> I64:
    row = candidates.first_from(candidates.high + 1) - 1
    row -= candidates.is_own(row)
    found = (row >= candidates.start) & (candidates.slice.times[np.maximum(row, 0)] >= candidates.low)
    return np.where(found, row, NONE)


def _nearest(candidates: Candidates) -> I64:
    start, low, times = candidates.start, candidates.low, candidates.slice.times
    boundary = candidates.first_from(np.maximum(candidates.time, low))
    after = _up_to_high(candidates, boundary + candidates.is_own(boundary))
    has_before = (boundary > start) & (times[np.maximum(boundary - 1, 0)] >= low)
    rows = np.flatnonzero(has_before)
    before = np.full(len(start), NONE, dtype=np.int64)
    before[rows] = lower_bound(times, start[rows], boundary[rows], times[boundary[rows] - 1])
    return np.where(_closer(candidates, before, after), before, after)


def _closer(candidates: Candidates, before: I64, after: I64) -> Bools:
    """Returns where the earlier record wins: the later one is missing, or not strictly closer."""
    times = candidates.slice.times
    earlier = candidates.time - times[np.maximum(before, 0)]
    later = times[np.maximum(after, 0)] - candidates.time
    wins: Bools = (before != NONE) & ((after == NONE) | (earlier <= later))
    return wins


def _up_to_high(candidates: Candidates, row: I64) -> I64:
    """Returns these rows, and `NONE` where the group or the interval ends before the row."""
    times = candidates.slice.times
    found = (row < candidates.end) & (times[np.minimum(row, len(times) - 1)] <= candidates.high)
    return np.where(found, row, NONE)


SEARCHES: dict[Policy, Search] = {Policy.FIRST: _first, Policy.LAST: _last, Policy.NEAREST: _nearest}


@dataclass(frozen=True, slots=True)
class Probe:
    """Left records with a key, grouped: `order` sorts their rows by hash; every array here is in that order.

    partitions   of the left records, if they match only right records of the same one
    own          their positions (`_positions`), if left's topic is right's
    """

    keys: pl.Series
    partitions: npt.NDArray[np.int32] | None
    order: I64
    hashes: npt.NDArray[np.uint64]
    time: I64
    low: I64
    high: I64
    own: I64 | None = None

    @classmethod
    def of(
        cls,
        right: Right,
        left: pl.DataFrame,
        expiry_ms: int,
        *,
        apart: bool = False,
        one_topic: bool = False,
        barred: I64 | None = None,
    ) -> Probe:
        """Groups records (`frames.RECORD`); those without a key are left out, and those that are `barred`.

        apart      records of different partitions do not match
        one_topic  left's topic is right's
        """
        out = is_null(left["key"])
        rows = np.flatnonzero(~(out if barred is None else out | (barred > 0)))
        probing = left if len(rows) == len(left) else rows_at(left.select("key", "partition"), positions(rows))
        hashes = key_hashes(probing, apart=apart)
        by_hash, _ = grouped_order(hashes)
        order = rows[by_hash]
        time = left["time"].to_numpy()[order]
        return cls(
            keys=probing["key"][positions(by_hash)],
            partitions=probing["partition"].to_numpy()[by_hash] if apart else None,
            order=order,
            hashes=hashes[by_hash],
            time=time,
            low=np.maximum(earliest_right(right, time), expiry_ms),
            high=latest_right(right, time),
            own=_positions(left["partition"].to_numpy()[order], left["offset"].to_numpy()[order])
            if one_topic
            else None,
        )

    def meets(self, slice_: Slice, left: I64, row: I64) -> Bools:
        """Returns for each pair of a left record and a row of the slice whether keys, and partitions, are equal."""
        same = (slice_.frame["key"][positions(row)] == self.keys[positions(left)]).to_numpy()
        return same if self.partitions is None else same & (slice_.partitions[row] == self.partitions[left])

    def reaches(self, slice_: Slice) -> bool:
        """Returns whether some left record's interval overlaps the slice's times."""
        if len(slice_) == 0 or len(self.time) == 0:
            return False
        earliest, latest = slice_.span
        return int(self.low.min()) <= latest and int(self.high.max()) >= earliest

    def candidates(self, slice_: Slice) -> Candidates | None:
        """Returns the left records that have candidates in a slice; None if there are none."""
        if not self.reaches(slice_):
            return None
        start, end = slice_.candidates(self.hashes)
        left = np.flatnonzero(end > start)
        if len(left) == 0:
            return None
        start, end, time = start[left], end[left], self.time[left]
        own = None if self.own is None else _rows_of(self.own[left], slice_, start, end, time)
        return Candidates(slice_, left, start, end, time, self.low[left], self.high[left], own)


def _positions(partitions: npt.NDArray[np.int32], offsets: I64) -> I64:
    """Returns each position as one number, in the order of positions."""
    return (partitions.astype(np.int64) << 44) | offsets


def _rows_of(own: I64, slice_: Slice, start: I64, end: I64, time: I64) -> I64:
    """Returns which row of its group [start, end) each record is itself, by position and time; `NONE`: none."""
    positions_of_slice = _positions(slice_.partitions, slice_.offsets)
    end = lower_bound(slice_.times, start, end, time + 1)
    row = lower_bound(positions_of_slice, lower_bound(slice_.times, start, end, time), end, own)
    return np.where((row < end) & (positions_of_slice[np.minimum(row, len(positions_of_slice) - 1)] == own), row, NONE)


def pick(
    right: Right,
    slices: Sequence[Slice],
    left: pl.DataFrame,
    expiry_ms: int,
    *,
    apart: bool = False,
    one_topic: bool = False,
) -> Iterator[Picks]:
    """Matches every row of `left`, in its order; in several portions if a policy gives many pairs.

    apart      records of different partitions do not match
    one_topic  left's topic is right's: a record does not match itself
    """
    probe = Probe.of(right, left, expiry_ms, apart=apart, one_topic=one_topic)
    yield from pick_probed(right, slices, probe, len(left))


def pick_probed(right: Right, slices: Sequence[Slice], probe: Probe, left_rows: int) -> Iterator[Picks]:
    """Does the same for left records that are grouped already."""
    if right.policy is Policy.ALL:
        yield from _pick_all(slices, probe, left_rows)
    else:
        yield _pick_one(right.policy, slices, probe, left_rows)


def _pick_one(policy: Policy, slices: Sequence[Slice], probe: Probe, left_rows: int) -> Picks:
    slice_of = np.full(len(probe.order), NONE, dtype=np.int64)
    row = np.full(len(probe.order), NONE, dtype=np.int64)
    search = SEARCHES[policy]
    for number, slice_ in enumerate(slices):
        candidates = probe.candidates(slice_)
        if candidates is None:
            continue
        picked = _that_meet(search, candidates, probe)
        rivals, picked = candidates.left[picked != NONE], picked[picked != NONE]
        free = slice_of[rivals] == NONE
        slice_of[rivals[free]], row[rivals[free]] = number, picked[free]
        rivals, picked = rivals[~free], picked[~free]
        if len(rivals):
            better = _beats(policy, slices, probe.time[rivals], number, picked, slice_of[rivals], row[rivals])
            slice_of[rivals[better]], row[rivals[better]] = number, picked[better]
    in_order = np.full(left_rows, NONE, dtype=np.int64)
    rows_in_order = np.full(left_rows, NONE, dtype=np.int64)
    in_order[probe.order], rows_in_order[probe.order] = slice_of, row
    return Picks(np.arange(left_rows, dtype=np.int64), in_order, rows_in_order)


def _that_meet(search: Search, candidates: Candidates, probe: Probe) -> I64:
    """Returns the picked rows. If a group holds several keys and another key's record was picked, the search is
    repeated among the records of the left record's key."""
    picked, slice_ = search(candidates), candidates.slice
    hits = np.flatnonzero(picked != NONE)
    same = probe.meets(slice_, candidates.left[hits], picked[hits])
    for at in hits[~same].tolist():
        group = np.arange(candidates.start[at], candidates.end[at])
        own = group[probe.meets(slice_, np.full(len(group), candidates.left[at]), group)]
        met = search(candidates.among(own, at))[0] if len(own) else NONE
        picked[at] = own[met] if met != NONE else NONE
    return picked


def _beats(
    policy: Policy, slices: Sequence[Slice], time: I64, number: int, row: I64, rival_slice: I64, rival_row: I64
) -> Bools:
    """Returns where the record (slices[number], row) comes before its rival in the policy's order."""

    def ranks(s: Slice, rows: I64, time: I64) -> tuple[I64, I64, I64, I64]:
        times = s.times[rows]
        distance = np.abs(times - time) if policy is Policy.NEAREST else np.zeros(len(rows), np.int64)
        return distance, times, s.partitions[rows].astype(np.int64), s.offsets[rows]

    mine = ranks(slices[number], row, time)
    theirs = tuple(np.empty(len(row), np.int64) for _ in mine)
    for other in np.unique(rival_slice).tolist():
        at = rival_slice == other
        for target, values in zip(theirs, ranks(slices[other], rival_row[at], time[at]), strict=True):
            target[at] = values
    before = np.zeros(len(row), dtype=np.bool_)
    for a, b in reversed(list(zip(mine, theirs, strict=True))):
        before = (a < b) | ((a == b) & before)
    return ~before if policy is Policy.LAST else before


def _pick_all(slices: Sequence[Slice], probe: Probe, left_rows: int) -> Iterator[Picks]:
    """Yields every pair, in left's order and for each left record in order of (time, partition, offset)."""
    spans: list[tuple[int, I64, I64]] = []
    counts = np.zeros(left_rows, dtype=np.int64)
    for number, slice_ in enumerate(slices):
        if not probe.reaches(slice_):
            continue
        start, end = slice_.candidates(probe.hashes)
        starts, ends = np.zeros(left_rows, np.int64), np.zeros(left_rows, np.int64)
        starts[probe.order] = lower_bound(slice_.times, start, end, probe.low)
        ends[probe.order] = lower_bound(slice_.times, start, end, probe.high + 1)
        ends = np.maximum(starts, ends)
        counts += ends - starts
        spans.append((number, starts, ends))
    probed = np.full(left_rows, NONE, dtype=np.int64)
    probed[probe.order] = np.arange(len(probe.order))
    portion = np.cumsum(np.maximum(counts, 1)) // PAIRS_AT_ONCE
    cuts = np.concatenate([[0], np.flatnonzero(portion[1:] != portion[:-1]) + 1, [left_rows]])
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        if last > first:
            yield _pairs(slices, spans, probe, probed, first, last)


def _pairs(
    slices: Sequence[Slice], spans: list[tuple[int, I64, I64]], probe: Probe, probed: I64, first: int, last: int
) -> Picks:
    """Returns the pairs of left rows [first, last); probed: where each left row is in the probe."""
    pairs = []
    for number, starts, ends in spans:
        lengths = ends[first:last] - starts[first:last]
        left = np.repeat(np.arange(first, last, dtype=np.int64), lengths)
        within = np.arange(len(left)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        row = np.repeat(starts[first:last], lengths) + within
        slice_ = slices[number]
        same = probe.meets(slice_, probed[left], row)
        if probe.own is not None:
            same &= _positions(slice_.partitions[row], slice_.offsets[row]) != probe.own[probed[left]]
        left, row = left[same], row[same]
        pairs.append(
            (left, np.full(len(left), number), row, slice_.times[row], slice_.partitions[row], slice_.offsets[row])
        )
    matched = np.zeros(last - first, dtype=np.bool_)
    for left, *_ in pairs:
        matched[left - first] = True
    alone = np.flatnonzero(~matched) + first
    none = np.full(len(alone), NONE, dtype=np.int64)
    pairs.append((alone, none, none, none, none.astype(np.int32), none))
    left, slice_of, row, time, partition, offset = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((offset, partition, time, left))
    return Picks(left[order], slice_of[order], row[order])
