"""A slice: an immutable, indexed piece of the window, the right records that batches added to one bucket. Pure.

Records are sorted by (hash of the key, time, partition, offset), so all candidates of a left record are adjacent, in
order of time. A probe is one search for the key's group, and one for the time within it. Groups are distinguished by
the leading bits of the hash (as many as fit beside the row number: sorting one integer that holds both costs a tenth of
an argsort). Two keys may therefore share a group; whoever takes a record compares the keys.

`marks` is one bit per record: it appears in an output row. It is the only part of a slice that changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.rows.frames import I64, RECORD, Bools, row_bytes, rows_at, rows_where
from teacup.base.times import EARLIEST_MS

U64 = npt.NDArray[np.uint64]
Span = tuple[int, int]
"""Offsets [start, end)."""
OffsetRanges = Mapping[int, Span]
"""By partition."""

SLICE_BYTES = 64 << 20
"""About the largest slice that is built from several others, or from a range that is read again."""
HASH_SEED = 20150331
HASH_VERSION = f"polars-{pl.__version__}-{HASH_SEED}"
"""Polars does not promise a hash that is stable across versions: a slice written with another version is rebuilt."""


APART = np.uint64(0x9E3779B97F4A7C15)
"""An odd number, by which partitions change hashes."""


def key_hashes(records: pl.DataFrame, *, apart: bool = False) -> U64:
    """Returns a 64-bit hash of each record's key, the same in every process that has this version of polars.

    apart   equal keys in different partitions get different hashes
    """
    hashes = records["key"].hash(HASH_SEED).to_numpy()
    return hashes ^ (records["partition"].to_numpy().astype(np.uint64) * APART) if apart else hashes


def grouped_order(hashes: U64) -> tuple[I64, int]:
    """Returns the stable order by the leading bits of the hashes, and how many trailing bits it ignores."""
    ignored = max(len(hashes) - 1, 1).bit_length()
    low = np.uint64((1 << ignored) - 1)
    packed = (hashes & ~low) | np.arange(len(hashes), dtype=np.uint64)
    packed.sort()
    return (packed & low).astype(np.int64), ignored


def lower_bound(values: I64, start: I64, end: I64, wanted: I64) -> I64:
    """Returns for each i the first position in [start[i], end[i]) with a value >= wanted[i]; end[i] if none has."""
    low, high = start.copy(), end.copy()
    longest = int((high - low).max(initial=0))
    for _ in range(longest.bit_length()):
        middle = (low + high) >> 1
        below = (low < high) & (values[np.minimum(middle, len(values) - 1)] < wanted)
        high = np.where(below | (low >= high), high, middle)
        low = np.where(below, middle + 1, low)
    return low


@dataclass(eq=False)
class Slice:
    """Right records in the order described above, and their marks.

    frame         the records (`frames.RECORD`)
    hashes        the hash of each record's key
    ignored_bits  how many trailing bits of the hash do not distinguish groups
    offset_ranges the offsets [start, end) of each partition that the slice covers; it holds the records in them that
                  had not expired when it was built
    in_file       it is in a file; unless it is small, its memory is that file, mapped, and shared by all who read it
    since_ms      records below it may be missing, as they had expired
    """

    frame: pl.DataFrame
    hashes: U64
    ignored_bits: int
    offset_ranges: dict[int, Span]
    marks: Bools
    in_file: bool = False
    since_ms: int = EARLIEST_MS

    @classmethod
    def build(
        cls,
        records: pl.DataFrame,
        offset_ranges: dict[int, Span],
        marks: Bools | None = None,
        since_ms: int = EARLIEST_MS,
        hashes: U64 | None = None,
    ) -> Slice:
        """Indexes records that have a key and a time, in any order; hashes: of their keys, if they are known."""
        hashes = key_hashes(records) if hashes is None else hashes
        times, partitions = records["time"].to_numpy(), records["partition"].to_numpy()
        marks = np.zeros(len(records), dtype=np.bool_) if marks is None else marks
        offsets = records["offset"].to_numpy()
        later = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (offsets[1:] > offsets[:-1]))
        if (partitions[1:] != partitions[:-1]).any() or not later.all():
            by_time = np.lexsort((offsets, partitions, times))
            records, marks, hashes = rows_at(records, by_time), marks[by_time], hashes[by_time]
        order, ignored_bits = grouped_order(hashes)
        return cls(rows_at(records, order), hashes[order], ignored_bits, offset_ranges, marks[order], since_ms=since_ms)

    @classmethod
    def nothing(cls, offset_ranges: OffsetRanges, since_ms: int) -> Slice:
        """Returns a slice that covers ranges without live records."""
        return cls.build(pl.DataFrame(schema=RECORD), dict(offset_ranges), since_ms=since_ms)

    @classmethod
    def merge(cls, slices: Sequence[Slice]) -> Slice:
        """Merges several neighbours into one slice, marks included."""
        offset_ranges: dict[int, tuple[int, int]] = {}
        for slice_ in slices:
            for p, (start, end) in slice_.offset_ranges.items():
                span = offset_ranges.get(p, (start, end))
                offset_ranges[p] = (min(span[0], start), max(span[1], end))
        # An empty slice may lack the column of the records' own keys.
        frames = [slice_.frame for slice_ in slices if len(slice_)] or [slices[0].frame]
        frame = pl.concat(frames, rechunk=True)
        marks, hashes = (np.concatenate(column) for column in zip(*((s.marks, s.hashes) for s in slices), strict=True))
        return cls.build(frame, offset_ranges, marks, max(slice_.since_ms for slice_ in slices), hashes)

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def times(self) -> I64:
        """The event time of each record, in milliseconds."""
        return self.frame["time"].to_numpy()

    @cached_property
    def partitions(self) -> npt.NDArray[np.int32]:
        """The partition of each record."""
        return self.frame["partition"].to_numpy()

    @cached_property
    def offsets(self) -> I64:
        """The offset of each record."""
        return self.frame["offset"].to_numpy()

    @cached_property
    def record_bytes(self) -> npt.NDArray[np.int32]:
        """The bytes of key, value and headers of each record."""
        return row_bytes(self.frame).astype(np.int32)

    @cached_property
    def data_bytes(self) -> int:
        """About how many bytes the columns take."""
        return int(self.frame.estimated_size())

    @cached_property
    def span(self) -> tuple[int, int]:
        """The smallest and the largest time in it."""
        return int(self.times.min()), int(self.times.max())

    @cached_property
    def _groups(self) -> tuple[U64, I64]:
        """The hash of each group, and where each group starts (plus, at the end, where the last one ends)."""
        grouped = self.hashes >> np.uint64(self.ignored_bits)
        starts = np.concatenate([[0], np.flatnonzero(grouped[1:] != grouped[:-1]) + 1]).astype(np.int64)
        return grouped[starts], np.append(starts, len(grouped))

    def candidates(self, sorted_hashes: U64) -> tuple[I64, I64]:
        """Returns for each hash (fastest if ascending) the rows [start, end) of its group; both 0 if there is none."""
        groups, starts = self._groups
        wanted = sorted_hashes >> np.uint64(self.ignored_bits)
        at = np.searchsorted(groups, wanted)
        at[at == len(groups)] = 0
        is_key = groups[at] == wanted
        return np.where(is_key, starts[at], 0), np.where(is_key, starts[at + 1], 0)

    @cached_property
    def _row_by_position(self) -> tuple[npt.NDArray[np.int32], I64, I64]:
        order = np.lexsort((self.offsets, self.partitions))
        return self.partitions[order], self.offsets[order], order

    def mark(self, partition: int, offsets: I64) -> None:
        """Sets the marks of the records at these offsets; ignores offsets that the slice does not hold."""
        partitions, positions, order = self._row_by_position
        start, end = np.searchsorted(partitions, [partition, partition + 1])
        at = np.searchsorted(positions[start:end], offsets)
        inside = at < end - start
        at, offsets = at[inside] + start, offsets[inside]
        self.marks[order[at[positions[at] == offsets]]] = True

    def live(self, expired_ms: int) -> int:
        """Returns how many of its records have this time or a later one."""
        if len(self) == 0 or self.span[0] >= expired_ms:
            return len(self)
        return int(np.count_nonzero(self.times >= expired_ms))

    def oldest_ms(self, expired_ms: int) -> int | None:
        """Returns the smallest time of its records that is not below `expired_ms`; None if there is none."""
        if len(self) == 0 or self.span[1] < expired_ms:
            return None
        if self.span[0] >= expired_ms:
            return self.span[0]
        return int(self.times[self.times >= expired_ms].min())

    def since(self, time_ms: int) -> Slice | None:
        """Returns the slice without its records below a time; itself if there are none, None if nothing remains."""
        if len(self) == 0 or self.span[1] < time_ms:
            return None
        if self.span[0] >= time_ms:
            return self
        keep = self.times >= time_ms
        return replace(self._filtered(keep), since_ms=max(time_ms, self.since_ms))

    def clipped(self, offset_ranges: OffsetRanges) -> Slice:
        """Returns the slice without the records outside these ranges, which lie within its own."""
        if offset_ranges == {p: span for p, span in self.offset_ranges.items() if span[0] < span[1]}:
            return self
        keep = np.zeros(len(self), np.bool_)
        for p, (start, end) in offset_ranges.items():
            keep |= (self.partitions == p) & (self.offsets >= start) & (self.offsets < end)
        return replace(self._filtered(keep), offset_ranges=dict(offset_ranges))

    def _filtered(self, keep: Bools) -> Slice:
        frame, hashes = rows_where(self.frame, keep), self.hashes[keep]
        return Slice(frame, hashes, self.ignored_bits, self.offset_ranges, self.marks[keep], since_ms=self.since_ms)

    def check(self) -> None:
        """Raises AssertionError if the invariants do not hold (for tests)."""
        assert len(self.frame) == len(self.hashes) == len(self.marks)
        rows = list(
            zip(
                (self.hashes >> np.uint64(self.ignored_bits)).tolist(),
                self.times.tolist(),
                self.partitions.tolist(),
                self.offsets.tolist(),
                strict=True,
            )
        )
        assert rows == sorted(rows)
        both_hashes = (key_hashes(self.frame, apart=apart) for apart in (False, True))
        assert any((self.hashes == hashes).all() for hashes in both_hashes)
        for p, offset in zip(self.partitions.tolist(), self.offsets.tolist(), strict=True):
            assert self.offset_ranges[p][0] <= offset < self.offset_ranges[p][1]
