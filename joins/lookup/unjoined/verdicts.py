"""Judges a slice of one right partition, record by record in offset order. Pure except for its reader.

appears in an output row                    joined
at or after the slice's expiry              can still match: the slice ends before it
before the time at which verdicts start     no verdict, counted as `before_start`
future or missing time, invalid value       dead letter: the feeder sent it to the dead-letter topic; counted here
no key                                      unjoined, null_key
anything else                               unjoined, expired
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from datadelay.watermark import UNKNOWN
from joins.lookup.unjoined.expired import RightSlice
from joins.outcome import Outcome
from joins.read.parse import parse
from joins.rows.frames import I64, Bools, rows_about
from joins.spec import JoinSpec
from teacup.kafka.headers import EXPIRED, NULL_KEY


class JoinedOffsets:
    """The offsets of [start, end) that appear in the output: one flag each, however many rows there are."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end = start, end
        self._bits = np.zeros(max(end - start, 0), dtype=np.bool_)

    def add(self, offsets: I64) -> None:
        """Adds offsets that appear in rows; offsets outside the range are ignored."""
        inside = offsets[(offsets >= self._start) & (offsets < self._end)]
        self._bits[inside - self._start] = True

    def holds(self, offsets: I64) -> Bools:
        """Returns for each offset whether it was added. All must be in the range."""
        bits: Bools = self._bits[offsets - self._start]
        return bits


@dataclass(slots=True)
class SliceSummary:
    """Counts of a partition: read = joined + rows (by outcome) + dead + before_start. Its range ended at `reached`."""

    bucket: int
    number: int
    reached: int
    read: int = 0
    joined: int = 0
    before_start: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def lefts_read(self) -> int:
        """The number of left records that the rows are about: always 0."""
        return 0

    @property
    def ended(self) -> str:
        """Describes how far right was judged."""
        return f"right up to {self.bucket}:{self.reached}"


class PartitionVerdicts:
    """Judges one partition's range of a slice."""

    def __init__(
        self, spec: JoinSpec, slice_: RightSlice, partition: int, begin_ms: int, joined: JoinedOffsets
    ) -> None:
        self._spec, self._slice, self._begin_ms, self._joined = spec, slice_, begin_ms, joined
        range_ = slice_.right[partition]
        self.summary = SliceSummary(partition, range_.number, range_.end)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
        """Yields a row (`frames.ROW`) for each unjoined record among these records of the range, in offset order."""
        skew_ms = self._spec.max_future_skew_ms
        for batch in batches:
            taken = parse("right", self._spec.right, batch, self._slice.ceiling_ms - skew_ms, skew_ms, UNKNOWN)
            records, dead = taken.records, taken.dead
            unexpired = records["time"] >= self._slice.expiry_ms
            ends_here = bool(unexpired.any())
            if ends_here:
                self.summary.reached = int(records["offset"].filter(unexpired)[0])
                records = records.filter(pl.col("offset") < self.summary.reached)
                dead = dead.filter(pl.col("right_offset") < self.summary.reached)
            rows = self._unjoined(records, dead)
            if len(rows):
                yield rows
            if ends_here:
                return

    def _unjoined(self, records: pl.DataFrame, dead: pl.DataFrame) -> pl.DataFrame:
        summary = self.summary
        for reason, count in dead.group_by("reason").len().iter_rows():
            summary.dead[reason] = summary.dead.get(reason, 0) + count
        early = records["time"] < self._begin_ms
        joined = pl.Series(self._joined.holds(records["offset"].to_numpy())) & ~early
        rest = records.filter(~(joined | early))
        reason = rest.select(reason=pl.when(pl.col("key").is_null()).then(pl.lit(NULL_KEY)).otherwise(pl.lit(EXPIRED)))[
            "reason"
        ]
        rows = rows_about("right", rest, Outcome.UNJOINED, reason, late=False)
        summary.read += len(records) + len(dead)
        summary.joined += int(joined.sum())
        summary.before_start += int(early.sum())
        summary.rows[Outcome.UNJOINED] = summary.rows.get(Outcome.UNJOINED, 0) + len(rows)
        for word, count in reason.value_counts().iter_rows():
            summary.reasons[word] = summary.reasons.get(word, 0) + count
        return rows
