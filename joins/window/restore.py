"""Bring a worker's window to its state before a batch: from memory, slice files, or by reading the log again. Pure.

The window of a batch is a function of the log and the admission: the right records of [low, start) with time >= expiry,
and the marks that the left records of [left low, left start) set on them. What is available is reused, gaps are read
again from Kafka, and lost marks are recomputed by joining their left range once more, without rows. The admission's
bounds say from where to read, and which records were rejected: facts of the batches that first read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

from datadelay.progress import UNKNOWN
from joins.admission.bounds import Bounds, expiry_at, low_end, turned_away_from
from joins.admission.facts import BucketFacts
from joins.admission.state import Bucket, rebuild_from
from joins.admission.ticket import Ticket
from joins.rows.intake import take_in
from joins.rows.records import RECORD
from joins.spec import JoinSpec
from joins.window.batch import Read
from joins.window.slices import I64, Slice
from joins.window.window import Window
from kafkaio.times import LATEST_MS

Span = tuple[int, int]


class SliceStore(Protocol):
    """Where a bucket's slices and marks outlive a task. A cache: it may lose entries, but never return wrong ones."""

    def slices(self, partition: int, start: int, end: int) -> list[Slice]:
        """Slices that together cover as much of [start, end) as is stored, without overlaps."""

    def save_slice(self, one: Slice) -> Slice:
        """The same slice, marks included, as it is in the store."""

    def marks(self, partition: int, start: int, end: int) -> list[tuple[Span, dict[int, I64]]]:
        """For each left range inside [start, end), the right offsets that it was joined with, by right partition."""

    def save_marks(self, partition: int, span: Span, joined: dict[int, I64]) -> None: ...

    def save_facts(self, ticket: Ticket, facts: BucketFacts) -> None:
        """Save what the ticket's batch found out."""

    def facts(self, ticket: Ticket) -> BucketFacts | None:
        """None if they are lost."""

    def forget(self, left_below: dict[int, int], right_below: dict[int, int]) -> None:
        """Drop what lies entirely below these offsets."""


@dataclass(eq=False)
class Kept:
    """A bucket's window in a worker's memory, and how far it is: batch, right and left offsets by partition."""

    window: Window
    number: int = 0
    right_end: dict[int, int] = field(default_factory=dict)
    left_end: dict[int, int] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)


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
    again = _Again(spec, ticket.skew_ms, read)

    for p, reading in bucket.right.items():
        low = max(low_end(reading.bounds, expiry), kept.right_end.get(p, 0))
        if low >= reading.start:
            continue
        came_from = "files"
        found = store.slices(p, low, reading.start)
        for start, end in gaps([one.covers[p] for one in found], low, reading.start):
            came_from = "log"
            found.append(store.save_slice(again.read("right", p, start, end, reading.bounds)))
        for one in sorted(found, key=lambda one: one.covers[p]):
            window.add(one)

    lost: list[tuple[int, int, int]] = []
    for p, reading in bucket.left.items():
        low = max(low_end(reading.bounds, left_from), kept.left_end.get(p, 0))
        known = store.marks(p, low, reading.start)
        for _, joined in known:
            for partition, offsets in joined.items():
                for one in window.slices:
                    one.mark(partition, offsets)
        lost += [(p, start, end) for start, end in gaps([span for span, _ in known], low, reading.start)]
    if lost and len(window):
        came_from = "log"
        _mark_again(spec, bucket, window, lost, right_from, again)
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
) -> None:
    """Join lost left ranges again. They chose among right records that may have expired since; those are read too."""
    older = Window(spec)
    for p, reading in bucket.right.items():
        low = low_end(reading.bounds, right_from_ms)
        older.add(again.read("right", p, low, reading.start, reading.bounds))
    for p, start, end in lost:
        left = again.read("left", p, start, end, bucket.left[p].bounds)
        if len(left):
            expiries = expiry_at(bucket.left[p].bounds, left.offsets)
            for expiry_ms in np.unique(expiries).tolist():
                older.mark_again(left.frame.filter(pl.Series(expiries == expiry_ms)), expiry_ms)
    for one in older.slices:
        for p in one.covers:
            joined = one.offsets[one.marks & (one.partitions == p)]
            for live in window.slices:
                live.mark(p, joined)


@dataclass(frozen=True, slots=True)
class _Again:
    """Reads ranges again, without the records that were from the future when first read."""

    spec: JoinSpec
    skew_ms: int
    fetch: Read

    def read(self, side: str, partition: int, start: int, end: int, bounds: Bounds) -> Slice:
        topic = self.spec.side(side)
        frames = []
        for batch in self.fetch(side, partition, start, end):
            taken = take_in(side, topic, batch, LATEST_MS // 2, self.skew_ms, UNKNOWN).records
            below = turned_away_from(bounds, taken["offset"].to_numpy())
            frames.append(taken.filter(taken["key"].is_not_null() & pl.Series(taken["time"].to_numpy() < below)))
        return Slice.build(pl.concat(frames) if frames else pl.DataFrame(schema=RECORD), {partition: (start, end)})


def gaps(spans: Iterable[Span], start: int, end: int) -> Iterator[Span]:
    """The parts of [start, end) that no span covers."""
    for first, last in sorted(spans):
        if start >= end:
            return
        if first > start:
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end
