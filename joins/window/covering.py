"""Which slices cover the wanted ranges, and which were copied to the checkpoint. Pure.

`chosen` covers ranges with slices, without overlaps; `gaps` is what remains.

Only what committed batches have read is copied, up to where the present batch starts. A worker that lacks a window
fetches the files, and reads from Kafka what came after them. Several batches are copied as one file, every `EVERY_MS`:

    missing   what lies beyond the copies, up to where the present batch starts
    runs      which pieces become one file
    obsolete  the copies that no batch needs any longer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from joins.window.slices import OffsetRanges, Slice, Span
from teacup.base.times import EARLIEST_MS

T = TypeVar("T")


def gaps(spans: Iterable[Span], start: int, end: int) -> Iterator[Span]:
    """Yields the parts of [start, end) that no span covers."""
    for first, last in sorted(spans):
        if start >= end:
            return
        if first > start:
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end


def chosen(
    wanted: OffsetRanges,
    entries: Iterable[T],
    offset_ranges: Callable[[T], OffsetRanges],
    load: Callable[[T], Slice | None],
) -> list[Slice]:
    """Returns slices that cover as much of the wanted ranges as the entries do, without overlaps and in order.

    The largest are chosen first, so that there are few.

    load   returns the slice of an entry; None if it is lost, and others have to cover its ranges
    """
    missing = {p: [span] for p, span in wanted.items()}
    with_ranges = [(entry, offset_ranges(entry)) for entry in entries]
    taken: list[Slice] = []
    while True:
        best: int | None = None
        part: dict[int, Span] = {}
        for at, (_, covered) in enumerate(with_ranges):
            longest = {p: _longest(span, missing.get(p, ())) for p, span in covered.items()}
            useful = {p: piece for p, piece in longest.items() if piece is not None}
            if _offsets(useful) > _offsets(part):
                best, part = at, useful
        if best is None:
            return sorted(taken, key=lambda slice_: sorted(slice_.offset_ranges.items()))
        slice_ = load(with_ranges[best][0])
        if slice_ is None:
            del with_ranges[best]
            continue
        taken.append(slice_.clipped(part))
        for p, span in part.items():
            missing[p] = [gap for start, end in missing[p] for gap in gaps([span], start, end)]


def in_order(slices: Iterable[Slice]) -> list[Slice]:
    """Orders the slices so that none covers offsets before those of an earlier one.

    If there is no such order, it merges them into one, as only neighbours may be merged later.
    """
    ordered = sorted(slices, key=lambda slice_: sorted(slice_.offset_ranges.items()))
    reached: dict[int, int] = {}
    for slice_ in ordered:
        for p, (start, end) in slice_.offset_ranges.items():
            if start < reached.get(p, start):
                return [Slice.merge(ordered)]
            reached[p] = end
    return ordered


def _longest(span: Span, missing: Sequence[Span]) -> Span | None:
    """Returns the longest piece of a span that is missing; None if none is."""
    pieces = [(max(span[0], start), min(span[1], end)) for start, end in missing]
    return max((piece for piece in pieces if piece[0] < piece[1]), key=lambda piece: piece[1] - piece[0], default=None)


def _offsets(offset_ranges: OffsetRanges) -> int:
    return sum(end - start for start, end in offset_ranges.values())


EVERY_MS = 10_000
"""The pause between two copies of a bucket: where a window is fetched, the records of this time are read again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its side, `left` or `right`, and what it covers."""

    name: str
    side: str
    offset_ranges: OffsetRanges


@dataclass(frozen=True, slots=True)
class Copied:
    """The copies of one bucket. at_ms: the wall clock of the batch that copied last."""

    at_ms: int = EARLIEST_MS
    entries: tuple[Entry, ...] = ()

    def is_due(self, now_ms: int) -> bool:
        """Returns whether it is time to copy again, also if the clock was set back."""
        return not 0 <= now_ms - self.at_ms < EVERY_MS

    def missing(self, side: str, wanted: OffsetRanges) -> dict[int, tuple[int, int]]:
        """Returns the parts of these ranges beyond the copies. Gaps between copies are never copied later."""
        ends: dict[int, int] = {}
        for entry in self.entries:
            if entry.side == side:
                ends |= {p: max(end, ends.get(p, 0)) for p, (_, end) in entry.offset_ranges.items()}
        beyond = {p: (max(start, ends.get(p, 0)), end) for p, (start, end) in wanted.items()}
        return {p: (start, end) for p, (start, end) in beyond.items() if start < end}

    def obsolete(self, below: Mapping[str, Mapping[int, int]]) -> tuple[Entry, ...]:
        """Returns the copies that lie entirely below these offsets, by side and partition."""
        return tuple(entry for entry in self.entries if is_below(entry.offset_ranges, below[entry.side]))

    def after(self, now_ms: int, added: Iterable[Entry] = (), obsolete: Iterable[Entry] = ()) -> Copied:
        """Returns the copies after adding some and removing obsolete ones."""
        gone = {entry.name for entry in obsolete}
        by_name = {entry.name: entry for entry in (*self.entries, *added) if entry.name not in gone}
        return Copied(now_ms, tuple(by_name.values()))


def is_below(offset_ranges: OffsetRanges, below: Mapping[int, int]) -> bool:
    """Returns whether all ranges lie below these offsets (0 for a partition without one)."""
    return all(end <= below.get(p, 0) for p, (_, end) in offset_ranges.items())


def runs(
    pieces: Iterable[T], offset_ranges: Callable[[T], OffsetRanges], size: Callable[[T], int], most: int
) -> list[tuple[list[T], dict[int, tuple[int, int]]]]:
    """Groups neighbours, with what each group covers: no gaps, no overlaps, and at most this size (or one piece)."""
    groups: list[tuple[list[T], dict[int, tuple[int, int]]]] = []
    filled = 0
    for piece in pieces:
        added = offset_ranges(piece)
        together, covered = groups[-1] if groups else ([], {})
        continues = all(covered[p][1] == start for p, (start, _) in added.items() if p in covered)
        if not together or not continues or filled + size(piece) > most:
            groups.append(([piece], dict(added)))
            filled = size(piece)
            continue
        together.append(piece)
        covered |= {p: (covered.get(p, span)[0], span[1]) for p, span in added.items()}
        filled += size(piece)
    return groups
