"""What a run decided, as far as its checkpoint still says: which batch read a record, and what the batch knew. Pure.

A checkpoint keeps the plans of the last batches (100, unless `spark.sql.streaming.minBatchesToRetain` says otherwise).
A plan says where each partition's part begins, and the next plan where it ended. So for each offset that these batches
have read it is known which batch that was, and what the batch based its decisions on:

    late       a record below its partition's watermark before the batch
    future     a record beyond the clock when the ends were listed, plus the tolerated skew
    expired    right records below the bucket's expiry before the batch were no candidates
    stalled    left records from here on went without waiting for right (`max_wait`)

Earlier offsets were read by batches of which nothing is known (`BEFORE`), unless the very first plan is still there:
then this checkpoint has not read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from joins.batch.state import BatchPlan, Bucket
from teacup.base.times import EARLIEST_MS, LATEST_MS

I64 = npt.NDArray[np.int64]

BEFORE = -1
"""Stands for a batch's number: the record was read by a batch before the known ones."""

UNREAD = 2**31 - 1
"""Stands for a batch's number: this checkpoint has not read the record, or not yet."""

FIELDS = ("number", "watermark_ms", "ceiling_ms", "expiry_ms", "stalled_ms")


@dataclass(frozen=True, slots=True)
class OffsetSpans:
    """One partition, as the known batches read it: row i of the columns holds for the offsets [starts[i], starts[i+1]).

    end     where the last batch ended
    before  who read what comes before: `BEFORE`, or `UNREAD` if the very first batch is known
    other   another checkpoint has read what comes after, up to here
    """

    starts: I64
    end: int
    columns: Mapping[str, I64]
    before: int = BEFORE
    other: int = 0

    def at(self, offsets: I64) -> dict[str, I64]:
        """Returns the columns for these offsets; what batches before the known ones decided has no bounds."""
        row = np.searchsorted(self.starts, offsets, side="right") - 1
        is_planned = (row >= 0) & (offsets < self.end)
        row = np.where(is_planned, row, 0)
        if not len(self.starts):
            return {name: np.full(len(offsets), unknown, np.int64) for name, unknown in _UNKNOWN.items()}
        values = {name: np.where(is_planned, self.columns[name][row], unknown) for name, unknown in _UNKNOWN.items()}
        values["number"][offsets < self.starts[0]] = self.before
        values["number"][offsets >= self.end] = UNREAD
        values["number"][(offsets >= self.end) & (offsets < self.other)] = BEFORE
        return values


_UNKNOWN = {
    "number": BEFORE,
    "watermark_ms": EARLIEST_MS,
    "ceiling_ms": LATEST_MS,
    "expiry_ms": EARLIEST_MS,
    "stalled_ms": LATEST_MS,
}

_NOTHING = OffsetSpans(np.empty(0, np.int64), 0, {name: np.empty(0, np.int64) for name in FIELDS})


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """What is known of a run.

    left, right   by partition
    done          where left goes on: every record before it has been written
    expiry_ms     the partition's right records below it have expired and are written where they belong
    begins        where left began; None unless the first plan is known
    """

    left: Mapping[int, OffsetSpans] = field(default_factory=dict)
    right: Mapping[int, OffsetSpans] = field(default_factory=dict)
    done: Mapping[int, int] = field(default_factory=dict)
    expiry_ms: Mapping[int, int] = field(default_factory=dict)
    begins: Mapping[int, int] | None = None
    right_begins: Mapping[int, int] | None = None
    batches: int = 0

    def of(self, side: str, partition: int) -> OffsetSpans:
        """Returns what is known of a partition."""
        return (self.left if side == "left" else self.right).get(partition, _NOTHING)


def plan_history_of(
    plans: Sequence[BatchPlan],
    after: BatchPlan,
    after_ms: int,
    *,
    lookup: bool = False,
    moved: bool = False,
    further: Mapping[int, int] = MappingProxyType({}),
) -> PlanHistory:
    """Returns what the plans of committed batches say.

    plans     in order
    after     the state that the last one left
    after_ms  the join's `after`
    lookup    a lookup join: its plans say nothing about right
    moved     another checkpoint has written the left records before the first plan
    further   by partition, up to where another checkpoint has written the records after the last plan
    """
    plans = _without_gaps(plans)
    changes: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for plan, following in pairwise([*plans, after]):
        for number, bucket in plan.buckets.items():
            then = following.buckets[number]
            stalled_ms = _stalled_ms(bucket, then, plan.parts is not None, after_ms)
            ceiling_ms = plan.listed_ms + plan.skew_ms
            for side in ("left", "right"):
                for p, planned in bucket.side(side).items():
                    row = (planned.start, plan.number, planned.watermark_ms, ceiling_ms, bucket.expiry_ms, stalled_ms)
                    changes.setdefault((side, p), []).append(row)
    ends = {
        (side, p): planned.start
        for bucket in after.buckets.values()
        for side in ("left", "right")
        for p, planned in bucket.side(side).items()
    }
    stretches: dict[str, dict[int, OffsetSpans]] = {"left": {}, "right": {}}
    first = bool(plans) and plans[0].number <= 1
    for (side, p), rows in changes.items():
        starts, *columns = np.array(rows, np.int64).T
        before = UNREAD if first and not (moved and side == "left") else BEFORE
        other = further.get(p, 0) if side == "left" else 0
        stretches[side][p] = OffsetSpans(starts, ends[side, p], dict(zip(FIELDS, columns, strict=True)), before, other)
    return PlanHistory(
        left=stretches["left"],
        right={} if lookup else stretches["right"],
        done={p: max(end, further.get(p, 0)) for (side, p), end in ends.items() if side == "left"},
        expiry_ms={} if lookup else {p: b.expiry_ms for b in after.buckets.values() for p in b.right},
        begins=_begins(stretches["left"]) if first else None,
        right_begins=_begins(stretches["right"]) if first and not lookup else None,
        batches=len(plans),
    )


def _begins(stretches: Mapping[int, OffsetSpans]) -> dict[int, int]:
    return {p: int(stretch.starts[0]) for p, stretch in stretches.items()}


def _without_gaps(plans: Sequence[BatchPlan]) -> list[BatchPlan]:
    """Returns the last plans without a gap between them."""
    contiguous: list[BatchPlan] = []
    for plan in plans:
        if contiguous and (plan.number, plan.generation) != (contiguous[-1].number + 1, contiguous[-1].generation):
            contiguous = []
        contiguous.append(plan)
    return contiguous


def _stalled_ms(bucket: Bucket, then: Bucket, shuffled: bool, after_ms: int) -> int:
    """Returns the time from which left went without waiting, if right was given up and not cut short by its bytes.

    On the shuffled path left goes by what was known of right before the batch.
    """
    cut = any(then.right[p].start < planned.end for p, planned in bucket.right.items())
    if bucket.give_up_ms is None or cut:
        return LATEST_MS
    known_ms = bucket.known_watermark_ms if shuffled else then.watermark_ms
    complete_ms = known_ms - after_ms if known_ms > EARLIEST_MS else EARLIEST_MS
    return complete_ms if bucket.give_up_ms > complete_ms else LATEST_MS
