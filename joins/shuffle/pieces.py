"""What goes through the shuffle, and how the pieces of a part are put together again. Pure.

Every piece says which part it is for.

    ticket          the part takes part in the batch, even if it has no records
    facts           how far a partition was read
    failure         why the job must end; it is for every part, as none has all its records then
    records, dead   records and dead letters, as Arrow IPC
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa

from joins.admission.facts import PartitionFacts, pairs
from joins.admission.passage import Passage
from joins.admission.ranges import Opened, OpenRange
from joins.admission.state import Reading
from joins.admission.ticket import Ticket
from joins.rows.intake import Intake
from joins.rows.records import RECORD, ROW, empty_rows
from joins.spec import JoinSpec
from kafkaio.times import LATEST_MS
from sparkio.crossing import Failure, TaskEnded

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")

LATE = "late"
"""The column of a frame of records that says which of them are late."""


class Content(StrEnum):
    """What a piece holds."""

    TICKET = "ticket"
    FACTS = "facts"
    RECORDS = "records"
    DEAD = "dead"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a task sends to a part. number: its place among the pieces of its partition."""

    part: int
    content: Content
    side: str
    partition: int
    number: int
    data: bytes


def ticket_pieces(ticket: Ticket) -> Iterator[Piece]:
    """Yields the ticket of each part."""
    for part in ticket.divided():
        yield Piece(part.number_of_part, Content.TICKET, "", 0, 0, json.dumps(part.to_json()).encode())


def facts_pieces(side: str, partition: int, facts: PartitionFacts, parts: int) -> Iterator[Piece]:
    """Yields the facts for every part; only the first one, which reports them, gets the tail."""
    for part in range(parts):
        values = asdict(facts) if part == 0 else {**asdict(facts), "tail": ()}
        yield Piece(part, Content.FACTS, side, partition, 0, json.dumps(values).encode())


def failure_pieces(error: Exception, parts: int) -> Iterator[Piece]:
    """Yields an error, one of ours, for every part, which then raises `TaskEnded`."""
    data = Failure.of_ours(error).to_json().encode()
    return (Piece(part, Content.FAILURE, "", 0, 0, data) for part in range(parts))


def frame_bytes(frame: pl.DataFrame) -> bytes:
    """Writes these rows alone, even if they share memory, as Arrow IPC; compressed, because Spark copies it often."""
    table, body = frame.to_arrow(compat_level=pl.CompatLevel.oldest()), pa.BufferOutputStream()
    with pa.ipc.new_stream(body, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    return bytes(body.getvalue())


def frame_of(data: bytes) -> pl.DataFrame:
    """Reads what `frame_bytes` wrote."""
    with pa.ipc.open_stream(data) as stream:
        return pl.DataFrame(pl.from_arrow(stream.read_all()))


@dataclass(slots=True)
class ShuffledPart:
    """The pieces of one part, in any order."""

    ticket: Ticket | None = None
    facts: dict[tuple[str, int], PartitionFacts] = field(default_factory=dict)
    pieces: dict[tuple[str, int], list[Piece]] = field(default_factory=dict)

    def add(self, piece: Piece) -> None:
        """Adds a piece. Raises `TaskEnded` for that of a failure."""
        if piece.content is Content.FAILURE:
            raise TaskEnded(Failure.from_json(piece.data.decode()))
        if piece.content is Content.TICKET:
            self.ticket = Ticket.from_json(json.loads(piece.data))
        elif piece.content is Content.FACTS:
            values = json.loads(piece.data)
            values |= {"tail": tuple(values["tail"]), "schemas": pairs(values["schemas"])}
            self.facts[piece.side, piece.partition] = PartitionFacts(**values)
        else:
            self.pieces.setdefault((piece.side, piece.partition), []).append(piece)

    def opened(self, spec: JoinSpec) -> OpenRange:
        """Returns what opens the ranges of the ticket: gives the records of this part, and frees what was taken."""

        def opened(side: str, partition: int, limit_ms: int) -> Opened:
            assert self.ticket is not None
            reading = self.ticket.bucket.side(side)[partition]
            return self._taken(side, partition), lambda: self._facts(spec, side, partition, reading)

        return opened

    def _facts(self, spec: JoinSpec, side: str, partition: int, reading: Reading) -> PartitionFacts:
        if reading.records:
            return self.facts[side, partition]
        return Passage(reading, spec.outliers, spec.side(side).disorder_ms).facts()

    def _taken(self, side: str, partition: int) -> Iterator[Intake]:
        pieces = self.pieces.pop((side, partition), [])
        pieces.sort(key=lambda piece: (piece.content is not Content.DEAD, piece.number))
        for piece in pieces:
            yield _intake_of(piece)


def _intake_of(piece: Piece) -> Intake:
    frame = frame_of(piece.data)
    if piece.content is Content.DEAD:
        dead, frame = frame.cast(ROW), pl.DataFrame(schema={**RECORD, LATE: pl.Boolean()})
    else:
        dead = empty_rows()
    proves = np.zeros(len(frame), np.bool_)  # the task that fetched them has noted what they prove
    return Intake(piece.side, frame.drop(LATE).cast(RECORD), frame[LATE], proves, dead, LATEST_MS)


def parts_of(pieces: Iterable[Piece]) -> Iterator[ShuffledPart]:
    """Yields the parts of a batch, in order. Raises `TaskEnded` before the first if a piece says so."""
    parts: dict[int, ShuffledPart] = {}
    for piece in pieces:
        parts.setdefault(piece.part, ShuffledPart()).add(piece)
    yield from (part for _, part in sorted(parts.items()))
