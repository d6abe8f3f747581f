"""One batch of one bucket: read right, make it a slice, read left, match it, expire. Pure except for its reader.

    right's range   is read completely, or as far as its bytes allow; it proves right's frontier
    left's range    is read, and goes up to the first record that right has not reached; the rest is held back
    left's times    prove which records of the window can no longer match

Running it again with the same ticket and the same window gives the same rows and the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from datadelay.progress import UNKNOWN
from joins.admission.facts import BucketFacts, PartitionFacts
from joins.admission.passage import Limit, expiry_of, frontier_of
from joins.admission.ticket import Ticket
from joins.rows.intake import Intake
from joins.rows.records import RECORD, rows_about
from joins.spec import JoinPath, JoinSpec
from joins.summary import BucketSummary, Newest
from joins.window.ranges import OpenRange, Read, from_log
from joins.window.slices import I64, Slice
from joins.window.window import JoinedRight, Window
from kafkaio.times import LATEST_MS


class BatchReader:
    """Takes the records of a ticket's ranges that may go, and finds the facts: shared by all flavours."""

    def __init__(self, spec: JoinSpec, ticket: Ticket, opened: OpenRange) -> None:
        self._spec, self._bucket, self._open = spec, ticket.bucket, opened
        self.right: dict[int, PartitionFacts] = {}
        self.left: dict[int, PartitionFacts] = {}

    def take_right(self) -> Iterator[tuple[int, Intake]]:
        """Right's records, by partition; to be consumed completely before left."""
        for p in self._bucket.right:
            intakes, facts = self._open("right", p, LATEST_MS)
            for taken in intakes:
                yield p, taken
            self.right[p] = facts()

    @property
    def frontier_ms(self) -> int:
        """How far right is read; to be called after `take_right`."""
        return frontier_of(self._bucket, self.right.values())

    @property
    def limit(self) -> Limit:
        """No left record goes without right while right has records left unread because of the byte limit."""
        if self._spec.path is JoinPath.SHUFFLED:
            return Limit.of(self._spec, self._bucket, self._bucket.known_frontier_ms)
        bucket = self._bucket
        if any(facts.end < bucket.right[p].end for p, facts in self.right.items()):
            bucket = replace(bucket, give_up_ms=None)
        return Limit.of(self._spec, bucket, self.frontier_ms)

    def take_left(self) -> Iterator[tuple[int, Intake]]:
        """The left records that may go, by partition."""
        limit_ms = self.limit.limit_ms
        for p in self._bucket.left:
            intakes, facts = self._open("left", p, limit_ms)
            for taken in intakes:
                yield p, taken
            self.left[p] = facts()

    def facts(self, oldest_ms: int | None) -> BucketFacts:
        """To be called after both sides are read; oldest_ms: the smallest time in the window, None if it is empty."""
        return BucketFacts(self.left, self.right, self.frontier_ms, self.expiry_ms, oldest_ms)

    @property
    def expiry_ms(self) -> int:
        """No right record below it matches a left record still to come; to be called after `take_left`."""
        return expiry_of(self._spec, self._bucket, self.left)


def find_facts(spec: JoinSpec, ticket: Ticket, read: Read) -> BucketFacts:
    """The facts of a batch, found again from the log.

    Whether the window still holds records is not known, unless every right record ever read is below the expiry.
    """
    reader = BatchReader(spec, ticket, from_log(spec, ticket, read))
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
    joined  the live right records (offsets by partition) that left was joined with
    facts   available once all rows were taken
    """

    def __init__(self, ticket: Ticket, window: Window, reader: BatchReader, newest: Newest | None = None) -> None:
        self._bucket, self._window, self._reader = ticket.bucket, window, reader
        self._newest = {} if newest is None else newest
        self.summary = BucketSummary.of(ticket)
        self.slice: Slice | None = None
        self.joined: dict[int, I64] = {}
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
        joined = JoinedRight()
        for p, taken in reader.take_left():
            self.summary.saw(taken, p, self._newest)
            yield taken.dead
            if len(taken.records):
                yield from window.join(
                    taken.records,
                    taken.late,
                    expiry_ms=bucket.expiry_ms,
                    stalled_from_ms=stalled_from_ms,
                    joined=joined,
                )
        self.joined = joined.since(reader.expiry_ms)
        yield from window.expire(reader.expiry_ms)

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
