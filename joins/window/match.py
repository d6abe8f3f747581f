"""Which right records a left record is joined with: the policies, over the groups of candidates in slices. Pure numpy.

A group holds the candidates of one key in order of (time, partition, offset), so every policy is a search for a time in
it. With t the left time, and [t - before, t + after] the interval:

    first    the first record at or above t - before
    last     the last record at or below t + after
    nearest  the first record at or above t, or the first of those that share the time of its predecessor; the
             smaller distance wins; if both are equal, the earlier record
    all      the records from the first at or above t - before to the last at or below t + after

Nothing below the window's expiry is a candidate, however far the interval reaches: what a late left record finds must
not depend on how much of the past a slice happens to still hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from joins.rows.frames import is_null, positions, rows_at
from joins.spec import JoinSpec, Policy
from joins.window.slices import I64, Bools, Slice, grouped_order, key_hashes, lower_bound

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


Search = Callable[[Slice, I64, I64, I64, I64, I64], I64]
"""(slice, group starts, group ends, left times, lowest, highest) -> the picked row, or `NONE`."""


def _first(s: Slice, start: I64, end: I64, time: I64, low: I64, high: I64) -> I64:
    row = lower_bound(s.times, start, end, low)
    return _where_at_most(s, row, end, high)


def _last(s: Slice, start: I64, end: I64, time: I64, low: I64, high: I64) -> I64:
    row = lower_bound(s.times, start, end, high + 1) - 1
    found = (row >= start) & (s.times[np.maximum(row, 0)] >= low)
    return np.where(found, row, NONE)


def _nearest(s: Slice, start: I64, end: I64, time: I64, low: I64, high: I64) -> I64:
    boundary = lower_bound(s.times, start, end, np.maximum(time, low))
    after = _where_at_most(s, boundary, end, high)
    has_before = (boundary > start) & (s.times[np.maximum(boundary - 1, 0)] >= low)
    rows = np.flatnonzero(has_before)
    before = np.full(len(start), NONE, dtype=np.int64)
    before[rows] = lower_bound(s.times, start[rows], boundary[rows], s.times[boundary[rows] - 1])
    return np.where(_closer(s, before, after, time), before, after)


def _closer(s: Slice, before: I64, after: I64, time: I64) -> Bools:
    """Where the earlier record wins: the later one is missing, or not strictly closer."""
    earlier = time - s.times[np.maximum(before, 0)]
    later = s.times[np.maximum(after, 0)] - time
    wins: Bools = (before != NONE) & ((after == NONE) | (earlier <= later))
    return wins


def _where_at_most(s: Slice, row: I64, end: I64, high: I64) -> I64:
    found = (row < end) & (s.times[np.minimum(row, len(s) - 1)] <= high)
    return np.where(found, row, NONE)


SEARCHES: dict[Policy, Search] = {Policy.FIRST: _first, Policy.LAST: _last, Policy.NEAREST: _nearest}


@dataclass(frozen=True, slots=True)
class Probe:
    """Left records with a key, grouped: `order` sorts their rows by hash; every array here is in that order."""

    keys: pl.Series
    order: I64
    hashes: np.typing.NDArray[np.uint64]
    time: I64
    low: I64
    high: I64

    @classmethod
    def of(cls, spec: JoinSpec, left: pl.DataFrame, expiry_ms: int) -> Probe:
        """`left` has the columns of `records.RECORD`; rows without a key are left out."""
        rows = np.flatnonzero(~is_null(left["key"]))
        keys = left["key"] if len(rows) == len(left) else left["key"][positions(rows)]
        hashes = key_hashes(keys)
        by_hash, _ = grouped_order(hashes)
        order = rows[by_hash]
        time = left["time"].to_numpy()[order]
        return cls(
            keys=keys[positions(by_hash)],
            order=order,
            hashes=hashes[by_hash],
            time=time,
            low=np.maximum(time - spec.before_ms, expiry_ms),
            high=time + spec.after_ms,
        )

    def reaches(self, slice_: Slice) -> bool:
        """Some left record's interval overlaps the slice's times."""
        if len(slice_) == 0 or len(self.time) == 0:
            return False
        earliest, latest = slice_.span
        return int(self.low.min()) <= latest and int(self.high.max()) >= earliest


def pick(spec: JoinSpec, slices: Sequence[Slice], left: pl.DataFrame, expiry_ms: int) -> Iterator[Picks]:
    """Match every row of `left`, in its order; in several portions if a policy gives many pairs."""
    probe = Probe.of(spec, left, expiry_ms)
    if spec.policy is Policy.ALL:
        yield from _pick_all(slices, probe, len(left))
    else:
        yield _pick_one(spec.policy, slices, probe, len(left))


def _pick_one(policy: Policy, slices: Sequence[Slice], probe: Probe, left_rows: int) -> Picks:
    slice_of = np.full(len(probe.order), NONE, dtype=np.int64)
    row = np.full(len(probe.order), NONE, dtype=np.int64)
    search = SEARCHES[policy]
    for number, slice_ in enumerate(slices):
        if not probe.reaches(slice_):
            continue
        start, end = slice_.candidates(probe.hashes)
        rivals = np.flatnonzero(end > start)
        if len(rivals) == 0:
            continue
        picked = search(slice_, start[rivals], end[rivals], probe.time[rivals], probe.low[rivals], probe.high[rivals])
        _compare_keys(slice_, probe, rivals, start, end, picked, search)
        rivals, picked = rivals[picked != NONE], picked[picked != NONE]
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


def _compare_keys(slice_: Slice, probe: Probe, rivals: I64, start: I64, end: I64, picked: I64, search: Search) -> None:
    """If a group holds several keys and another key's record was picked, search again among the right key's."""
    hits = np.flatnonzero(picked != NONE)
    same = (slice_.frame["key"][positions(picked[hits])] == probe.keys[positions(rivals[hits])]).to_numpy()
    for i in hits[~same].tolist():
        at = int(rivals[i])
        group = np.arange(start[at], end[at])
        own = group[(slice_.frame["key"][positions(group)] == probe.keys[at : at + 1]).to_numpy()]
        picked[i] = NONE
        if len(own):
            only = Slice(
                rows_at(slice_.frame, own), slice_.hashes[own], slice_.ignored_bits, slice_.covers, slice_.marks[own]
            )
            at_ = slice(at, at + 1)
            found = search(
                only,
                np.zeros(1, np.int64),
                np.full(1, len(own), np.int64),
                probe.time[at_],
                probe.low[at_],
                probe.high[at_],
            )
            picked[i] = own[found[0]] if found[0] != NONE else NONE


def _beats(
    policy: Policy, slices: Sequence[Slice], time: I64, number: int, row: I64, rival_slice: I64, rival_row: I64
) -> Bools:
    """Where the record (slices[number], row) comes before the rival in the policy's order."""

    def ranks(s: Slice, rows: I64, time: I64) -> tuple[I64, I64, I64, I64]:
        found = s.times[rows]
        distance = np.abs(found - time) if policy is Policy.NEAREST else np.zeros(len(rows), np.int64)
        return distance, found, s.partitions[rows].astype(np.int64), s.offsets[rows]

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
    """Every pair, in left's order and for each left record in order of (time, partition, offset)."""
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
    keys = _in_left_order(probe, left_rows)
    portion = np.cumsum(np.maximum(counts, 1)) // PAIRS_AT_ONCE
    cuts = np.concatenate([[0], np.flatnonzero(portion[1:] != portion[:-1]) + 1, [left_rows]])
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        if last > first:
            yield _pairs(slices, spans, keys, first, last)


def _in_left_order(probe: Probe, left_rows: int) -> pl.Series:
    at = np.full(left_rows, NONE, dtype=np.int64)
    at[probe.order] = np.arange(len(probe.order))
    return probe.keys[positions(at, at == NONE)]


def _pairs(slices: Sequence[Slice], spans: list[tuple[int, I64, I64]], keys: pl.Series, first: int, last: int) -> Picks:
    pairs = []
    for number, starts, ends in spans:
        lengths = ends[first:last] - starts[first:last]
        left = np.repeat(np.arange(first, last, dtype=np.int64), lengths)
        within = np.arange(len(left)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        row = np.repeat(starts[first:last], lengths) + within
        slice_ = slices[number]
        same = (slice_.frame["key"][positions(row)] == keys[positions(left)]).to_numpy()
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
