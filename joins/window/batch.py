"""One batch of one bucket: read right, make it a slice, read left, match it, expire. Pure except for its reader.

What is read, and how far left may go, is decided by `joins.admission.batchreader`.

Running it again with the same ticket and the same window gives the same rows and the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from joins.admission.batchreader import BatchReader
from joins.admission.facts import BucketFacts
from joins.admission.summary import BucketSummary, Newest
from joins.admission.ticket import Ticket
from joins.rows.chunks import in_chunks
from joins.rows.frames import is_null, rows_where
from joins.rows.intake import Intake
from joins.rows.records import rows_about
from joins.window.slices import I64, Slice
from joins.window.window import JoinedRight, Window
from kafkaio.reasons import EXPIRED, NULL_KEY


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
        """The rows to write, in the schema of `records.ROW`, in chunks of bounded bytes; left's in the order of its
        partition."""
        for rows in self._join():
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
            self.slice = Slice.build(pl.concat(entering, rechunk=True), covers, since_ms=bucket.expiry_ms)
            window.add(self.slice)
        stalled_from_ms = reader.limit.stalled_from_ms
        joined = JoinedRight()
        for p, taken in reader.take_left():
            self.summary.saw(taken, p, self._newest)
            yield from in_chunks(taken.dead)
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
        yield from in_chunks(taken.dead)
        records = taken.records
        if taken.late.any():
            yield from in_chunks(rows_about("right", rows_where(records, taken.late), "late", None, late=True))
        no_key = is_null(records["key"])
        expired = (records["time"].to_numpy() < self._bucket.expiry_ms) & ~no_key
        for leaving, reason in ((no_key, NULL_KEY), (expired, EXPIRED)):
            if leaving.any():
                late = taken.late.filter(pl.Series(leaving))
                rows = rows_about("right", rows_where(records, leaving), "unjoined", reason, late)
                yield from in_chunks(rows)
        gone = no_key | expired
        staying = rows_where(records, ~gone) if gone.any() else records
        if len(staying):
            entering.append(staying)
