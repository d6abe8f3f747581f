"""Which pieces cover the wanted ranges, and which part of each is taken, as they may overlap. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from joins.window.slices import Covers, Slice, Span

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
    wanted: Covers, entries: Iterable[T], covers: Callable[[T], Covers], load: Callable[[T], Slice | None]
) -> list[Slice]:
    """Returns slices that cover as much of the wanted ranges as the entries do, without overlaps and in order.

    The largest are chosen first, so that there are few.

    load   the slice of an entry; None if it is lost, and its ranges are to be covered by others
    """
    missing = {p: [span] for p, span in wanted.items()}
    known = [(entry, covers(entry)) for entry in entries]
    found: list[Slice] = []
    while True:
        best: int | None = None
        part: dict[int, Span] = {}
        for at, (_, covered) in enumerate(known):
            longest = {p: _longest(span, missing.get(p, ())) for p, span in covered.items()}
            useful = {p: piece for p, piece in longest.items() if piece is not None}
            if _offsets(useful) > _offsets(part):
                best, part = at, useful
        if best is None:
            return sorted(found, key=lambda slice_: sorted(slice_.covers.items()))
        slice_ = load(known[best][0])
        if slice_ is None:
            del known[best]
            continue
        found.append(slice_.clipped(part))
        for p, span in part.items():
            missing[p] = [gap for start, end in missing[p] for gap in gaps([span], start, end)]


def in_order(slices: Iterable[Slice]) -> list[Slice]:
    """Orders the slices so that none covers offsets before those of an earlier one.

    If there is no such order, it merges them into one, because only neighbours may be merged later.
    """
    ordered = sorted(slices, key=lambda slice_: sorted(slice_.covers.items()))
    reached: dict[int, int] = {}
    for slice_ in ordered:
        for p, (start, end) in slice_.covers.items():
            if start < reached.get(p, start):
                return [Slice.merge(ordered)]
            reached[p] = end
    return ordered


def _longest(span: Span, missing: Sequence[Span]) -> Span | None:
    """Returns the longest piece of a span that is missing; None if none is."""
    pieces = [(max(span[0], start), min(span[1], end)) for start, end in missing]
    return max((piece for piece in pieces if piece[0] < piece[1]), key=lambda piece: piece[1] - piece[0], default=None)


def _offsets(covers: Covers) -> int:
    return sum(end - start for start, end in covers.values())
