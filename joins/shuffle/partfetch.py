"""A partition's range, fetched once for all parts; each record goes to the part of its key. Pure but for its reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from joins.admission.ranges import Range, Read, ranges_of
from joins.admission.rules import left_limit
from joins.admission.state import readings_from, readings_json
from joins.admission.ticket import Ticket
from joins.rows.chunks import CHUNK_BYTES, in_chunks, row_bytes
from joins.rows.intake import Intake
from joins.rows.placing import buckets_of
from joins.shuffle.pieces import LATE, Content, Piece, facts_pieces, frame_bytes
from joins.spec import JoinSpec

PIECE_RECORDS = 12_500
"""About how many records a piece holds: each costs a row of the shuffle, and large rows cost the JVM more."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One partition's range of a batch, and how far left may go."""

    side: str
    range: Range
    limit_ms: int
    parts: int

    @classmethod
    def all_of(cls, spec: JoinSpec, ticket: Ticket) -> list[Fetch]:
        """Returns a fetch for every partition that has something to read."""
        known_ms = ticket.bucket.known_frontier_ms  # nothing of right is read yet
        limit_ms = left_limit(spec, known_ms, known_ms, ticket.bucket.give_up_ms).limit_ms
        return [
            cls(side, range_, limit_ms, ticket.parts or 1)
            for side in ("right", "left")
            for range_ in ranges_of(ticket, side).values()
            if range_.reading.records
        ]

    def pieces(self, spec: JoinSpec, read: Read) -> Iterator[Piece]:
        """Yields the records that may go, by part, and the facts for every part."""
        intakes, facts = self.range.opened(spec, self.side, read, self.limit_ms)
        dividing = _Dividing(self)
        for taken in intakes:
            yield from dividing.add(taken)
        yield from dividing.rest()
        yield from facts_pieces(self.side, self.range.partition, facts(), self.parts)

    def to_json(self) -> dict[str, Any]:
        """Returns what a task gets."""
        range_ = self.range
        return {
            "side": self.side,
            "reading": readings_json({range_.partition: range_.reading}),
            "listed_ms": range_.listed_ms,
            "skew_ms": range_.skew_ms,
            "room_bytes": range_.room_bytes,
            "limit_ms": self.limit_ms,
            "parts": self.parts,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fetch:
        """Reads what `to_json` wrote."""
        ((partition, reading),) = readings_from(data["reading"]).items()
        range_ = Range(partition, reading, data["listed_ms"], data["skew_ms"], data["room_bytes"])
        return cls(data["side"], range_, data["limit_ms"], data["parts"])


@dataclass(slots=True)
class _Dividing:
    """Collects records until there are enough of them, and divides them by key.

    Dead letters are collected likewise. They match nothing, so all of them go to one part.
    """

    fetch: Fetch
    number: int = 0
    records: list[pl.DataFrame] = field(default_factory=list)
    dead: list[pl.DataFrame] = field(default_factory=list)
    collected: int = 0
    collected_bytes: int = 0
    dead_bytes: int = 0

    def add(self, taken: Intake) -> Iterator[Piece]:
        if len(taken.dead):
            self.dead.append(taken.dead)
            self.dead_bytes += int(row_bytes(taken.dead).sum())
        if len(taken.records):
            self.records.append(taken.records.with_columns(taken.late.alias(LATE)))
            self.collected += len(taken.records)
            self.collected_bytes += int(row_bytes(taken.records).sum())
        if self.collected >= PIECE_RECORDS * self.fetch.parts or self.collected_bytes >= CHUNK_BYTES:
            yield from self._records()
        if self.dead_bytes >= CHUNK_BYTES:
            yield from self._dead()

    def rest(self) -> Iterator[Piece]:
        yield from self._records()
        yield from self._dead()

    def _dead(self) -> Iterator[Piece]:
        if not self.dead:
            return
        frame = pl.concat(self.dead)
        self.dead, self.dead_bytes = [], 0
        part = self.fetch.range.partition % self.fetch.parts
        for rows in in_chunks(frame):
            yield self._piece(part, Content.DEAD, rows)

    def _records(self) -> Iterator[Piece]:
        if not self.records:
            return
        frame = pl.concat(self.records)
        self.records, self.collected, self.collected_bytes = [], 0, 0
        parts = buckets_of(frame, self.fetch.parts)
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(self.fetch.parts + 1))
        for part in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
            yield self._piece(part, Content.RECORDS, frame[order[bounds[part] : bounds[part + 1]]])

    def _piece(self, part: int, content: Content, frame: pl.DataFrame) -> Piece:
        self.number += 1
        return Piece(part, content, self.fetch.side, self.fetch.range.partition, self.number, frame_bytes(frame))
