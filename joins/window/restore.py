"""Bring a worker's window to its state before a batch: from memory, slice files, or by reading the log again. Pure.

The window of a batch is a function of the log and the admission: the right records of [low, start) with time >= expiry,
and the marks that the left records of [left low, left start) set on them. What is available is reused, gaps are read
again from Kafka, and lost marks are recomputed by joining their left range once more, without rows. The admission's
bounds say from where to read, and which records were rejected: facts of the batches that first read them.

Marks reach further back than the window and the positions, to where retention may have deleted records. No row of a
left record needs those. Without them a right record may count as joined that was not, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

from datadelay.progress import UNKNOWN
from joins.admission.bounds import Bounds, below_within, expiry_at, low_end, turned_away_from
from joins.admission.facts import BucketFacts
from joins.admission.ranges import Read
from joins.admission.state import Bucket, rebuild_from
from joins.admission.summary import Deleted
from joins.admission.ticket import Ticket
from joins.rows.intake import take_in
from joins.rows.placing import buckets_of
from joins.rows.records import RECORD
from joins.rows.schemas import as_first_read
from joins.spec import JoinSpec
from joins.window.covering import gaps, in_order
from joins.window.slices import I64, SLICE_BYTES, Covers, Slice
from joins.window.window import Window
from kafkaio.errors import OffsetOutOfRange
from kafkaio.times import EARLIEST_MS, LATEST_MS


@dataclass(frozen=True, slots=True)
class Joined:
    """left: ranges of left, by partition; right: the offsets of the right records that they were joined with, by right
    partition; expiry_ms: right records below it match no left record beyond these ranges.
    """

    left: Covers
    right: Mapping[int, I64]
    expiry_ms: int = EARLIEST_MS


class SliceStore(Protocol):
    """Where a bucket's slices and marks outlive a task. A cache: it may lose entries, but never return wrong ones."""

    def slices(self, wanted: Covers, since_ms: int = LATEST_MS) -> list[Slice]:
        """Slices without overlaps that together cover as much of these ranges as is stored.

        since_ms   none of their records with at least this time has left them
        """

    def save_slice(self, slice_: Slice) -> Slice:
        """The same slice, marks included, as it is in the store."""

    def marks(self, wanted: Covers) -> list[Joined]:
        """What left ranges were joined with that end within these, and reach into at least one of them."""

    def save_marks(self, joined: Joined) -> None:
        """Keep which right records a range of left was joined with."""
        ...

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        """Save what the ticket's batch found out."""

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        """None if they are lost."""

    def copy(self, now_ms: int, expiry_ms: int, left: Covers, right: Covers) -> None:
        """Copy what is stored of these ranges to where other machines find it, if there is such a place and it is time.

        Committed batches have read them. Copies of other offsets are not needed, nor are right records below
        `expiry_ms`.
        """

    def forget(self, left_below: dict[int, int], right_below: dict[int, int]) -> None:
        """Drop what lies entirely below these offsets."""


@dataclass(eq=False)
class Kept:
    """A bucket's window in a worker's memory, and how far it is: batch, right and left offsets by partition.

    deleted   what the last restore needed for the marks, and retention has deleted
    presumed  how many right records of the window count as joined for that reason
    """

    window: Window
    number: int = 0
    right_end: dict[int, int] = field(default_factory=dict)
    left_end: dict[int, int] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)
    deleted: list[Deleted] = field(default_factory=list)
    presumed: int = 0


def restore(spec: JoinSpec, ticket: Ticket, kept: Kept | None, store: SliceStore, read: Read) -> tuple[Kept, str]:
    """The window as it was before a batch, and where it came from: memory, files or log.

    A window in memory that this batch, or a later one, has already changed is not used for a retry.
    """
    bucket = ticket.bucket
    expiry = bucket.expiry_ms
    left_from, right_from = rebuild_from(spec, expiry)
    came_from = "memory"
    if kept is None or kept.number >= ticket.number:
        kept = Kept(Window(spec, expired_ms=expiry))
    window = kept.window
    again = _Again(spec, ticket, read)

    wanted = {
        p: (low, reading.start)
        for p, reading in bucket.right.items()
        if (low := max(low_end(reading.bounds, expiry), kept.right_end.get(p, 0))) < reading.start
    }
    if wanted:
        came_from = "files"
        found = store.slices(wanted)
        for p, (low, end) in wanted.items():
            for gap in gaps([slice_.covers[p] for slice_ in found if p in slice_.covers], low, end):
                came_from = "log"
                found += map(store.save_slice, again.read("right", p, *gap, bucket.right[p].bounds))
        for slice_ in in_order(found):
            window.add(slice_)

    lost: list[tuple[int, int, int]] = []
    lows = {p: max(low_end(r.bounds, left_from), kept.left_end.get(p, 0)) for p, r in bucket.left.items()}
    spans = {p: (low, bucket.left[p].start) for p, low in lows.items()}
    known = store.marks(spans) if any(low < end for low, end in spans.values()) else []
    for joined in known:
        for partition, offsets in joined.right.items():
            for slice_ in window.slices:
                slice_.mark(partition, offsets)
    for p, low in lows.items():
        joined_before = [joined.left[p] for joined in known if p in joined.left]
        missing = gaps(joined_before, low, bucket.left[p].start)
        lost += [(p, *gap) for gap in missing if below_within(bucket.left[p].bounds, *gap) > UNKNOWN]
    if lost and len(window):
        came_from = "log"
        _mark_again(spec, bucket, window, lost, _chosen_from(lost, known, right_from), again, store)
    kept.deleted, kept.presumed = again.deleted, _presume_joined(spec, bucket, window, again.deleted)
    if lost:
        store.save_marks(Joined(spans, window.marked(), expiry))
    window.expire(expiry)
    kept.right_end = {p: r.start for p, r in bucket.right.items()}
    kept.left_end = {p: r.start for p, r in bucket.left.items()}
    return kept, came_from


def _mark_again(
    spec: JoinSpec,
    bucket: Bucket,
    window: Window,
    lost: list[tuple[int, int, int]],
    right_from_ms: int,
    again: _Again,
    store: SliceStore,
) -> None:
    """Join lost left ranges again. They chose among right records that may have expired since; those are read too.

    What is read goes into the store as well, as it may be more than fits into memory.
    """
    older = Window(spec)
    wanted = {p: (low_end(reading.bounds, right_from_ms), reading.start) for p, reading in bucket.right.items()}
    found = store.slices(wanted, right_from_ms)
    for p, span in wanted.items():
        for gap in list(gaps([slice_.covers[p] for slice_ in found if p in slice_.covers], *span)):
            found += map(store.save_slice, again.what_is_left("right", p, *gap, bucket.right[p].bounds))
    for slice_ in found:
        older.add(slice_)
    for p, start, end in lost:
        for left in again.what_is_left("left", p, start, end, bucket.left[p].bounds):
            expiries = expiry_at(bucket.left[p].bounds, left.offsets)
            for expiry_ms in np.unique(expiries).tolist():
                older.mark_again(left.frame.filter(pl.Series(expiries == expiry_ms)), expiry_ms)
    for slice_ in older.slices:
        for p in slice_.covers:
            joined = slice_.offsets[slice_.marks & (slice_.partitions == p)]
            for live in window.slices:
                live.mark(p, joined)


def _chosen_from(lost: list[tuple[int, int, int]], known: list[Joined], right_from_ms: int) -> int:
    """Lost left ranges chose among right records from this time on: some lie beyond those whose marks are known."""
    before = (
        joined for joined in known if all(p in joined.left and joined.left[p][1] <= start for p, start, _ in lost)
    )
    return max((joined.expiry_ms for joined in before), default=right_from_ms)


def _presume_joined(spec: JoinSpec, bucket: Bucket, window: Window, deleted: list[Deleted]) -> int:
    """Mark whatever the deleted records can have marked, or been marked as; returns how many had no mark.

    Without a deleted right record, a left one that was joined with another chooses that one again.
    """
    presumed = 0
    for side, p, start, end in deleted:
        below_ms = below_within(bucket.left[p].bounds, start, end) + spec.after_ms if side == "left" else UNKNOWN
        for slice_ in window.slices:
            unknown = slice_.times < below_ms
            if side == "right":
                unknown = (slice_.partitions == p) & (slice_.offsets >= start) & (slice_.offsets < end)
            presumed += int(np.count_nonzero(unknown & ~slice_.marks & (slice_.times >= bucket.expiry_ms)))
            slice_.marks[unknown] = True
    return presumed


@dataclass(frozen=True, slots=True)
class _Again:
    """Reads ranges again, without the records that were dead letters when first read, or belong to another part."""

    spec: JoinSpec
    ticket: Ticket
    fetch: Read
    deleted: list[Deleted] = field(default_factory=list)

    def read(self, side: str, partition: int, start: int, end: int, bounds: Bounds) -> Iterator[Slice]:
        """The range, in slices of bounded bytes one after the other."""
        topic = self.spec.side(side)
        known = dict(self.ticket.bucket.side(side)[partition].schemas)
        frames: list[pl.DataFrame] = []
        size = 0
        with closing(self.fetch(side, partition, start, end)) as batches:
            for records in batches:
                batch = as_first_read(records, known, f"{topic.topic}[{partition}]")
                taken = take_in(side, topic, batch, LATEST_MS // 2, self.ticket.skew_ms, UNKNOWN).records
                below = turned_away_from(bounds, taken["offset"].to_numpy())
                mine = taken.filter(taken["key"].is_not_null() & pl.Series(taken["time"].to_numpy() < below))
                if self.ticket.part is not None and self.ticket.parts is not None:
                    mine = mine.filter(pl.Series(buckets_of(mine, self.ticket.parts) == self.ticket.part))
                frames.append(mine)
                size += int(mine.estimated_size())
                if size > SLICE_BYTES:
                    cut = batch.column("offset")[-1].as_py() + 1
                    yield Slice.build(pl.concat(frames), {partition: (start, cut)})
                    frames, size, start = [], 0, cut
        if start < end:
            yield Slice.build(pl.concat(frames) if frames else pl.DataFrame(schema=RECORD), {partition: (start, end)})

    def what_is_left(self, side: str, partition: int, start: int, end: int, bounds: Bounds) -> Iterator[Slice]:
        """As `read`, but what retention has deleted is left out, and noted."""
        while start < end:
            try:
                for slice_ in self.read(side, partition, start, end, bounds):
                    start = slice_.covers[partition][1]
                    yield slice_
            except OffsetOutOfRange as error:
                if error.offset >= error.start:
                    raise  # the log was truncated
                found = min(error.start, end)
                self.deleted.append((side, partition, start, found))
                start = found
