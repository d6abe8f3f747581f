"""One bucket's part of a batch. Pure, as a generator: it yields an `Ask`, is sent the answers, returns a `BucketPlan`.

A plan says how far to read; the task that reads the records finds which of them may go (`joins.read.batch_reader`). A
search of the log may be wrong: then a batch only reads too little or too much. Everything worth reading is read in the
end, because every planned range makes at least one more record known.

Where there is little to read, all of it is read: searching for where to stop would take longer. One partition of each
side is still sampled, as records ahead of the clock mean that the clock is behind.

Where both sides together have more to read than the batch's quota of records, right is read up to a target time H, and
left as far as that lets it go. H is searched for (`TargetSearch`): the largest target that keeps within the quota.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.rules import expiry, give_up, latest_right, left_limit, right_watermark
from joins.batch.state import Bucket, PartitionRange
from joins.plan.readable import Answers, Ask, Asking, EndOffsets, Expected, Readable, read_left, read_right, readable_of
from joins.spec import JoinSpec
from teacup.base.times import LATEST_MS
from teacup.kafka.log.topic_log import fair_shares

QUOTA_MET = 0.6  # the search ends at a target that fills this fraction of the quota
SEARCH_ROUNDS = 5
FEW, FEW_OF_A_PARTITION = 4_000, 100
"""Reading and parsing this many records is faster than asking the brokers where times begin."""


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """A bucket's ranges and their expected facts, from which the next plan may start.

    ahead  the sides and partitions whose newest records seem to be ahead of the clock, or have no time
    """

    bucket: Bucket
    expected: BucketFacts
    ahead: frozenset[tuple[str, int]] = frozenset()

    def expires(self) -> bool:
        """Returns whether the window holds records that the batch is expected to expire."""
        oldest_ms = self.bucket.oldest_ms
        return oldest_ms is not None and oldest_ms < self.expected.expiry_ms


@dataclass(frozen=True, slots=True)
class BucketPlanner:
    """Plans one bucket's part of the next batch.

    bucket            its state after the previous batch
    quota             how many records of this bucket the batch may read
    waiting_since_ms  the wall clock time from which `max_wait` counts, unless the watermark has moved since
    """

    spec: JoinSpec
    bucket: Bucket
    end_offsets: EndOffsets
    quota: int
    waiting_since_ms: int

    def plan(self) -> Asking[BucketPlan]:
        """Plans how far each partition is read."""
        spec, bucket, end_offsets = self.spec, self.bucket, self.end_offsets
        if self._reads_all:
            left, right = yield from readable_of(spec, bucket, end_offsets, "left", "right", sample=True)
            if not any(newest is None or self._is_ahead(newest) for s in (left, right) for newest in s.newest.values()):
                return (yield from self._read_all(left, right))
        left, right = yield from readable_of(spec, bucket, end_offsets, "left", "right")
        cap = min(latest_right(spec.right, self._reach_of_left(left)) + right.disorder_ms, LATEST_MS)
        target = cap
        if end_offsets.unread(bucket) > self.quota:
            target = yield from TargetSearch(spec, bucket, left, right).find(self.quota, cap)

        planned = yield from self._read_to(left, right, target)
        if not planned.bucket.reads and target < cap:
            # Because of disorder no range reaches an unread record below the target: read a quota of right, whatever
            # its times. A moved watermark is not enough: a batch plan with nothing to read or expire is discarded.
            planned = yield from self._read_to(left, right, cap)
        return self._suspecting(planned, left, right)

    def plan_left(self, stored_ms: int) -> Asking[BucketPlan]:
        """Plans left alone: right is read elsewhere, up to `stored_ms`."""
        (left,) = yield from readable_of(self.spec, self.bucket, self.end_offsets, "left")
        bucket = structs.replace(self.bucket, stored_ms=max(stored_ms, self.bucket.watermark_ms))
        planned = yield from self._admit_left(bucket, {}, left, self.quota, may_give_up=True)
        return self._suspecting(planned, left)

    @property
    def _reads_all(self) -> bool:
        """Returns whether it is not worth looking for where to stop.

        `max_wait` counts from when right was last seen to advance, `complete` ends by the newest records, and left that
        is held bounds right by its own.
        """
        spec, unread = self.spec, self.end_offsets.unread(self.bucket)
        follows = spec.idle is Idle.ADVANCE and any(self.end_offsets.left[p].settled for p in self.bucket.left)
        few = max(FEW, FEW_OF_A_PARTITION * (len(self.bucket.left) + len(self.bucket.right)))
        return 0 < unread <= min(few, self.quota) and follows and spec.right.max_wait_ms is None and not spec.complete

    def _read_all(self, left: Readable, right: Readable) -> Asking[BucketPlan]:
        """Plans everything unread, except left records that are known to wait for right records still to come."""
        bucket = self.bucket
        expected = yield from read_right(right, bucket.right, LATEST_MS, self.quota)
        bucket = structs.replace(bucket, right={p: e.partition_range for p, e in expected.items()})
        watermark_ms = right_watermark((e.watermark_ms for e in expected.values()), bucket.watermark_ms)
        limit = left_limit(self.spec, bucket.known_watermark_ms, watermark_ms)
        until_ms = LATEST_MS if any(r.records for r in bucket.right.values()) else limit.limit_ms
        after = yield from read_left(left, bucket.left, until_ms, self.quota, search=False)
        return self._planned(bucket, after, expected, watermark_ms)

    def _read_to(self, left: Readable, right: Readable, target: int) -> Asking[BucketPlan]:
        """Plans for a target: right up to it, then left up to where right's watermark is expected to admit it."""
        expected = yield from read_right(right, self.bucket.right, target, self.quota)
        bucket = structs.replace(self.bucket, right={p: e.partition_range for p, e in expected.items()})
        quota = max(self.quota - sum(r.records for r in bucket.right.values()), self.quota // 2, 1)
        at_end = all(partition_range.end >= right.ends[p] for p, partition_range in bucket.right.items())
        return (yield from self._admit_left(bucket, expected, left, quota, may_give_up=at_end))

    def _admit_left(
        self, bucket: Bucket, right: Mapping[int, Expected], left: Readable, quota: int, *, may_give_up: bool
    ) -> Asking[BucketPlan]:
        """Plans left up to where right's watermark admits it.

        bucket       with the planned ranges of right, or with what a data delay says about right
        may_give_up  left may go without right after `max_wait`, because every readable right record is read
        """
        spec, now_ms = self.spec, self.end_offsets.listed_ms
        watermark_ms = right_watermark((e.watermark_ms for e in right.values()), bucket.watermark_ms, bucket.stored_ms)
        advanced_ms = now_ms if watermark_ms > bucket.watermark_ms else bucket.advanced_ms
        if may_give_up:
            give_up_ms = give_up(spec.right, now_ms, max(advanced_ms, self.waiting_since_ms))
            bucket = structs.replace(bucket, give_up_ms=give_up_ms)
        limit = left_limit(spec, bucket.known_watermark_ms, watermark_ms, bucket.give_up_ms)
        after = yield from read_left(left, bucket.left, limit.limit_ms, quota)
        return self._planned(bucket, after, right, watermark_ms)

    def _planned(
        self, bucket: Bucket, left: Mapping[int, Expected], right: Mapping[int, Expected], watermark_ms: int
    ) -> BucketPlan:
        return BucketPlan(
            structs.replace(bucket, left={p: e.partition_range for p, e in left.items()}),
            BucketFacts(
                left={p: _facts(e) for p, e in left.items()},
                right={p: _facts(e) for p, e in right.items()},
                watermark_ms=watermark_ms,
                expiry_ms=expiry(self.spec.right, (e.watermark_ms for e in left.values()), bucket.expiry_ms),
            ),
        )

    def _reach_of_left(self, left: Readable) -> int:
        """Returns the time up to which left can be read at all: right is read only as far as these records need it.

        A left partition that follows the clock has no bound, as its watermark expires the window. With one that is held
        (an open transaction, `idle: hold`) the window would grow without limit.
        """
        ranges = self.bucket.left
        follows = self.spec.complete or self.spec.idle is Idle.ADVANCE
        if follows and any(self.end_offsets.left[p].settled for p in ranges):
            return LATEST_MS
        newest = [t + left.disorder_ms + 1 for t in left.newest.values() if t is not None]
        held = [
            partition_range.held_ms + 1 for partition_range in ranges.values() if partition_range.held_ms is not None
        ]
        return max([*newest, *held], default=UNKNOWN)

    def _suspecting(self, planned: BucketPlan, *sides: Readable) -> BucketPlan:
        """Names the partitions whose newest records are ahead of the clock, which is rare if the clock is right."""
        ahead = [
            (side.side, p)
            for side in sides
            for p, partition_range in planned.bucket.side(side.side).items()
            if partition_range.records and ((newest := side.newest[p]) is None or self._is_ahead(newest))
        ]
        return replace(planned, ahead=frozenset(ahead)) if ahead else planned

    def _is_ahead(self, time_ms: int) -> bool:
        return time_ms > self.end_offsets.listed_ms


def rebased(planned: Bucket, state: Bucket) -> Bucket:
    """Applies the ranges of a plan made from expected facts to `state`, the real one after the previous batch."""

    def applied(ranges: Mapping[int, PartitionRange], now: Mapping[int, PartitionRange]) -> dict[int, PartitionRange]:
        return {p: now[p].to(ranges[p].end, ranges[p].claim_ms) for p in now}

    return structs.replace(
        state,
        left=applied(planned.left, state.left),
        right=applied(planned.right, state.right),
        stored_ms=planned.stored_ms,
        give_up_ms=planned.give_up_ms,
    )


@dataclass(frozen=True, slots=True)
class TargetSearch:
    """Searches for the target time H of a bucket whose sides have more to read than a batch may."""

    spec: JoinSpec
    bucket: Bucket
    left: Readable
    right: Readable

    def find(self, quota: int, cap: int) -> Asking[int]:
        """Finds a target whose batch has at most `quota` records, and not many fewer: by the secant method, on counts
        estimated from the brokers' time index.

        Half a quota of each side is never too much and a whole quota of each is enough, so the target lies in between.

        cap   beyond it a target lets no more of left go
        """
        low = self._reached((yield self._ahead(quota // 2)), cap)
        high = self._reached((yield self._ahead(quota)), cap)
        low_count = yield from self._count(low)
        high_count = yield from self._count(high)
        if high_count <= quota:
            return high
        for _ in range(SEARCH_ROUNDS):
            if low_count >= QUOTA_MET * quota or high - low <= 1:
                break
            slope = (0.85 * quota - low_count) / max(high_count - low_count, 1)
            middle = min(max(low + int((high - low) * slope), low + 1), high - 1)
            count = yield from self._count(middle)
            if count <= quota:
                low, low_count = middle, count
            else:
                high, high_count = middle, count
        return low

    def _ahead(self, records: int) -> Ask:
        """Asks for the times that each side reaches after this many records."""
        bucket = self.bucket
        return Ask(
            newest={
                "left": _ahead(bucket.left, self.left.ends, records),
                "right": _ahead(bucket.right, self.right.ends, records),
            }
        )

    def _reached(self, answers: Answers, cap: int) -> int:
        """Returns the target that these times lead to, from the answers to all buckets of this round."""
        newest, bucket = answers.newest, self.bucket
        times = [t for p in bucket.right if (t := newest["right"].get(p)) is not None]
        left_times = [t for p in bucket.left if (t := newest["left"].get(p)) is not None]
        return min([cap, *times, *(latest_right(self.spec.right, t) + self.right.disorder_ms + 1 for t in left_times)])

    def _count(self, target: int) -> Asking[int]:
        """Estimates how many records a batch with this target reads."""
        bucket, left, right = self.bucket, self.left, self.right
        reached = (yield Ask(estimate={"right": dict.fromkeys(bucket.right, target)})).estimate["right"]
        watermarks = [
            max(r.watermark_ms, target - right.disorder_ms if reached[p] < right.ends[p] else right.claims[p])
            for p, r in bucket.right.items()
        ]
        limit = left_limit(self.spec, bucket.known_watermark_ms, right_watermark(watermarks, bucket.watermark_ms))
        allowed = (yield Ask(estimate={"left": dict.fromkeys(bucket.left, limit.limit_ms)})).estimate["left"]
        return _between(bucket.right, reached, right.ends) + _between(bucket.left, allowed, left.ends)


def _ahead(ranges: Mapping[int, PartitionRange], ends: Mapping[int, int], records: int) -> dict[int, int]:
    """Returns by partition with unread records the offset after its fair part of this many records."""
    parts = fair_shares({p: ends[p] - r.end for p, r in ranges.items() if r.end < ends[p]}, records)
    return {p: ranges[p].end + max(part, 1) for p, part in parts.items()}


def _between(ranges: Mapping[int, PartitionRange], offsets: Mapping[int, int], ends: Mapping[int, int]) -> int:
    return sum(max(min(offsets[p], ends[p]) - r.end, 0) for p, r in ranges.items())


def _facts(expected: Expected) -> RangeFacts:
    return RangeFacts(expected.position, expected.watermark_ms, held_ms=expected.held_ms)
