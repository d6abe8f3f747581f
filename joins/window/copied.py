"""Which files of a bucket's window were copied to the checkpoint, which are still to be copied, which may go. Pure.

Only what committed batches have read is copied, up to where the present batch starts. A worker that lacks a window
fetches the files, and reads from Kafka what came after them. So several batches are copied as one file, now and then
(`EVERY_MS`), and little is read again.

    missing   what lies beyond the copies, up to where the present batch starts
    runs      which pieces become one file
    over      the copies that no batch needs any more
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from joins.window.slices import Covers
from kafkaio.times import EARLIEST_MS

T = TypeVar("T")

EVERY_MS = 10_000
"""Between two copies of a bucket: the records of this time are read again where a window is fetched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: whether it is about `left` or `right`, and what it covers."""

    name: str
    side: str
    covers: Covers


@dataclass(frozen=True, slots=True)
class Copied:
    """The copies of one bucket. at_ms: the wall clock of the batch that copied last."""

    at_ms: int = EARLIEST_MS
    entries: tuple[Entry, ...] = ()

    def is_due(self, now_ms: int) -> bool:
        """Returns whether it is time to copy again; a clock that was set back counts as such."""
        return not 0 <= now_ms - self.at_ms < EVERY_MS

    def missing(self, side: str, wanted: Covers) -> dict[int, tuple[int, int]]:
        """Returns what of these ranges lies beyond the copies. Gaps between copies are never copied later."""
        ends: dict[int, int] = {}
        for entry in self.entries:
            if entry.side == side:
                ends |= {p: max(end, ends.get(p, 0)) for p, (_, end) in entry.covers.items()}
        beyond = {p: (max(start, ends.get(p, 0)), end) for p, (start, end) in wanted.items()}
        return {p: (start, end) for p, (start, end) in beyond.items() if start < end}

    def over(self, below: Mapping[str, Mapping[int, int]]) -> tuple[Entry, ...]:
        """Returns the copies that lie entirely below these offsets, by side and partition."""
        return tuple(entry for entry in self.entries if is_below(entry.covers, below[entry.side]))

    def after(self, now_ms: int, added: Iterable[Entry] = (), over: Iterable[Entry] = ()) -> Copied:
        """Returns the copies after some were added, and those that are over were removed."""
        gone = {entry.name for entry in over}
        known = {entry.name: entry for entry in (*self.entries, *added) if entry.name not in gone}
        return Copied(now_ms, tuple(known.values()))

    def to_json(self) -> dict[str, Any]:
        """Returns what a machine keeps beside its own files."""
        entries = [
            [entry.name, entry.side, sorted((p, *span) for p, span in entry.covers.items())] for entry in self.entries
        ]
        return {"at_ms": self.at_ms, "entries": entries}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Copied:
        """Reads what `to_json` wrote."""
        entries = (
            Entry(name, side, {p: (start, end) for p, start, end in covers}) for name, side, covers in data["entries"]
        )
        return cls(data["at_ms"], tuple(entries))


def is_below(covers: Covers, below: Mapping[int, int]) -> bool:
    """Returns whether all ranges lie below these offsets; for a partition that is missing there it is 0."""
    return all(end <= below.get(p, 0) for p, (_, end) in covers.items())


def runs(
    pieces: Iterable[T], covers: Callable[[T], Covers], size: Callable[[T], int], most: int
) -> list[tuple[list[T], dict[int, tuple[int, int]]]]:
    """Groups neighbours, with what each group covers: no gaps, no overlaps, and at most this size (or one piece)."""
    found: list[tuple[list[T], dict[int, tuple[int, int]]]] = []
    filled = 0
    for piece in pieces:
        added = covers(piece)
        together, covered = found[-1] if found else ([], {})
        continues = all(covered[p][1] == start for p, (start, _) in added.items() if p in covered)
        if not together or not continues or filled + size(piece) > most:
            found.append(([piece], dict(added)))
            filled = size(piece)
            continue
        together.append(piece)
        covered |= {p: (covered.get(p, span)[0], span[1]) for p, span in added.items()}
        filled += size(piece)
    return found
