"""One batch of one bucket: read right, make it a slice, read left, match it, expire. Pure but for its reader.

Running it again with the same bucket and the same window gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from joins.spec import JoinSpec
from joins.window.intake import Intake, take_in
from joins.window.records import RECORD, rows_about
from joins.window.slices import I64, Slice
from joins.window.state import Bucket, Reading
from joins.window.window import Joined, Window

Read = Callable[[str, int, int, int], Iterator[pa.RecordBatch]]
"""(side, partition, start, end) -> the readable records of the range, in the schema of `kafkaio.rangereader`."""


@dataclass(slots=True)
class Summary:
    """What a bucket's batch did; one goes back to the driver for each bucket and batch.

    rows        by outcome; `late` counts copies of late right records
    read, late  records by side; disorder_ms: the largest disorder seen, by side
    frontier_ms by side: every record still unread has at least this time; slowest: the partition that holds it back
    window_*    of the window after the batch
    buckets     how many summaries the batch has
    """

    bucket: int
    number: int
    buckets: int
    read: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    late: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    disorder_ms: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    frontier_ms: dict[str, int] = field(default_factory=dict)
    slowest: dict[str, int] = field(default_factory=dict)
    window_records: int = 0
    window_bytes: int = 0
    restored: str = ""

    def count(self, rows: pl.DataFrame) -> None:
        for outcome, reason, records in rows.group_by("outcome", "reason").len().iter_rows():
            self.rows[outcome] = self.rows.get(outcome, 0) + records
            if reason is not None:
                self.reasons[reason] = self.reasons.get(reason, 0) + records

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class BatchJoin:
    """Carries out one bucket's part of an admission on the window that the batches before have left.

    slice   what the batch added to the window, before anything of it expired
    joined  by left partition, the live right records (offsets by partition) that its range was joined with
    newest  per side and partition the largest time read so far, kept by the worker to measure the disorder
    """

    def __init__(
        self,
        spec: JoinSpec,
        bucket: Bucket,
        window: Window,
        read: Read,
        *,
        number: int,
        buckets: int,
        ceiling_ms: int,
        newest: dict[tuple[str, int], int] | None = None,
    ) -> None:
        self._spec, self._bucket, self._window, self._read = spec, bucket, window, read
        self._ceiling_ms = ceiling_ms
        self._newest = {} if newest is None else newest
        self.summary = Summary(bucket.number, number, buckets)
        for side in ("left", "right"):
            slowest = min(bucket.side(side), key=lambda p: bucket.side(side)[p].progress_ms)
            self.summary.slowest[side] = slowest
            self.summary.frontier_ms[side] = bucket.side(side)[slowest].progress_ms
        self.slice: Slice | None = None
        self.joined: dict[int, dict[int, I64]] = {}

    def rows(self) -> Iterator[pl.DataFrame]:
        """The rows that go out, in the schema of `records.ROW`; left's in the order of their partition."""
        for rows in self._join():
            if len(rows):
                self.summary.count(rows)
                yield rows
        self.summary.window_records = len(self._window)
        self.summary.window_bytes = self._window.data_bytes

    def _join(self) -> Iterator[pl.DataFrame]:
        bucket, window = self._bucket, self._window
        entering: list[pl.DataFrame] = []
        for p, reading in bucket.right.items():
            for taken in self._take_in("right", p, reading):
                yield from self._enter(taken, entering)
        if entering:
            covers = {p: (r.start, r.end) for p, r in bucket.right.items()}
            self.slice = Slice.build(pl.concat(entering, rechunk=True), covers)
            window.add(self.slice)
        for p, reading in bucket.left.items():
            joined = Joined()
            for taken in self._take_in("left", p, reading):
                yield taken.dead
                if len(taken.records):
                    yield from window.join(
                        taken.records,
                        taken.late,
                        expiry_ms=bucket.expiry_before_ms,
                        stalled_from_ms=bucket.stalled_from_ms,
                        joined=joined,
                    )
            self.joined[p] = joined.since(bucket.expiry_ms)
        yield window.expire(bucket.expiry_ms)

    def _take_in(self, side: str, partition: int, reading: Reading) -> Iterator[Intake]:
        if not reading.records:
            return
        topic = self._spec.left if side == "left" else self._spec.right
        summary = self.summary
        for batch in self._read(side, partition, reading.start, reading.end):
            taken = take_in(
                side,
                topic,
                batch,
                self._ceiling_ms,
                reading.progress_before_ms,
                self._newest.get((side, partition)),
            )
            if taken.newest_ms is not None:
                self._newest[side, partition] = taken.newest_ms
            summary.read[side] += batch.num_rows
            summary.late[side] += int(taken.late.sum())
            summary.disorder_ms[side] = max(summary.disorder_ms[side], taken.disorder_ms)
            yield taken

    def _enter(self, taken: Intake, entering: list[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Right records that some left record may still match enter the window; the others leave at once."""
        yield taken.dead
        records = taken.records
        if taken.late.any():
            yield rows_about("right", records.filter(taken.late), "late", None, late=True)
        no_key = records["key"].is_null()
        expired = (records["time"] < self._bucket.expiry_before_ms) & ~no_key
        for gone, reason in ((no_key, "null_key"), (expired, "expired")):
            if gone.any():
                yield rows_about("right", records.filter(gone), "unjoined", reason, taken.late.filter(gone))
        staying = records.filter(~(no_key | expired))
        if len(staying):
            entering.append(staying.cast(RECORD))
