"""What the join did with a bucket's batch: one type from the task to the printed line. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import polars as pl

from joins.batch.facts import BucketFacts
from joins.batch.ticket import Ticket
from joins.read.parse import ParsedBatch
from joins.read.range_gate import lags_of
from joins.read.waits import WaitSample, histogram
from joins.rows.frames import I64
from teacup.kafka.delivery.receipt import digest_of

Deleted = tuple[str, int, int, int]
"""Side, partition, and the offsets [start, end) that retention has deleted."""

Newest = dict[tuple[str, int], int]
"""Per side and partition the largest time read, kept by the worker to measure the disorder."""

ENDS_CHARACTERS = 100
"""A longer text about where partitions ended is replaced by a digest."""


@dataclass(slots=True)
class BucketSummary:
    """What a bucket's batch did; the driver gets one per bucket and batch.

    rows        by outcome; `late` counts copies of late right records
    read, late  records by side; disorder_ms: the largest disorder seen, by side
    watermark_ms  by side: every unread record has at least this time
    newest_ms   by side: the watermark of the fastest partition
    held_by     what bounds left, if not right's watermark
    late_by     by side: late records by how far they were below the partition's watermark (`BOUNDS_MS`)
    overdue, overdue_ms  by side: late records that came after the clock alone had completed their partition, and how
                         far
                below the watermark they were at most
    window_*    about the window after the batch
    buckets     how many summaries the batch has
    before_start  in the first batch, by side: how many offsets lie before where the join begins
    deleted     what retention has deleted that the marks of a restored window needed
    presumed    how many right records of that window therefore count as joined
    facts       where the next batch plan starts; ticket: the digest of their ticket
    seconds     by stage: `fetch` waits for records, `index` builds the window, `match` makes rows; `look_up` waits for
                a store
    is_part     the ticket was divided: only the facts of part 0 are about the partitions
    waits       samples for the wait curve; None in a lookup join, which does not read right
    """

    bucket: int
    number: int
    buckets: int
    generation: str = ""
    read: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    late: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    disorder_ms: dict[str, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    watermark_ms: dict[str, int] = field(default_factory=dict)
    newest_ms: dict[str, int] = field(default_factory=dict)
    held_by: str = ""
    window_records: int = 0
    window_bytes: int = 0
    restored: str = ""
    deleted: list[Deleted] = field(default_factory=list)
    presumed: int = 0
    facts: BucketFacts = field(default_factory=BucketFacts)
    ticket: str = ""
    is_part: bool = False
    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    late_by: dict[str, dict[int, int]] = field(default_factory=dict)
    before_start: dict[str, int] = field(default_factory=dict)
    overdue: dict[str, int] = field(default_factory=dict)
    overdue_ms: dict[str, int] = field(default_factory=dict)
    waits: WaitSample | None = None

    @classmethod
    def of(cls, ticket: Ticket) -> Self:
        """Returns an empty summary of a ticket."""
        summary = cls(ticket.number_of_part, ticket.number, ticket.buckets, ticket.generation)
        summary.ticket, summary.is_part = ticket.digest, ticket.part is not None
        summary.waits = WaitSample.of(ticket) if ticket.bucket.right else None
        if not ticket.part:
            summary.before_start = dict(ticket.bucket.before_start)
        return summary

    @property
    def lefts_read(self) -> int:
        """Returns how many left records the rows are about."""
        return self.read["left"]

    @property
    def ended(self) -> str:
        """Returns how far left went."""
        ends = {str(p): facts.end for p, facts in sorted(self.facts.left.items())}
        named = ", ".join(f"{p}:{end}" for p, end in ends.items())
        return f"left up to {named if len(named) <= ENDS_CHARACTERS else digest_of(ends)}"

    def count(self, rows: pl.DataFrame) -> None:
        """Counts rows by outcome, and samples them."""
        for total, column in ((self.rows, rows["outcome"]), (self.reasons, rows["reason"])):
            for value, records in column.value_counts().iter_rows():
                if value is not None:
                    total[value] = total.get(value, 0) + records
        if self.waits is not None:
            self.waits.saw_rows(rows)

    def sample_right(self, taken: ParsedBatch) -> None:
        """Samples right records for the wait curve."""
        if self.waits is not None:
            self.waits.saw_right(taken.records)
            self.waits.appended |= taken.appended

    def saw(self, taken: ParsedBatch, partition: int, newest: Newest, watermark_ms: int, disorder_ms: int) -> None:
        """Counts the records written in this batch; watermark_ms: of the partition, before it."""
        side, times = taken.side, taken.records["time"].to_numpy()
        known = (side, partition) in newest
        lags_ms, newest_ms = lags_of(times, newest.get((side, partition)))
        if newest_ms is not None:
            newest[side, partition] = newest_ms
        self.read[side] += len(taken.records) + len(taken.dead)
        if late := int(taken.late.sum()):
            self.late[side] += late
            by = self.late_by.setdefault(side, {})
            is_late = taken.late.to_numpy()
            for place, records in histogram(watermark_ms - times[is_late]).items():
                by[place] = by.get(place, 0) + records
            if known:
                self._count_overdue(side, watermark_ms, times[is_late], lags_ms[is_late] - disorder_ms)
        self.disorder_ms[side] = max(self.disorder_ms[side], int(lags_ms.max(initial=0)))

    def _count_overdue(self, side: str, watermark_ms: int, times: I64, beyond_ms: I64) -> None:
        """Counts late records below a watermark that the clock, and no record before them, has proved."""
        overdue = times[times + beyond_ms < watermark_ms]
        if len(overdue):
            self.overdue[side] = self.overdue.get(side, 0) + len(overdue)
            self.overdue_ms[side] = max(self.overdue_ms.get(side, 0), watermark_ms - int(overdue.min()))

    def note(self, facts: BucketFacts) -> None:
        """Stores the facts of the batch, and their watermarks."""
        for side, partitions in (("left", facts.left), ("right", facts.right)):
            if partitions:
                self.watermark_ms[side] = min(of.watermark_ms for of in partitions.values())
                self.newest_ms[side] = max(of.watermark_ms for of in partitions.values())
        if self.waits is not None:
            self.waits.unread -= sum(of.end for of in facts.right.values())
        self.facts = BucketFacts(oldest_ms=facts.oldest_ms) if self.is_part and self.bucket else facts
