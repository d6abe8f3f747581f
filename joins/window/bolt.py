"""JoinBolt, a worker's part: tickets in, rows out. Pure except for its reader.

One batch of one bucket:

    1. Right is read. What left may still match becomes a slice of the window, the rest goes out.
    2. Left is read, matched, and goes out.
    3. Right records that no later left record can match expire.

`BatchJoin` does so for all join kinds. Its `Provider` finds the right records that a left one may match, in
the window here or in a store (`joins.lookup.batch`).

`joins.read.batch_reader` decides what is read, and how far left may go. The same ticket and the same window give
the same rows and the same facts again.

The windows of recent buckets stay in the worker's memory, up to a limit. A window is taken out while a batch
changes it, and put back only when the batch has ended. So a failed attempt leaves nothing half changed, and the
next one starts from the files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import polars as pl
import pyarrow as pa

from joins.batch.facts import BucketFacts, low_end
from joins.batch.state import Bucket, rebuild_from
from joins.batch.ticket import Ticket
from joins.outcome import Outcome
from joins.read.batch_reader import PIECE_BYTES, PIECE_RECORDS, BatchReader, GiveBack, OpenRange, Read, from_log
from joins.read.parse import ParsedBatch
from joins.read.summary import BucketSummary, Newest
from joins.rows.frames import I64, in_chunks, is_null, rows_about, rows_where
from joins.spec import JoinSpec
from joins.window.restore import CachedWindow, Joined, SliceStore, restore
from joins.window.slices import Slice, Span, key_hashes
from joins.window.window import JoinedRight, Window
from teacup.base.stage_times import Clock, StageTimes, no_clock
from teacup.base.times import EARLIEST_MS
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
            cached = self._windows.pop(key, None)
            self._drop_stale(ticket)
            window, came_from = restore(spec, ticket, cached, store, read)
            window.window.compact()
            _save_slices(window.window, store)
            store.copy(ticket.listed_ms, ticket.bucket.expiry_ms, *needed(spec, ticket.bucket))
        opened = opened or from_log(spec, ticket, read, self._give_back)
        reader = BatchReader(spec, ticket, opened)
        provider = WindowProvider(ticket.bucket, window.window, reader)
        batch = BatchJoin(ticket, provider, reader, window.newest, times)
        batch.summary.restored = came_from
        batch.summary.deleted, batch.summary.presumed = window.deleted, window.presumed
        yield from batch.rows()
        with times.within("index"):
            self._save(provider, batch.facts, window, ticket, store)
        window.number = ticket.number
        window.right_end = {p: facts.end for p, facts in batch.facts.right.items()}
        window.left_end = {p: facts.end for p, facts in batch.facts.left.items()}
        self._windows[key] = window
        while len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        done(batch.summary)

    def _drop_stale(self, ticket: Ticket) -> None:
        """Drops windows that missed the last batch, which had a ticket for each bucket: another worker has them now."""
        self._windows = OrderedDict(
            (key, window)
            for key, window in self._windows.items()
            if key[0] == ticket.generation and window.number >= ticket.number - 1
        )

    def _save(
        self, provider: WindowProvider, facts: BucketFacts, window: CachedWindow, ticket: Ticket, store: SliceStore
    ) -> None:
        """Saves what later batches need, and drops nothing that a retry of this batch would need."""
        bucket = ticket.bucket
        if provider.slice not in window.window.slices:
            offset_ranges = {p: (r.start, facts.right[p].end) for p, r in bucket.right.items() if r.records}
            if offset_ranges:
                store.save_slice(Slice.nothing(offset_ranges, bucket.expiry_ms))
        _save_slices(window.window, store)
        left_read = {p: (bucket.left[p].start, of.end) for p, of in facts.left.items()}
        if any(start < end for start, end in left_read.values()):
            store.save_marks(Joined(left_read, provider.joined, facts.expiry_ms))
        store.save_facts(ticket, facts)
        left, right = needed(self._spec, bucket)
        store.forget({p: low for p, (low, _) in left.items()}, {p: low for p, (low, _) in right.items()})


@dataclass(frozen=True, slots=True)
class Offer:
    """Left records and where to look for their candidates.

    barred   of each 0, or why it matches nothing (`Window.join`)
    joined   collects the right records that are picked
    """

    left: pl.DataFrame
    late: pl.Series
    window: Window
    barred: I64 | None = None
    joined: JoinedRight | None = None

    def rows(self, expiry_ms: int, stalled_from_ms: int | None = None) -> Iterator[pl.DataFrame]:
        """Yields rows (`frames.ROW`) for each left record, in order; the rest as in `Window.join`."""
        yield from self.window.join(
            self.left,
            self.late,
            expiry_ms=expiry_ms,
            stalled_from_ms=stalled_from_ms,
            barred=self.barred,
            joined=self.joined,
        )


class Provider(ABC):
    """Provides the candidates of left records: the right records that they may match.

    window    what it keeps for later batches
    held_by   what bounds left, if not right's watermark
    """

    held_by = ""

    def __init__(self, window: Window) -> None:
        self.window = window

    def index(self, right: Iterator[ParsedBatch]) -> Iterator[pl.DataFrame]:
        """Takes right's range, if right is read; yields rows of records that are no candidates."""
        yield from ()

    @abstractmethod
    def ask(self, taken: ParsedBatch) -> Iterator[Offer]:
        """Takes left records; yields what is known by now for these, and for those before them."""

    def rest(self) -> Iterator[Offer]:
        """Yields what is left to offer once all left records were taken."""
        yield from ()

    def expire(self) -> Iterator[pl.DataFrame]:
        """Ends the batch; yields rows of records that are no candidates of later batches."""
        yield from ()


class BatchJoin:
    """Carries out one bucket's part of a batch plan, wherever its candidates come from.

    facts   available once all rows were taken
    """

    def __init__(
        self,
        ticket: Ticket,
        provider: Provider,
        reader: BatchReader,
        newest: Newest | None = None,
        times: StageTimes | None = None,
    ) -> None:
        self._bucket, self._provider, self._reader = ticket.bucket, provider, reader
        self._times = times or StageTimes()
        self._newest = {} if newest is None else newest
        self.summary = BucketSummary.of(ticket)
        self.summary.held_by = provider.held_by
        self.facts = BucketFacts()

    def rows(self) -> Iterator[pl.DataFrame]:
        """Yields the rows to write (`frames.ROW`) in chunks of bounded bytes, left's in the order of its partition."""
        stages = ("index", self._provider.index(self._right())), ("match", self._match())
        for stage, made in stages if self._bucket.right else stages[1:]:
            for rows in self._times.over(stage, made):
                self.summary.count(rows)
                yield rows
        window = self._provider.window
        self.facts = self._reader.facts(window.oldest_ms)
        self.summary.note(self.facts)
        self.summary.watermark_ms.setdefault("right", self._reader.watermark_ms)
        self.summary.window_records, self.summary.window_bytes = len(window), window.data_bytes
        self.summary.seconds = self._times.seconds

    def _right(self) -> Iterator[ParsedBatch]:
        for taken in _together(self._counted(self._reader.take_right())):
            self.summary.sample_right(taken)
            yield taken

    def _counted(self, batches: Iterator[tuple[int, ParsedBatch]]) -> Iterator[ParsedBatch]:
        for p, taken in batches:
            self._saw(taken, p)
            yield taken

    def _match(self) -> Iterator[pl.DataFrame]:
        """Reads and matches left; then what no later left record can match expires."""
        for taken in _together(self._counted(self._reader.take_left())):
            yield from in_chunks(taken.dead)
            if len(taken.records):
                yield from self._rows(self._provider.ask(taken))
        yield from self._rows(self._provider.rest())
        yield from self._provider.expire()

    def _rows(self, offers: Iterator[Offer]) -> Iterator[pl.DataFrame]:
        judged = self._reader.spec.right.source.right_is_judged
        expiry_ms = self._bucket.expiry_ms if judged else EARLIEST_MS
        for offer in offers:
            yield from offer.rows(expiry_ms, self._reader.limit.stalled_from_ms)

    def _saw(self, taken: ParsedBatch, p: int) -> None:
        watermark_ms = self._bucket.side(taken.side)[p].watermark_ms
        self.summary.saw(taken, p, self._newest, watermark_ms, self._reader.spec.side(taken.side).disorder_ms)


class WindowProvider(Provider):
    """Candidates are in the window that earlier batches left; right's range enters it first.

    slice   what the batch added to the window, before any of it expired
    joined  the live right records (offsets by partition) that left was joined with
    """

    def __init__(self, bucket: Bucket, window: Window, reader: BatchReader) -> None:
        super().__init__(window)
        self._bucket, self._reader = bucket, reader
        self._picked = JoinedRight()
        self.slice: Slice | None = None
        self.joined: dict[int, I64] = {}

    def index(self, right: Iterator[ParsedBatch]) -> Iterator[pl.DataFrame]:
        """Makes a slice of right's range."""
        entering: list[pl.DataFrame] = []
        for taken in right:
            yield from self._enter(taken, entering)
        if entering:
            offset_ranges = {p: (self._bucket.right[p].start, facts.end) for p, facts in self._reader.right.items()}
            records = pl.concat(entering, rechunk=True)
            hashes = key_hashes(records, apart=self.window.apart)
            self.slice = Slice.build(records, offset_ranges, since_ms=self._bucket.expiry_ms, hashes=hashes)
            self.window.add(self.slice)

    def ask(self, taken: ParsedBatch) -> Iterator[Offer]:
        """Offers all slices."""
        yield Offer(taken.records, taken.late, self.window, joined=self._picked)

    def expire(self) -> Iterator[pl.DataFrame]:
        """Expires what left's new watermark allows."""
        self.joined = self._picked.since(self._reader.expiry_ms)
        yield from self.window.expire(self._reader.expiry_ms)

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


def _together(batches: Iterable[ParsedBatch]) -> Iterator[ParsedBatch]:
    """Yields small batches in one piece: dead letters, and the records after them. The order is that of the batches.

    What is joined and written costs the same for each piece, whatever is in it.
    """
    for _, some in groupby(_numbered(batches), key=lambda each: each[0]):
        first, *others = (batch for _, batch in some)
        if filled := [batch for batch in others if len(batch.records)]:  # an empty one may lack a column
            filled = [first, *filled] if len(first.records) else filled
            records, late, proves = ([getattr(b, name) for b in filled] for name in ("records", "late", "proves"))
            first = replace(first, records=pl.concat(records), late=pl.concat(late), proves=np.concatenate(proves))
        yield first


def _numbered(batches: Iterable[ParsedBatch]) -> Iterator[tuple[int, ParsedBatch]]:
    """Numbers the piece of each batch: one begins with dead letters, or if the last one has enough records or bytes."""
    number = rows = size = 0
    for batch in batches:
        more, more_bytes = len(batch.records), batch.size
        if len(batch.dead) or rows + more > PIECE_RECORDS or size + more_bytes > PIECE_BYTES:
            number, rows, size = number + 1, 0, 0
        rows, size = rows + more, size + more_bytes
        yield number, batch


def needed(spec: JoinSpec, bucket: Bucket) -> tuple[dict[int, Span], dict[int, Span]]:
    """Returns the ranges of left and right, read by earlier batches, that make up this batch's window."""
    left_from, _ = rebuild_from(spec.right, bucket.expiry_ms)
    left = {p: (low_end(r.bounds, left_from), r.start) for p, r in bucket.left.items()}
    return left, {p: (low_end(r.bounds, bucket.expiry_ms), r.start) for p, r in bucket.right.items()}


def _save_slices(window: Window, store: SliceStore) -> None:
    """Saves the slices that are in memory, as all workers of a machine share a file's memory."""
    window.slices = [slice_ if slice_.in_file else store.save_slice(slice_) for slice_ in window.slices]
