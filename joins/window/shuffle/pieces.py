"""What goes through the shuffle: records in pieces, each for the part of its keys, and parts put together again. Pure.

A partition's range is fetched once for all parts of a ticket (`Fetch`), and divided. Every piece says which part it is
for:

    ticket          the part takes part in the batch, even if it has no records
    facts           how far a partition was read
    failure         why the job must end; it is for every part, as none has all its records then
    records, dead   records and dead letters, as Arrow IPC

The part of a key is its hash modulo the number of parts (`joins.rows.buckets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from joins.batch.facts import RangeFacts
from joins.batch.rules import left_limit
from joins.batch.state import PartitionRange
from joins.batch.ticket import Ticket
from joins.read.batch_reader import Opened, OpenRange, Range, Read, ranges_of
from joins.read.parse import ParsedBatch
from joins.read.range_gate import RangeGate
from joins.rows.buckets import buckets_of
from joins.rows.frames import CHUNK_BYTES, RECORD, ROW, empty_rows, in_chunks, row_bytes
from joins.spec import JoinSpec
from teacup.base.times import LATEST_MS
from teacup.spark.jvm_errors import Failure, TaskEnded

PIECE_RECORDS = 12_500
"""About how many records a piece holds: each piece is a row of the shuffle, and large rows cost the JVM more."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")

LATE = "late"
"""The column that says which records of a frame are late."""


class Content(StrEnum):
    """What a piece holds."""

    TICKET = "ticket"
    FACTS = "facts"
    RECORDS = "records"
    DEAD = "dead"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task sends to a part.

    number   its index among the pieces of its partition
    data     of records and dead letters a frame, or that as Arrow IPC; of others JSON
    """

    part: int
    content: Content
    side: str
    partition: int
    number: int
    data: bytes | pl.DataFrame

    def to_bytes(self) -> bytes:
        """Returns it as it goes through the shuffle."""
        data = frame_bytes(self.data) if isinstance(self.data, pl.DataFrame) else self.data
        return _BYTES.encode((self.part, self.content, self.side, self.partition, self.number, data))

    @classmethod
    def from_bytes(cls, data: bytes) -> Piece:
        """Reads what `to_bytes` wrote."""
        return cls(*_PIECE.decode(data))

    @property
    def json(self) -> bytes:
        """Returns what is no frame."""
        assert isinstance(self.data, bytes)
        return self.data

    @property
    def frame(self) -> pl.DataFrame:
        """Returns the records or dead letters."""
        return self.data if isinstance(self.data, pl.DataFrame) else frame_from(self.data)


_BYTES = msgspec.msgpack.Encoder()
_PIECE = msgspec.msgpack.Decoder(tuple[int, Content, str, int, int, bytes])


def ticket_pieces(ticket: Ticket) -> Iterator[Piece]:
    """Yields the ticket of each part."""
    for part in ticket.divided():
        yield Piece(part.number_of_part, Content.TICKET, "", 0, 0, msgspec.json.encode(part))


def facts_pieces(side: str, partition: int, facts: RangeFacts, parts: int) -> Iterator[Piece]:
    """Yields the facts for every part; only the first one, which reports them, gets the tail."""
    whole, others = (msgspec.json.encode(each) for each in (facts, msgspec.structs.replace(facts, tail=())))
    for part in range(parts):
        yield Piece(part, Content.FACTS, side, partition, 0, others if part else whole)


def failure_pieces(error: Exception, parts: int) -> Iterator[Piece]:
    """Yields an error for every part, each of which then raises `TaskEnded`."""
    data = Failure.of_ours(error).to_json().encode()
    return (Piece(part, Content.FAILURE, "", 0, 0, data) for part in range(parts))


def frame_bytes(frame: pl.DataFrame) -> bytes:
    """Writes these rows, without others that share their memory, as Arrow IPC; compressed, as Spark copies it often."""
    table, body = frame.to_arrow(compat_level=pl.CompatLevel.oldest()), pa.BufferOutputStream()
    with pa.ipc.new_stream(body, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return bytes(body.getvalue())


def frame_from(data: bytes) -> pl.DataFrame:
    """Reads what `frame_bytes` wrote."""
    with pa.ipc.open_stream(data) as stream:
        return pl.DataFrame(pl.from_arrow(stream.read_all()))


@dataclass(slots=True)
class ShuffledPart:
    """The pieces of one part, in any order."""

    ticket: Ticket | None = None
    facts: dict[tuple[str, int], RangeFacts] = field(default_factory=dict)
    pieces: dict[tuple[str, int], list[Piece]] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Adds a piece. Raises `TaskEnded` for a failure."""
        if piece.content is Content.FAILURE:
            raise TaskEnded(Failure.from_json(piece.json.decode()))
        if piece.content is Content.TICKET:
            self.ticket = msgspec.json.decode(piece.json, type=Ticket)
        elif piece.content is Content.FACTS:
            self.facts[piece.side, piece.partition] = msgspec.json.decode(piece.json, type=RangeFacts)
        else:
            self.pieces.setdefault((piece.side, piece.partition), []).append(piece)

    def opened(self, spec: JoinSpec) -> OpenRange:
        """Returns what opens the ticket's ranges: it gives this part's records, and frees those that were taken."""

        def opened(side: str, partition: int, limit_ms: int) -> Opened:
            assert self.ticket is not None
            partition_range = self.ticket.bucket.side(side)[partition]
            return self._taken(side, partition), lambda: self._facts(spec, side, partition, partition_range)

        return opened

    def _facts(self, spec: JoinSpec, side: str, partition: int, partition_range: PartitionRange) -> RangeFacts:
        if partition_range.records:
            return self.facts[side, partition]
        return RangeGate(partition_range, spec.outliers, spec.side(side).disorder_ms).facts()

    def _taken(self, side: str, partition: int) -> Iterator[ParsedBatch]:
        pieces = self.pieces.pop((side, partition), [])
        pieces.sort(key=lambda piece: (piece.content is not Content.DEAD, piece.number))
        for piece in pieces:
            yield _parsed_of(piece)


def _parsed_of(piece: Piece) -> ParsedBatch:
    frame = piece.frame
    if piece.content is Content.DEAD:
        dead, frame = frame.cast(ROW), pl.DataFrame(schema={**RECORD, LATE: pl.Boolean()})
    else:
        dead = empty_rows()
    proves = np.zeros(len(frame), np.bool_)  # the fetching task has noted what they prove
    return ParsedBatch(piece.side, frame.drop(LATE).cast(RECORD), frame[LATE], proves, dead, LATEST_MS)


def parts_of(pieces: Iterable[Piece]) -> Iterator[ShuffledPart]:
    """Yields the parts of a batch in order. Raises `TaskEnded` before the first if a piece reports a failure."""
    parts: dict[int, ShuffledPart] = {}
    for piece in pieces:
        parts.setdefault(piece.part, ShuffledPart()).add(piece)
    yield from (part for _, part in sorted(parts.items()))


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
        known_ms = ticket.bucket.known_watermark_ms  # before right is read
        limit_ms = left_limit(spec, known_ms, known_ms, ticket.bucket.give_up_ms).limit_ms
        return [
            cls(side, range_, limit_ms, ticket.parts or 1)
            for side in ("right", "left")
            for range_ in ranges_of(ticket, side).values()
            if range_.partition_range.records
        ]

    def pieces(self, spec: JoinSpec, read: Read) -> Iterator[Piece]:
        """Yields the records that may go, by part, and the facts for every part."""
        parsed_batches, facts = self.range.opened(
            spec, self.side, self.range.parsed(spec, self.side, read), self.limit_ms
        )
        dividing = _Dividing(self)
        for taken in parsed_batches:
            yield from dividing.add(taken)
        yield from dividing.rest()
        yield from facts_pieces(self.side, self.range.partition, facts(), self.parts)


class FetchTask(msgspec.Struct, omit_defaults=True):
    """What a task does: either divides a ticket, or fetches a range."""

    ticket: Ticket | None = None
    fetch: Fetch | None = None


@dataclass(slots=True)
class _Dividing:
    """Collects records until there are enough of them, and divides them by key.

    So are dead letters; as they match nothing, all go to one part.
    """

    fetch: Fetch
    number: int = 0
    records: list[pl.DataFrame] = field(default_factory=list)
    dead: list[pl.DataFrame] = field(default_factory=list)
    collected: int = 0
    collected_bytes: int = 0
    dead_bytes: int = 0

    def add(self, taken: ParsedBatch) -> Iterator[Piece]:
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
        return Piece(part, content, self.fetch.side, self.fetch.range.partition, self.number, frame)
