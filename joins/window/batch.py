"""One batch of one bucket. Pure except for its reader.

    1. Right is read. What left may still match becomes a slice of the window, the rest leaves.
    2. Left is read, matched, and leaves.
    3. What no later left record can match expires.

What is read, and how far left may go, is decided by `joins.admission.batchreader`. Running a batch again with the same
ticket and the same window gives the same rows and the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from joins.admission.batchreader import BatchReader
from joins.admission.facts import BucketFacts
from joins.admission.summary import BucketSummary, Newest
from joins.admission.ticket import Ticket
from joins.rows.chunks import in_chunks
from joins.rows.frames import I64, is_null, rows_where
from joins.rows.intake import Intake
from joins.rows.records import rows_about
from joins.window.slices import Slice
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
        """Yields the rows to write (`records.ROW`) in chunks of bounded bytes, left's in the order of its partition."""
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
        """Collects the right records that a left record may still match; yields the rows of the others."""
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
