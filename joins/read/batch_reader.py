"""How one bucket's batch is read: right first, then left as far as right has come. Pure except for its reader.

    right's range   is read completely, or as far as its bytes allow; it proves right's watermark
    left's range    is read; its records go up to the first one that right has not reached, the rest is held back
    left's times    prove which records of the window can no longer match

The same ticket gives the same records and the same facts, however often it is read. `Range` is one partition's part,
from the log to the records that may go; `BatchReader` puts them together, wherever their records come from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datadelay.watermark import UNKNOWN
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.rules import Limit, expiry, left_limit, right_watermark
from joins.batch.state import PartitionRange
from joins.batch.ticket import Ticket
from joins.read.parse import ParsedBatch, parse, parse_together
from joins.read.range_gate import RangeGate
from joins.spec import JoinSpec
from teacup.base.times import LATEST_MS
from teacup.kafka.records.limits import batch_bytes, fitting_rows

HELD_BYTES = 64 << 20  # the most held left records kept for the next batch; more are fetched again
UNLIMITED_BYTES = 1 << 60
PIECE_RECORDS, PIECE_BYTES = 20_000, 16 << 20
"""How much of several partitions is parsed in one piece, and of left joined, unless it is read in larger ones."""

Read = Callable[[str, int, int, int], Generator[pa.RecordBatch, None, None]]
"""(side, partition, start, end) -> the readable records of the range, in the schema of
`teacup.kafka.read.range_reader`."""

GiveBack = Callable[[int, list[pa.RecordBatch]], None]
"""(left partition, the records at its end that were read and held back): the next batch starts with these."""

Parsed = Generator[tuple[pa.RecordBatch, ParsedBatch], None, None]
"""Batches as they were read, each with what `parse` makes of it."""

Opened = tuple[Iterator[ParsedBatch], Callable[[], RangeFacts]]
"""The records of a range that may go, and a function for the partition's facts, to be called after them."""

OpenRange = Callable[[str, int, int], Opened]
"""(side, partition, limit): opens the range of a ticket."""


class BatchReader:
    """Takes the records of a ticket's ranges that may go, and finds the facts. All join kinds share it."""

    def __init__(self, spec: JoinSpec, ticket: Ticket, opened: OpenRange) -> None:
        self.spec, self._bucket, self._open = spec, ticket.bucket, opened
        self.right: dict[int, RangeFacts] = {}
        self.left: dict[int, RangeFacts] = {}

    def take_right(self) -> Iterator[tuple[int, ParsedBatch]]:
        """Takes right's records, by partition; to be consumed completely before left."""
        for p in self._bucket.right:
            parsed_batches, facts = self._open("right", p, LATEST_MS)
            for taken in parsed_batches:
                yield p, taken
            self.right[p] = facts()

    @property
    def watermark_ms(self) -> int:
        """Returns how far right is read; to be called after `take_right`."""
        watermark_ms = (facts.watermark_ms for facts in self.right.values())
        return right_watermark(watermark_ms, self._bucket.watermark_ms, self._bucket.stored_ms)

    @property
    def limit(self) -> Limit:
        """Returns which left records may go. None goes without right while the byte limit leaves right unread."""
        bucket = self._bucket
        is_cut = any(facts.end < bucket.right[p].end for p, facts in self.right.items())
        give_up_ms = None if is_cut else bucket.give_up_ms
        return left_limit(self.spec, bucket.known_watermark_ms, self.watermark_ms, give_up_ms)

    def take_left(self) -> Iterator[tuple[int, ParsedBatch]]:
        """Takes the left records that may go, by partition."""
        limit_ms = self.limit.limit_ms
        for p in self._bucket.left:
            parsed_batches, facts = self._open("left", p, limit_ms)
            for taken in parsed_batches:
                yield p, taken
            self.left[p] = facts()

    def facts(self, oldest_ms: int | None) -> BucketFacts:
        """Returns the facts once both sides are read; oldest_ms: the smallest time in the window, if any."""
        return BucketFacts(self.left, self.right, self.watermark_ms, self.expiry_ms, oldest_ms)

    @property
    def expiry_ms(self) -> int:
        """Returns the time below which right matches no left record still to come; to be called after `take_left`."""
        return expiry(self.spec.right, (facts.watermark_ms for facts in self.left.values()), self._bucket.expiry_ms)


def find_facts(spec: JoinSpec, ticket: Ticket, read: Read) -> BucketFacts:
    """Finds the facts of a batch again from the log.

    Whether the window still holds records is not known, unless every right record ever read is below the expiry.
    """
    reader = BatchReader(spec, ticket, from_log(spec, ticket, read))
    for _ in reader.take_right():
        pass
    for _ in reader.take_left():
        pass
    seen = [bound.below_ms for partition_range in ticket.bucket.right.values() for bound in partition_range.bounds]
    below_ms = max([*seen, *(facts.below_ms for facts in reader.right.values())], default=UNKNOWN)
    return reader.facts(reader.expiry_ms if below_ms > reader.expiry_ms else None)


@dataclass(frozen=True, slots=True)
class Range:
    """A partition's range, for the task that reads it.

    listed_ms, skew_ms  the wall clock when the ends were listed; a time above it by more than the skew is from the
                        future
    room_bytes          at most this many bytes are taken, plus one record
    """

    partition: int
    partition_range: PartitionRange
    listed_ms: int
    skew_ms: int
    room_bytes: int = UNLIMITED_BYTES

    def opened(
        self, spec: JoinSpec, side: str, batches: Parsed, limit_ms: int = LATEST_MS, give_back: GiveBack | None = None
    ) -> Opened:
        """Opens as much of a range as its bytes allow; a left one up to its first record at the limit or above.

        limit_ms, give_back  for left only
        """
        disorder_ms = spec.side(side).disorder_ms
        if side == "right":
            range_gate = RangeGate(self.partition_range, spec.outliers, disorder_ms)
            return self._right(spec, batches, range_gate), range_gate.facts
        range_gate = RangeGate(self.partition_range, spec.outliers, disorder_ms, limit_ms)
        return self._left(spec, batches, range_gate, give_back), range_gate.facts

    def read(self, side: str, read: Read) -> Generator[pa.RecordBatch, None, None]:
        """Yields the batches of the range."""
        if self.partition_range.records:
            yield from read(side, self.partition, self.partition_range.start, self.partition_range.end)

    def parsed(self, spec: JoinSpec, side: str, read: Read) -> Parsed:
        """Yields the batches of the range, each with what `parse` makes of it."""
        with closing(self.read(side, read)) as batches:
            for batch in batches:
                yield batch, self.parse(side, spec, batch)

    def parse(self, name: str, spec: JoinSpec, batch: pa.RecordBatch) -> ParsedBatch:
        """As `joins.read.parse`."""
        return parse(name, spec.side(name), batch, self.listed_ms, self.skew_ms, self.partition_range.watermark_ms)

    def _right(self, spec: JoinSpec, batches: Parsed, range_gate: RangeGate) -> Iterator[ParsedBatch]:
        room = self.room_bytes
        with closing(batches):
            for batch, parsed in batches:
                fitting, room = _fitting(batch, parsed, room)
                whole = fitting == batch.num_rows
                yield range_gate.admit(parsed if whole else self.parse("right", spec, batch.slice(0, fitting)))
                if room <= 0:
                    range_gate.stop(batch.column("offset")[fitting - 1].as_py() + 1)
                    return

    def _left(
        self, spec: JoinSpec, batches: Parsed, range_gate: RangeGate, give_back: GiveBack | None
    ) -> Iterator[ParsedBatch]:
        held: list[pa.RecordBatch] = []
        room = self.room_bytes
        with closing(batches):
            for batch, parsed in batches:
                if room < UNLIMITED_BYTES and range_gate.cut is None:
                    fitting, room = _fitting(batch, parsed, room)
                    if room <= 0:
                        yield range_gate.admit(self.parse("left", spec, batch.slice(0, fitting)))
                        range_gate.stop(batch.column("offset")[fitting - 1].as_py() + 1)
                        return
                going = range_gate.admit(parsed)
                if range_gate.cut is not None:
                    at = int(np.searchsorted(batch.column("offset").to_numpy(), range_gate.cut))
                    held += [batch.slice(at)] if at < batch.num_rows else []
                if len(going.records) or len(going.dead):
                    yield going
        if held and give_back is not None and sum(int(batch_bytes(batch).sum()) for batch in held) <= HELD_BYTES:
            give_back(self.partition, held)


def ranges_of(ticket: Ticket, side: str) -> dict[int, Range]:
    """Returns the ranges of one side, by partition. They share the room.

    On the direct path left has no limit, because its rows are written while it is read; on the shuffled path right has
    none in a batch in which left does not wait for right.
    """
    ranges = ticket.bucket.side(side)
    room = UNLIMITED_BYTES
    waits = ticket.bucket.give_up_ms is None
    if (side == "right" and (ticket.parts is None or waits)) or (side == "left" and ticket.parts is not None):
        sharing = sum(r.records > 0 for r in ranges.values())
        room = max(ticket.right_bytes * (ticket.parts or 1) // max(sharing, 1), 1)
    return {
        p: Range(p, partition_range, ticket.listed_ms, ticket.skew_ms, room) for p, partition_range in ranges.items()
    }


def from_log(spec: JoinSpec, ticket: Ticket, read: Read, give_back: GiveBack | None = None) -> OpenRange:
    """Opens a ticket's ranges by reading them."""
    sides = {side: RangesOfSide(spec, side, ranges_of(ticket, side), read) for side in ("left", "right")}

    def opened(side: str, partition: int, limit_ms: int) -> Opened:
        ranges = sides[side]
        return ranges.of[partition].opened(spec, side, ranges.parsed(partition), limit_ms, give_back)

    return opened


class RangesOfSide:
    """Parses small consecutive ranges together: the cost of `parse` hardly depends on the number of records.

    of   the ranges by partition, in the order in which they are read
    """

    def __init__(self, spec: JoinSpec, side: str, of: Mapping[int, Range], read: Read) -> None:
        self.of = of
        self._spec, self._side, self._read = spec, side, read
        self._ahead: dict[int, Parsed] = {}

    def parsed(self, partition: int) -> Parsed:
        """As `Range.parsed`."""
        if partition not in self._ahead:
            order = list(self.of)
            self._ahead = self._together(order[order.index(partition) :])
        return self._ahead.pop(partition, None) or self.of[partition].parsed(self._spec, self._side, self._read)

    def _together(self, partitions: list[int]) -> dict[int, Parsed]:
        """Reads and parses as many of these ranges as are small together; none if that is just one."""
        until = np.cumsum([self.of[p].partition_range.records for p in partitions])
        few = partitions[: int(np.searchsorted(until, PIECE_RECORDS, side="right"))]
        read: dict[int, list[pa.RecordBatch]] = {}
        size = 0
        while len(few) > max(len(read), 1) and size <= PIECE_BYTES:
            p = few[len(read)]
            with closing(self.of[p].read(self._side, self._read)) as batches:
                read[p] = list(batches)
            size += sum(batch.get_total_buffer_size() for batch in read[p])
        first = next(iter(self.of.values()))
        single = {p: batches[0] for p, batches in read.items() if len(batches) == 1}
        watermarks = {p: self.of[p].partition_range.watermark_ms for p in single}
        side = self._spec.side(self._side)
        parsed = parse_together(self._side, side, single, first.listed_ms, first.skew_ms, watermarks)
        return {p: self._with(p, batches, parsed.get(p)) for p, batches in read.items()}

    def _with(self, partition: int, batches: list[pa.RecordBatch], only: ParsedBatch | None) -> Parsed:
        for batch in batches:
            yield batch, only or self.of[partition].parse(self._side, self._spec, batch)


def _fitting(batch: pa.RecordBatch, parsed: ParsedBatch, room: int) -> tuple[int, int]:
    """Returns how many records fit into the room, plus the one that exceeds it, and the room left."""
    if parsed.size < room or not batch.num_rows:
        return batch.num_rows, room - parsed.size
    rows, size = fitting_rows(batch, room)
    return rows, max(room - size, 0)
