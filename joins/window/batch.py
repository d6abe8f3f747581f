"""One batch of one bucket: read right, make it a slice, read left, match it, expire. Pure except for its reader.

    right's range   is read completely, or as far as its bytes allow; it proves right's frontier
    left's range    is read, and goes up to the first record that right has not reached; the rest is held back
    left's times    prove which records of the window can no longer match

Running it again with the same ticket and the same window gives the same rows and the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa

from datadelay.progress import UNKNOWN
from joins.admission.facts import BucketFacts, PartitionFacts
from joins.admission.passage import Limit, Passage, expiry_of, frontier_of
from joins.admission.state import Reading
from joins.admission.ticket import Ticket
from joins.rows.intake import Intake, take_in
from joins.rows.records import RECORD, rows_about
from joins.spec import JoinSpec, Side
from joins.summary import BucketSummary, Newest
from joins.window.slices import I64, Slice
from joins.window.window import JoinedRight, Window
from kafkaio.producible import batch_bytes

HELD_BYTES = 64 << 20  # of held left records, kept for the next batch; if there are more, they are fetched again

Read = Callable[[str, int, int, int], Generator[pa.RecordBatch, None, None]]
"""(side, partition, start, end) -> the readable records of the range, in the schema of `kafkaio.messages`."""

GiveBack = Callable[[int, list[pa.RecordBatch]], None]
"""(left partition, the records at its end that were read and held back): the next batch starts with these."""


class BatchReader:
    """Reads a ticket's ranges, yields the records that may go, and finds the facts: shared by all flavours."""

    def __init__(self, spec: JoinSpec, ticket: Ticket, read: Read, give_back: GiveBack | None = None) -> None:
        self._spec, self._ticket, self._read, self._give_back = spec, ticket, read, give_back
        self.right: dict[int, PartitionFacts] = {}
        self.left: dict[int, PartitionFacts] = {}

    def take_right(self) -> Iterator[tuple[int, Intake]]:
        """Right's batches, by partition; to be consumed completely before left."""
        for p, reading in self._ticket.bucket.right.items():
            passage = Passage(reading, self._spec.outliers, self._spec.right.disorder_ms)
            for taken in self._taken_right(p, passage):
                yield p, taken
            self.right[p] = passage.facts()

    @property
    def frontier_ms(self) -> int:
        return frontier_of(self._ticket.bucket, self.right.values())

    @property
    def limit(self) -> Limit:
        """No left record goes without right while right has records left unread because of the byte limit."""
        bucket = self._ticket.bucket
        if any(facts.end < bucket.right[p].end for p, facts in self.right.items()):
            bucket = replace(bucket, give_up_ms=None)
        return Limit.of(self._spec, bucket, self.frontier_ms)

    def take_left(self) -> Iterator[tuple[int, Intake]]:
        """The left records that may go, by partition."""
        limit_ms = self.limit.limit_ms
        for p, reading in self._ticket.bucket.left.items():
            passage = Passage(reading, self._spec.outliers, self._spec.left.disorder_ms, limit_ms)
            for taken in self._taken_left(p, passage):
                yield p, taken
            self.left[p] = passage.facts()

    def facts(self, oldest_ms: int | None) -> BucketFacts:
        """To be called after both sides are read; oldest_ms: the smallest time in the window, None if it is empty."""
        return BucketFacts(self.left, self.right, self.frontier_ms, self.expiry_ms, oldest_ms)

    @property
    def expiry_ms(self) -> int:
        return expiry_of(self._spec, self._ticket.bucket, self.left)

    def _taken_right(self, partition: int, passage: Passage) -> Iterator[Intake]:
        reading, ticket = passage.reading, self._ticket
        if not reading.records:
            return
        room = ticket.right_bytes // sum(r.records > 0 for r in ticket.bucket.right.values())
        with closing(self._read("right", partition, reading.start, reading.end)) as batches:
            for batch in batches:
                fitting, room = _fitting(batch, room)
                yield passage.admit(self._intake("right", self._spec.right, batch.slice(0, fitting), reading))
                if room <= 0:
                    passage.stop(batch.column("offset")[fitting - 1].as_py() + 1)
                    return

    def _taken_left(self, partition: int, passage: Passage) -> Iterator[Intake]:
        reading = passage.reading
        if not reading.records:
            return
        held: list[pa.RecordBatch] = []
        for batch in self._read("left", partition, reading.start, reading.end):
            going = passage.admit(self._intake("left", self._spec.left, batch, reading))
            if passage.cut is not None:
                at = int(np.searchsorted(batch.column("offset").to_numpy(), passage.cut))
                held += [batch.slice(at)] if at < batch.num_rows else []
            if len(going.records) or len(going.dead):
                yield going
        if held and self._give_back is not None and sum(int(batch_bytes(one).sum()) for one in held) <= HELD_BYTES:
            self._give_back(partition, held)

    def _intake(self, name: str, side: Side, batch: pa.RecordBatch, reading: Reading) -> Intake:
        return take_in(name, side, batch, self._ticket.listed_ms, self._ticket.skew_ms, reading.progress_ms)


def _fitting(batch: pa.RecordBatch, room: int) -> tuple[int, int]:
    """How many records go until the room is used up, including the one that exceeds it; and the room that is left."""
    taken = np.cumsum(batch_bytes(batch))
    fitting = int(np.searchsorted(taken, room)) + 1
    return (fitting, 0) if fitting <= len(taken) else (len(taken), room - int(taken[-1:].sum()))


def find_facts(spec: JoinSpec, ticket: Ticket, read: Read) -> BucketFacts:
    """The facts of a batch, found again from the log.

    Whether the window still holds records is not known, unless every right record ever read is below the expiry.
    """
    reader = BatchReader(spec, ticket, read)
    for _ in reader.take_right():
        pass
    for _ in reader.take_left():
        pass
    seen = [bound.below_ms for reading in ticket.bucket.right.values() for bound in reading.bounds]
    below_ms = max([*seen, *(facts.below_ms for facts in reader.right.values())], default=UNKNOWN)
    return reader.facts(reader.expiry_ms if below_ms > reader.expiry_ms else None)


class BatchJoin:
    """Carries out one bucket's part of an admission on the window that earlier batches left.

    slice   what the batch added to the window, before any of it expired
    joined  by left partition, the live right records (offsets by partition) that its range was joined with
    facts   available once all rows were taken
    """

    def __init__(
        self,
        spec: JoinSpec,
        ticket: Ticket,
        window: Window,
        read: Read,
        newest: Newest | None = None,
        give_back: GiveBack | None = None,
    ) -> None:
        self._bucket, self._window = ticket.bucket, window
        self._reader = BatchReader(spec, ticket, read, give_back)
        self._newest = {} if newest is None else newest
        self.summary = BucketSummary.of(ticket)
        self.slice: Slice | None = None
        self.joined: dict[int, dict[int, I64]] = {}
        self.facts = BucketFacts()

    def rows(self) -> Iterator[pl.DataFrame]:
        """The rows to write, in the schema of `records.ROW`; left's in the order of its partition."""
        for rows in self._join():
            if len(rows):
                self.summary.count(rows)
                yield rows
        self.facts = self._reader.facts(self._window.oldest_ms)
        self.summary.note(self.facts)
        self.summary.window_records = len(self._window)
        self.summary.window_bytes = self._window.data_bytes

    def _join(self) -> Iterator[pl.DataFrame]:
        bucket, window, reader = self._bucket, self._window, self._reader
        entering: list[pl.DataFrame] = []
        for p, taken in reader.take_right():
            self.summary.saw(taken, p, self._newest)
            yield from self._enter(taken, entering)
        if entering:
            covers = {p: (bucket.right[p].start, facts.end) for p, facts in reader.right.items()}
            self.slice = Slice.build(pl.concat(entering, rechunk=True), covers)
            window.add(self.slice)
        stalled_from_ms = reader.limit.stalled_from_ms
        joined: dict[int, JoinedRight] = {p: JoinedRight() for p in bucket.left}
        for p, taken in reader.take_left():
            self.summary.saw(taken, p, self._newest)
            yield taken.dead
            if len(taken.records):
                yield from window.join(
                    taken.records,
                    taken.late,
                    expiry_ms=bucket.expiry_ms,
                    stalled_from_ms=stalled_from_ms,
                    joined=joined[p],
                )
        self.joined = {p: one.since(reader.expiry_ms) for p, one in joined.items()}
        yield window.expire(reader.expiry_ms)

    def _enter(self, taken: Intake, entering: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Right records that a left record may still match enter the window; the others leave at once."""
        yield taken.dead
        records = taken.records
        if taken.late.any():
            yield rows_about("right", records.filter(taken.late), "late", None, late=True)
        no_key = records["key"].is_null()
        expired = (records["time"] < self._bucket.expiry_ms) & ~no_key
        for gone, reason in ((no_key, "null_key"), (expired, "expired")):
            if gone.any():
                yield rows_about("right", records.filter(gone), "unjoined", reason, taken.late.filter(gone))
        staying = records.filter(~(no_key | expired))
        if len(staying):
            entering.append(staying.cast(RECORD))
