"""Brings a worker's window to its state before a batch: from memory, slice files, or by reading the log again. Pure.

The window of a batch is a function of the log and the batch plan: the right records of [low, start) with time >=
expiry, and the marks that the left records of [left low, left start) set on them. What is available is reused, gaps are
read again from Kafka, and lost marks are recomputed by joining their left range again, without rows. The batch plan's
bounds say from where to read, and which records were rejected when first read.

Marks reach further back than the window. With `before` 10 s, `after` 2 s, and right expired below 100 s:

    time          88 s      98 s 100 s                        where the batch starts
    window                       |=========================|  right records of the rows to come
    marks                   |------------------------------|  left records that may be joined with those: from 98 s on
    chosen from   |................|                          right records, expired since, that they chose among, too

Lost marks of left from 98 s on are found by joining it again with right from 88 s on (`rebuild_from`). Retention may
have deleted records there. No row of a left record needs those. Without them a right record may wrongly count as
joined, but never as unjoined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

from datadelay.watermark import UNKNOWN
from joins.batch.facts import BucketFacts, below_within, expiry_at, low_end, turned_away_from
from joins.batch.rules import latest_right
from joins.batch.state import Bucket, rebuild_from
from joins.batch.ticket import Ticket
from joins.read.batch_reader import Read
from joins.read.parse import as_first_read, parse
from joins.read.summary import Deleted
from joins.rows.buckets import buckets_of
from joins.rows.frames import I64, RECORD
from joins.spec import JoinSpec
from joins.window.covering import gaps, in_order
from joins.window.slices import SLICE_BYTES, OffsetRanges, Slice, Span, key_hashes
from joins.window.window import Window
from teacup.base.times import EARLIEST_MS, LATEST_MS
from teacup.kafka.errors import OffsetOutOfRange


@dataclass(frozen=True, slots=True)
class Joined:
    """Ranges of left, and the right records that they were joined with.

    left       by partition
    right      by right partition the offsets
    expiry_ms  right records below it match no left record beyond these ranges
    """

    left: OffsetRanges
    right: Mapping[int, I64]
    expiry_ms: int = EARLIEST_MS


class SliceStore(Protocol):
    """Keeps a bucket's slices and marks between tasks. A cache: entries may be lost, but are never wrong."""

    def slices(self, wanted: OffsetRanges, since_ms: int = LATEST_MS) -> list[Slice]:
        """Returns slices without overlaps that together cover as much of these ranges as is stored.

        since_ms   they still hold all of their records with at least this time
        """

    def save_slice(self, slice_: Slice) -> Slice:
        """Saves a slice, and returns it as it is in the store, with the same marks."""

    def marks(self, wanted: OffsetRanges) -> list[Joined]:
        """Returns the marks of left ranges that end within these, and reach into at least one of them."""

    def save_marks(self, joined: Joined) -> None:
        """Saves which right records a range of left was joined with."""
        ...

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        """Saves what the ticket's batch found out."""

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        """Returns what `save_facts` saved; None if it is lost."""

    def copy(self, now_ms: int, expiry_ms: int, left: OffsetRanges, right: OffsetRanges) -> None:
        """Copies what is stored of these ranges, which committed batches have read, to where other machines find it.

        Does nothing without such a place, or if it is not time yet. Copies of other offsets are not needed, nor are
        right records below `expiry_ms`.
        """

    def forget(self, left_below: dict[int, int], right_below: dict[int, int]) -> None:
        """Drops what lies entirely below these offsets."""


@dataclass(eq=False)
class CachedWindow:
    """A bucket's window in a worker's memory, and how far it goes: batch, right and left offsets by partition.

    deleted   what retention has deleted that the last restore needed for the marks
    presumed  how many right records of the window therefore count as joined
    """

    window: Window
    number: int = 0
    right_end: dict[int, int] = field(default_factory=dict)
    left_end: dict[int, int] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    deleted: list[Deleted] = field(default_factory=list)
    presumed: int = 0


def restore(
    spec: JoinSpec, ticket: Ticket, window: CachedWindow | None, store: SliceStore, read: Read
) -> tuple[CachedWindow, str]:
    """Returns the window as it was before a batch, and where it came from: memory, files or log.

    A window in memory that this batch, or a later one, has already changed is not used for a retry.
    """
    bucket = ticket.bucket
    if window is None or window.number >= ticket.number:
        window = CachedWindow(Window.of(spec, bucket.expiry_ms))
    restoring = _Restoring(spec, bucket, window, store, _Again(spec, ticket, read))
    restoring.add_right()
    restoring.set_marks()
    window.window.expire(bucket.expiry_ms)
    window.right_end = {p: r.start for p, r in bucket.right.items()}
    window.left_end = {p: r.start for p, r in bucket.left.items()}
    return window, restoring.came_from


@dataclass(slots=True)
class _Restoring:
    """Adds what a window lacks. came_from: memory, files or log."""

    spec: JoinSpec
    bucket: Bucket
    kept: CachedWindow
    store: SliceStore
    again: _Again
    came_from: str = "memory"

    def add_right(self) -> None:
        """Adds right records, from files and, where there are none, from the log."""
        right, right_end = self.bucket.right, self.kept.right_end
        lows = {p: max(low_end(r.bounds, self.bucket.expiry_ms), right_end.get(p, 0)) for p, r in right.items()}
        wanted = {p: (low, right[p].start) for p, low in lows.items() if low < right[p].start}
        if wanted:
            self.came_from = "files"
            for slice_ in in_order(self._right(wanted, LATEST_MS, self.again.read)):
                self.kept.window.add(slice_)

    def set_marks(self) -> None:
        """Sets the marks: known ones, and lost ones by joining their left ranges again."""
        bucket, window = self.bucket, self.kept.window
        left_from, right_from = rebuild_from(self.spec.right, bucket.expiry_ms)
        spans = {
            p: (max(low_end(partition_range.bounds, left_from), self.kept.left_end.get(p, 0)), partition_range.start)
            for p, partition_range in bucket.left.items()
        }
        marks = self.store.marks(spans) if any(low < end for low, end in spans.values()) else []
        for joined in marks:
            for partition, offsets in joined.right.items():
                for slice_ in window.slices:
                    slice_.mark(partition, offsets)
        lost = [
            (p, *gap)
            for p, span in spans.items()
            for gap in gaps([joined.left[p] for joined in marks if p in joined.left], *span)
            if below_within(bucket.left[p].bounds, *gap) > UNKNOWN
        ]
        if lost and len(window):
            self.came_from = "log"
            self._mark_again(lost, _chosen_from(lost, marks, right_from))
        self.kept.deleted, self.kept.presumed = self.again.deleted, self._presume_joined()
        if lost:
            self.store.save_marks(Joined(spans, window.marked(), bucket.expiry_ms))

    def _right(
        self, wanted: OffsetRanges, since_ms: int, read: Callable[[str, int, int, int], Iterator[Slice]]
    ) -> list[Slice]:
        """Returns slices of these ranges from the store. What it lacks is read from the log, and saved there.

        Saved, as it may not fit into memory.
        """
        slices = self.store.slices(wanted, since_ms)
        for p, span in wanted.items():
            for gap in gaps([slice_.offset_ranges[p] for slice_ in slices if p in slice_.offset_ranges], *span):
                self.came_from = "log"
                slices += map(self.store.save_slice, read("right", p, *gap))
        return slices

    def _mark_again(self, lost: list[tuple[int, int, int]], right_from_ms: int) -> None:
        """Joins lost left ranges again with the right records that they chose from; some have expired since."""
        older = Window.of(self.spec)
        wanted = {p: (low_end(r.bounds, right_from_ms), r.start) for p, r in self.bucket.right.items()}
        for slice_ in self._right(wanted, right_from_ms, self.again.what_is_left):
            older.add(slice_)
        for p, start, end in lost:
            for left in self.again.what_is_left("left", p, start, end):
                expiries = expiry_at(self.bucket.left[p].bounds, left.offsets)
                for expiry_ms in np.unique(expiries).tolist():
                    older.mark_again(left.frame.filter(pl.Series(expiries == expiry_ms)), expiry_ms)
        for slice_ in older.slices:
            for p in slice_.offset_ranges:
                joined = slice_.offsets[slice_.marks & (slice_.partitions == p)]
                for live in self.kept.window.slices:
                    live.mark(p, joined)

    def _presume_joined(self) -> int:
        """Marks all that deleted left records may have marked; returns how many had no mark.

        A deleted right record does no harm: a left one that was joined with another one chooses that again.
        """
        presumed = 0
        for side, p, start, end in self.again.deleted:
            below_ms = UNKNOWN
            if side == "left":
                below_ms = latest_right(self.spec.right, below_within(self.bucket.left[p].bounds, start, end))
            for slice_ in self.kept.window.slices:
                unknown = slice_.times < below_ms
                if side == "right":
                    unknown = (slice_.partitions == p) & (slice_.offsets >= start) & (slice_.offsets < end)
                live = slice_.times >= self.bucket.expiry_ms
                presumed += int(np.count_nonzero(unknown & ~slice_.marks & live))
                slice_.marks[unknown] = True
        return presumed


def _chosen_from(lost: list[tuple[int, int, int]], marks: list[Joined], right_from_ms: int) -> int:
    """Returns the time from which lost left ranges chose right records; some lie beyond those with known marks."""
    before = (
        joined for joined in marks if all(p in joined.left and joined.left[p][1] <= start for p, start, _ in lost)
    )
    return max((joined.expiry_ms for joined in before), default=right_from_ms)


@dataclass(frozen=True, slots=True)
class _Again:
    """Reads ranges again, without the records that were dead letters when first read, or belong to another part."""

    spec: JoinSpec
    ticket: Ticket
    fetch: Read
    deleted: list[Deleted] = field(default_factory=list)

    def read(self, side: str, partition: int, start: int, end: int) -> Iterator[Slice]:
        """Yields the range in slices of bounded bytes, one after the other."""
        topic, partition_range = self.spec.side(side), self.ticket.bucket.side(side)[partition]
        schemas = dict(partition_range.schemas)
        frames: list[pl.DataFrame] = []
        size = 0
        with closing(self.fetch(side, partition, start, end)) as batches:
            for records in batches:
                batch = as_first_read(records, schemas, f"{topic.topic}[{partition}]")
                taken = parse(side, topic, batch, LATEST_MS // 2, self.ticket.skew_ms, UNKNOWN).records
                below = turned_away_from(partition_range.bounds, taken["offset"].to_numpy())
                mine = taken.filter(taken["key"].is_not_null() & pl.Series(taken["time"].to_numpy() < below))
                if self.ticket.part is not None and self.ticket.parts is not None:
                    mine = mine.filter(pl.Series(buckets_of(mine, self.ticket.parts) == self.ticket.part))
                frames.append(mine)
                size += int(mine.estimated_size())
                if size > SLICE_BYTES:
                    cut = batch.column("offset")[-1].as_py() + 1
                    yield self._slice(frames, {partition: (start, cut)})
                    frames, size, start = [], 0, cut
        if start < end:
            yield self._slice(frames or [pl.DataFrame(schema=RECORD)], {partition: (start, end)})

    def _slice(self, frames: list[pl.DataFrame], offset_ranges: dict[int, Span]) -> Slice:
        records = pl.concat(frames)
        return Slice.build(records, offset_ranges, hashes=key_hashes(records, apart=self.spec.is_direct))

    def what_is_left(self, side: str, partition: int, start: int, end: int) -> Iterator[Slice]:
        """Yields the same without what retention has deleted, which it notes in `deleted`."""
        while start < end:
            try:
                for slice_ in self.read(side, partition, start, end):
                    start = slice_.offset_ranges[partition][1]
                    yield slice_
            except OffsetOutOfRange as error:
                if error.offset >= error.start:
                    raise  # the log was truncated
                first_left = min(error.start, end)
                self.deleted.append((side, partition, start, first_left))
                start = first_left
