"""Bring a worker's window up to the batch before: from memory, from slice files, or again from the log.

The window of a batch is a function of the log and the admission: the right records of [low, start) with time >=
expiry, and the marks that the left records of [left low, left start) have set on them. Whatever of it is at hand is
taken, the gaps are read again from Kafka, and what was lost of the marks is made by joining its left range once more,
without rows. That is exact for records within their disorder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

from joins.spec import JoinSpec
from joins.window.batch import Read
from joins.window.intake import take_in
from joins.window.records import RECORD
from joins.window.slices import I64, Slice
from joins.window.state import Bound, Bucket, low_end, rebuild_from
from joins.window.window import Window

Span = tuple[int, int]


class SliceStore(Protocol):
    """Where a bucket's slices and marks outlive a task. A cache: it may lose anything, but never tell wrong."""

    def slices(self, partition: int, start: int, end: int) -> list[Slice]:
        """Slices that together cover as much of [start, end) as there is, none overlapping another."""

    def save_slice(self, one: Slice) -> Slice:
        """The same slice, marks included, as it lies in the store."""

    def marks(self, partition: int, start: int, end: int) -> list[tuple[Span, dict[int, I64]]]:
        """Per left range inside [start, end): the right offsets that it was joined with, by right partition."""

    def save_marks(self, partition: int, span: Span, joined: dict[int, I64]) -> None: ...

    def forget(self, left_below: dict[int, int], right_below: dict[int, int]) -> None:
        """Drop what lies wholly below these offsets."""


@dataclass(eq=False)
class Kept:
    """A bucket's window in a worker's memory, and how far it has come: batch, right and left offsets by partition."""

    window: Window
    number: int = 0
    right_end: dict[int, int] = field(default_factory=dict)
    left_end: dict[int, int] = field(default_factory=dict)
    newest: dict[tuple[str, int], int] = field(default_factory=dict)


def restore(
    spec: JoinSpec, bucket: Bucket, number: int, kept: Kept | None, store: SliceStore, read: Read
) -> tuple[Kept, str]:
    """The window as it was before batch `number`, and a word on where it came from: memory, files or log.

    A window in memory that this batch, or a later one, has changed already is of no use to a retry.
    """
    expiry = bucket.expiry_before_ms
    left_from, right_from = rebuild_from(spec, expiry)
    came_from = "memory"
    if kept is None or kept.number >= number:
        kept = Kept(Window(spec, expired_ms=expiry))
    window = kept.window

    for p, reading in bucket.right.items():
        low = max(low_end(reading.bounds, expiry), kept.right_end.get(p, 0))
        if low >= reading.start:
            continue
        came_from = "files"
        found = store.slices(p, low, reading.start)
        for start, end in gaps([one.covers[p] for one in found], low, reading.start):
            came_from = "log"
            found.append(store.save_slice(_read_again(spec, "right", p, start, end, reading.bounds, read)))
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
        _mark_again(spec, bucket, window, lost, right_from, read)
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
    read: Read,
) -> None:
    """Join lost left ranges again. They chose among right records that may have expired since: those are read too."""
    older = Window(spec)
    for p, reading in bucket.right.items():
        low = low_end(reading.bounds, right_from_ms)
        older.add(_read_again(spec, "right", p, low, reading.start, reading.bounds, read))
    for p, start, end in lost:
        left = _read_again(spec, "left", p, start, end, bucket.left[p].bounds, read)
        if len(left):
            older.mark_again(left.frame)
    for one in older.slices:
        for p in one.covers:
            joined = one.offsets[one.marks & (one.partitions == p)]
            for live in window.slices:
                live.mark(p, joined)


def _read_again(
    spec: JoinSpec,
    side: str,
    partition: int,
    start: int,
    end: int,
    bounds: tuple[Bound, ...],
    read: Read,
) -> Slice:
    """A range as a slice, without the records that were from the future when it was first read."""
    topic = spec.left if side == "left" else spec.right
    frames = []
    for batch in read(side, partition, start, end):
        taken = take_in(side, topic, batch, 2**62, -(2**62), None).records
        ceiling = ceilings(bounds, taken["offset"].to_numpy())
        frames.append(taken.filter(taken["key"].is_not_null() & pl.Series(taken["time"].to_numpy() < ceiling)))
    return Slice.build(pl.concat(frames) if frames else pl.DataFrame(schema=RECORD), {partition: (start, end)})


def ceilings(bounds: Iterable[Bound], offsets: I64) -> I64:
    """For each offset the bound of the batch that read it: no record that took part had this time or a later one."""
    ends, below = (np.array(column, dtype=np.int64) for column in zip(*bounds, strict=True))
    at = np.searchsorted(ends, offsets, side="right")
    return np.append(below, 2**62)[at]


def gaps(spans: Iterable[Span], start: int, end: int) -> Iterator[Span]:
    """What of [start, end) no span covers."""
    for first, last in sorted(spans):
        if start >= end:
            return
        if first > start:
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end
