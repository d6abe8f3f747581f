"""One partition's range of a batch, from the log to the records that may go. Pure except for its reader."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from joins.admission.facts import PartitionFacts
from joins.admission.passage import Passage
from joins.admission.state import Reading
from joins.admission.ticket import Ticket
from joins.rows.intake import Intake, take_in
from joins.spec import JoinSpec
from kafkaio.producible import batch_bytes
from kafkaio.times import LATEST_MS

HELD_BYTES = 64 << 20  # of held left records, kept for the next batch; if there are more, they are fetched again
UNLIMITED_BYTES = 1 << 60

Read = Callable[[str, int, int, int], Generator[pa.RecordBatch, None, None]]
"""(side, partition, start, end) -> the readable records of the range, in the schema of `kafkaio.rangereader`."""

GiveBack = Callable[[int, list[pa.RecordBatch]], None]
"""(left partition, the records at its end that were read and held back): the next batch starts with these."""

Opened = tuple[Iterator[Intake], Callable[[], PartitionFacts]]
"""The records of a range that may go, and the partition's facts: to be asked for after the records."""

OpenRange = Callable[[str, int, int], Opened]
"""(side, partition, limit): opens the range of a ticket."""


@dataclass(frozen=True, slots=True)
class Range:
    """What the task that reads a partition needs to know.

    listed_ms, skew_ms  the wall clock when the ends were listed; a time above it by more than the skew is from the
                        future
    room_bytes          at most this many bytes are taken, plus one record
    """

    partition: int
    reading: Reading
    listed_ms: int
    skew_ms: int
    room_bytes: int = UNLIMITED_BYTES

    def opened(
        self, spec: JoinSpec, side: str, read: Read, limit_ms: int = LATEST_MS, give_back: GiveBack | None = None
    ) -> Opened:
        """Opens as much of a range as its bytes allow; of a left one, up to its first record at the limit or above.

        limit_ms, give_back  of left only
        """
        disorder_ms = spec.side(side).disorder_ms
        if side == "right":
            passage = Passage(self.reading, spec.outliers, disorder_ms)
            return self._right(spec, read, passage), passage.facts
        passage = Passage(self.reading, spec.outliers, disorder_ms, limit_ms)
        return self._left(spec, read, passage, give_back), passage.facts

    def _right(self, spec: JoinSpec, read: Read, passage: Passage) -> Iterator[Intake]:
        reading, room = self.reading, self.room_bytes
        if not reading.records:
            return
        with closing(read("right", self.partition, reading.start, reading.end)) as batches:
            for batch in batches:
                fitting, room = _fitting(batch, room)
                yield passage.admit(self._intake("right", spec, batch.slice(0, fitting)))
                if room <= 0:
                    passage.stop(batch.column("offset")[fitting - 1].as_py() + 1)
                    return

    def _left(self, spec: JoinSpec, read: Read, passage: Passage, give_back: GiveBack | None) -> Iterator[Intake]:
        reading = self.reading
        if not reading.records:
            return
        held: list[pa.RecordBatch] = []
        room = self.room_bytes
        with closing(read("left", self.partition, reading.start, reading.end)) as batches:
            for batch in batches:
                if room < UNLIMITED_BYTES and passage.cut is None:
                    fitting, room = _fitting(batch, room)
                    if room <= 0:
                        yield passage.admit(self._intake("left", spec, batch.slice(0, fitting)))
                        passage.stop(batch.column("offset")[fitting - 1].as_py() + 1)
                        return
                going = passage.admit(self._intake("left", spec, batch))
                if passage.cut is not None:
                    at = int(np.searchsorted(batch.column("offset").to_numpy(), passage.cut))
                    held += [batch.slice(at)] if at < batch.num_rows else []
                if len(going.records) or len(going.dead):
                    yield going
        if held and give_back is not None and sum(int(batch_bytes(batch).sum()) for batch in held) <= HELD_BYTES:
            give_back(self.partition, held)

    def _intake(self, name: str, spec: JoinSpec, batch: pa.RecordBatch) -> Intake:
        return take_in(name, spec.side(name), batch, self.listed_ms, self.skew_ms, self.reading.progress_ms)


def ranges_of(ticket: Ticket, side: str) -> dict[int, Range]:
    """Returns the ranges of one side, by partition. They share the room.

    On the direct path left has no limit, because its rows are written while it is read; on the shuffled path right has
    none in a batch in which left does not wait for right.
    """
    readings = ticket.bucket.side(side)
    room = UNLIMITED_BYTES
    waits = ticket.bucket.give_up_ms is None
    if (side == "right" and (ticket.parts is None or waits)) or (side == "left" and ticket.parts is not None):
        reading = sum(r.records > 0 for r in readings.values())
        room = max(ticket.right_bytes * (ticket.parts or 1) // max(reading, 1), 1)
    return {p: Range(p, reading, ticket.listed_ms, ticket.skew_ms, room) for p, reading in readings.items()}


def from_log(spec: JoinSpec, ticket: Ticket, read: Read, give_back: GiveBack | None = None) -> OpenRange:
    """Opens a ticket's ranges by reading them."""
    ranges = {side: ranges_of(ticket, side) for side in ("left", "right")}

    def opened(side: str, partition: int, limit_ms: int) -> Opened:
        return ranges[side][partition].opened(spec, side, read, limit_ms, give_back)

    return opened


def _fitting(batch: pa.RecordBatch, room: int) -> tuple[int, int]:
    """Returns how many records go until the room is used up, with the record that exceeds it; and the room left."""
    taken = np.cumsum(batch_bytes(batch))
    fitting = int(np.searchsorted(taken, room)) + 1
    return (fitting, 0) if fitting <= len(taken) else (len(taken), room - int(taken[-1:].sum()))
