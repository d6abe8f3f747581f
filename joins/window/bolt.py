"""JoinBolt, a worker's part: tickets in, rows out. Pure except for its reader.

One batch of one bucket:

    1. Right is read. What left may still match becomes a slice of the window, the rest goes out.
    2. Left is read, matched, and goes out.
    3. Right records that no later left record can match expire.

    `joins.read.batch_reader` decides what is read, and how far left may go. The same ticket and the same window give
    the same rows and the same facts again.

    The windows of recent buckets stay in the worker's memory, up to a limit. A window is taken out while a batch
    changes it, and put back only when the batch has ended. So a failed attempt leaves nothing half changed, and the
    next one starts from the files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator

import polars as pl
import pyarrow as pa

from joins.batch.facts import BucketFacts, low_end
from joins.batch.state import Bucket, rebuild_from
from joins.batch.ticket import Ticket
from joins.outcome import Outcome
from joins.read.batch_reader import BatchReader, GiveBack, OpenRange, Read, from_log
from joins.read.parse import ParsedBatch
from joins.read.summary import BucketSummary, Newest
from joins.rows.frames import I64, in_chunks, is_null, rows_about, rows_where
from joins.spec import JoinSpec
from joins.window.restore import CachedWindow, Joined, SliceStore, restore
from joins.window.slices import Slice, Span, key_hashes
from joins.window.window import JoinedRight, Window
from teacup.base.stage_times import Clock, StageTimes, no_clock
from teacup.kafka.headers import EXPIRED, NULL_KEY

StoreOf = Callable[[str, str], SliceStore]
"""(generation, name of the bucket) -> where its slices are kept."""

MOST_WINDOWS = 256
"""How many windows a worker keeps in memory; others are restored from their files."""


class JoinBolt:
    """Carries out tickets, one after the other.

    give_back   takes the records that were read and held back, for the next batch
    clock       measures how long each stage takes
    """

    def __init__(
        self,
        spec: JoinSpec,
        read: Read,
        store_of: StoreOf,
        *,
        give_back: GiveBack | None = None,
        clock: Clock = no_clock,
    ) -> None:
        self._spec, self._read, self._store_of, self._give_back = spec, read, store_of, give_back
        self._clock = clock
        self._windows: OrderedDict[tuple[str, str], CachedWindow] = OrderedDict()

    def join(
        self, ticket: Ticket, done: Callable[[BucketSummary], None], opened: OpenRange | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yields the rows of a ticket (`frames.ROW`), then calls `done` with the summary.

        opened   gives the records of the ticket's ranges; None: they are read from the log
        """
        spec = self._spec
        key = (ticket.generation, ticket.name_of_part)
        store, times = self._store_of(*key), StageTimes(self._clock)

        def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
            return times.over("fetch", self._read(side, partition, start, end))

        with times.within("index"):
            known = self._windows.pop(key, None)
            self._drop_stale(ticket)
            kept, came_from = restore(spec, ticket, known, store, read)
            kept.window.compact()
            _save_slices(kept.window, store)
            store.copy(ticket.listed_ms, ticket.bucket.expiry_ms, *needed(spec, ticket.bucket))
        opened = opened or from_log(spec, ticket, read, self._give_back)
        batch = BatchJoin(ticket, kept.window, BatchReader(spec, ticket, opened), kept.newest, times)
        batch.summary.restored = came_from
        batch.summary.deleted, batch.summary.presumed = kept.deleted, kept.presumed
        yield from batch.rows()
        with times.within("index"):
            self._save(batch, kept, ticket, store)
        batch.summary.seconds = times.seconds
        kept.number = ticket.number
        kept.right_end = {p: facts.end for p, facts in batch.facts.right.items()}
        kept.left_end = {p: facts.end for p, facts in batch.facts.left.items()}
        self._windows[key] = kept
        while len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        done(batch.summary)

    def _drop_stale(self, ticket: Ticket) -> None:
        """Drops windows that missed the last batch, which had a ticket for each bucket: another worker has them now."""
        self._windows = OrderedDict(
            (key, kept)
            for key, kept in self._windows.items()
            if key[0] == ticket.generation and kept.number >= ticket.number - 1
        )

    def _save(self, batch: BatchJoin, kept: CachedWindow, ticket: Ticket, store: SliceStore) -> None:
        """Saves what later batches need, and drops nothing that a retry of this batch would need."""
        bucket = ticket.bucket
        if batch.slice not in kept.window.slices:
            covers = {p: (r.start, batch.facts.right[p].end) for p, r in bucket.right.items() if r.records}
            if covers:
                store.save_slice(Slice.nothing(covers, bucket.expiry_ms))
        _save_slices(kept.window, store)
        left_read = {p: (bucket.left[p].start, facts.end) for p, facts in batch.facts.left.items()}
        if any(start < end for start, end in left_read.values()):
            store.save_marks(Joined(left_read, batch.joined, batch.facts.expiry_ms))
        store.save_facts(ticket, batch.facts)
        left, right = needed(self._spec, bucket)
        store.forget({p: low for p, (low, _) in left.items()}, {p: low for p, (low, _) in right.items()})


class BatchJoin:
    """Carries out one bucket's part of a batch plan on the window that earlier batches left.

    slice   what the batch added to the window, before any of it expired
    joined  the live right records (offsets by partition) that left was joined with
    facts   available once all rows were taken
    """

    def __init__(
        self,
        ticket: Ticket,
        window: Window,
        reader: BatchReader,
        newest: Newest | None = None,
        times: StageTimes | None = None,
    ) -> None:
        self._bucket, self._window, self._reader = ticket.bucket, window, reader
        self._times = times or StageTimes()
        self._newest = {} if newest is None else newest
        self.summary = BucketSummary.of(ticket)
        self.slice: Slice | None = None
        self.joined: dict[int, I64] = {}
        self.facts = BucketFacts()

    def rows(self) -> Iterator[pl.DataFrame]:
        """Yields the rows to write (`frames.ROW`) in chunks of bounded bytes, left's in the order of its partition."""
        for stage, made in (("index", self._index()), ("match", self._match())):
            for rows in self._times.over(stage, made):
                self.summary.count(rows)
                yield rows
        self.facts = self._reader.facts(self._window.oldest_ms)
        self.summary.note(self.facts)
        self.summary.window_records = len(self._window)
        self.summary.window_bytes = self._window.data_bytes

    def _index(self) -> Iterator[pl.DataFrame]:
        """Reads right, which becomes a slice of the window."""
        bucket, window, reader = self._bucket, self._window, self._reader
        entering: list[pl.DataFrame] = []
        for p, taken in reader.take_right():
            self.summary.saw(taken, p, self._newest, bucket.right[p].watermark_ms, reader.spec.right.disorder_ms)
            yield from self._enter(taken, entering)
        if entering:
            covers = {p: (bucket.right[p].start, facts.end) for p, facts in reader.right.items()}
            records = pl.concat(entering, rechunk=True)
            hashes = key_hashes(records, apart=reader.spec.is_direct)
            self.slice = Slice.build(records, covers, since_ms=bucket.expiry_ms, hashes=hashes)
            window.add(self.slice)

    def _match(self) -> Iterator[pl.DataFrame]:
        """Reads and matches left; then expires what no later left record can match."""
        bucket, window, reader = self._bucket, self._window, self._reader
        stalled_from_ms = reader.limit.stalled_from_ms
        joined = JoinedRight()
        for p, taken in reader.take_left():
            self.summary.saw(taken, p, self._newest, bucket.left[p].watermark_ms, reader.spec.left.disorder_ms)
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

    def _enter(self, taken: ParsedBatch, entering: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Collects right records that left may still match; yields the rows of the others."""
        yield from in_chunks(taken.dead)
        records = taken.records
        if taken.late.any():
            yield from in_chunks(rows_about("right", rows_where(records, taken.late), Outcome.LATE, None, late=True))
        no_key = is_null(records["key"])
        expired = (records["time"].to_numpy() < self._bucket.expiry_ms) & ~no_key
        for leaving, reason in ((no_key, NULL_KEY), (expired, EXPIRED)):
            if leaving.any():
                late = taken.late.filter(pl.Series(leaving))
                rows = rows_about("right", rows_where(records, leaving), Outcome.UNJOINED, reason, late)
                yield from in_chunks(rows)
        gone = no_key | expired
        staying = rows_where(records, ~gone) if gone.any() else records
        if len(staying):
            entering.append(staying)


def needed(spec: JoinSpec, bucket: Bucket) -> tuple[dict[int, Span], dict[int, Span]]:
    """Returns the ranges of left and right, read by earlier batches, that make up this batch's window."""
    left_from, _ = rebuild_from(spec.right, bucket.expiry_ms)
    left = {p: (low_end(r.bounds, left_from), r.start) for p, r in bucket.left.items()}
    return left, {p: (low_end(r.bounds, bucket.expiry_ms), r.start) for p, r in bucket.right.items()}


def _save_slices(window: Window, store: SliceStore) -> None:
    """Saves the slices that are in memory, as all workers of a machine share a file's memory."""
    window.slices = [slice_ if slice_.in_file else store.save_slice(slice_) for slice_ in window.slices]
