"""SyncBolt: what a batch may read. Pure: state and ends in, batch plan out; it queries the log through `Ask`s.

One bucket, one batch, with H a target time and D the disorder of a side:

    right partition   is read until its records prove that H is reached; its watermark is then H - D. One without such
                      records is read to its end, and its watermark is what its records and the clock prove
    right watermark   is the minimum over right's partitions
    left              goes up to the limit that this watermark allows: each partition up to its first record at or above
    left watermark    bounds the records from there on: no timely one has a smaller time. The expiry follows from it

`joins.batch.rules` has the formulas, and why they prevent the deadlock. Ranges are planned by asking the log where
times begin, and are estimates. The task finds watermarks, expiry and where left stops in the records
(`joins.read.batch_reader`); they come back as facts, from which the next plan starts.

H is the largest target that keeps the batch within its quota of records: whichever topic is behind is read, and right
is never read further than left needs it. The plan of a bucket is a generator (`joins.plan.bucket_plan`); all of them
run in lockstep.

If there is nothing to read, that stays so until a known time, unless the topics grow (`next_batch_due_ms`):

    left waits      its next record goes once the clock proves right beyond it: time + after + producer delay
    the window      expires once the clock proves left beyond its oldest record: time + before + producer delay; batches
                    that only expire it keep a minimum distance
    anything else   a recreated or truncated topic, new partitions, the daily batch: checked every second

If more than the clock decides, each look makes a plan: when right is not read to its end, a transaction is open, left's
next record is unknown, `max_wait` runs, or another system says how far right is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from datadelay.watermark import UNKNOWN
from joins.batch.facts import BucketFacts
from joins.batch.rules import latest_left
from joins.batch.state import BatchPlan, Bucket
from joins.plan.bucket_plan import BucketPlan, BucketPlanner, rebased
from joins.plan.readable import Asking, EndOffsets, with_batched_lookups
from joins.plan.wait_reasons import NotReady, why_left_waits
from joins.spec import JoinSpec
from teacup.kafka.log.topic_log import Ends, TopicLog, fair_shares

PLAN_EVERY_MS = 1_000
RENEW_EVERY_MS = 24 * 3_600_000  # even with nothing to read: Kafka forgets the offsets of groups after seven days


@dataclass(frozen=True, slots=True)
class Planned:
    """The next batch plan, and its expected facts by bucket.

    ahead  the sides and partitions whose newest records seem to be ahead of the clock, or have no time
    """

    batch_plan: BatchPlan
    expected: Mapping[int, BucketFacts]
    ahead: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def nothing(cls, begun: BatchPlan) -> Planned:
        """Returns the first batch of a join with nothing to read yet."""
        return cls(replace(begun, number=begun.number + 1), {})

    def rebased(self, state: BatchPlan) -> Planned:
        """Applies these ranges, planned from expected facts, to the real `state` after the previous batch."""
        buckets = {n: rebased(self.batch_plan.buckets[n], bucket) for n, bucket in state.buckets.items()}
        return replace(self, batch_plan=replace(self.batch_plan, buckets=buckets))


@dataclass(frozen=True, slots=True)
class SyncBolt:
    """Plans the batches of a join, so that left advances in step with right.

    logs   the topics that the batches read, by side: both, or only left if a feeder reads right
    watch  remembers looks without a batch plan; without it, `max_wait` counts from the last batch plan
    """

    spec: JoinSpec
    logs: Mapping[str, TopicLog]
    watch: StallTimer = field(default_factory=lambda: StallTimer(UNKNOWN))

    def plan(self, state: BatchPlan, end_offsets: EndOffsets, *, skips: bool = False) -> Planned | NotReady:
        """Returns the batch plan after `state`; if there is nothing to read or expire, what left waits for.

        state  after the previous batch (`BatchPlan.after`)
        skips  it has skipped deleted records, which a batch is to say at once, even if there is nothing else
        """
        plans = {n: planner.plan() for n, planner in self._planners(state, end_offsets).items()}
        return self._next_plan(state, end_offsets, plans, skips=skips)

    def plan_left(
        self, state: BatchPlan, end_offsets: EndOffsets, stored_ms: int, *, skips: bool = False
    ) -> Planned | NotReady:
        """Does the same if a feeder has stored right up to `stored_ms` (or `UNKNOWN`)."""
        plans = {n: planner.plan_left(stored_ms) for n, planner in self._planners(state, end_offsets).items()}
        return self._next_plan(state, end_offsets, plans, skips=skips)

    def _planners(self, state: BatchPlan, end_offsets: EndOffsets) -> dict[int, BucketPlanner]:
        """Returns a planner for each bucket, with its quota of the records that the batch may read: at least one."""
        most = self.spec.records_of_batch(state.tasks)
        quotas = fair_shares({b.number: end_offsets.unread(b) for b in state.buckets.values()}, most)
        return {
            n: BucketPlanner(self.spec, bucket, end_offsets, max(quotas[n], 1), self.watch.since_ms(n))
            for n, bucket in state.buckets.items()
        }

    def _next_plan(
        self, state: BatchPlan, end_offsets: EndOffsets, plans: Mapping[int, Asking[BucketPlan]], *, skips: bool
    ) -> Planned | NotReady:
        """Makes the plans with the logs' answers.

        A started join runs a batch at least once a day, to renew receipts and positions before Kafka expires them.
        """
        spec = self.spec
        made = with_batched_lookups(plans, self.logs, end_offsets.listed_ms + spec.max_future_skew_ms)
        self.watch.saw(state.buckets, made, end_offsets.listed_ms)
        reads = any(plan.bucket.reads for plan in made.values())
        waited_ms = end_offsets.listed_ms - state.listed_ms
        expires = waited_ms >= spec.watermark_every_ms and any(plan.expires() for plan in made.values())
        renews = state.number > 0 and waited_ms >= RENEW_EVERY_MS
        if not (reads or expires or renews or skips):
            return self._held(state, end_offsets, made)
        batch_plan = replace(
            state,
            number=state.number + 1,
            listed_ms=end_offsets.listed_ms,
            skew_ms=spec.max_future_skew_ms,
            right_bytes=spec.max_right_bytes,
            buckets={number: plan.bucket for number, plan in made.items()},
            parts=state.parts and (spec.buckets or state.parts),
        )
        ahead = frozenset().union(*(plan.ahead for plan in made.values()))
        return Planned(batch_plan, {number: plan.expected for number, plan in made.items()}, ahead)

    def _held(self, state: BatchPlan, end_offsets: EndOffsets, made: Mapping[int, BucketPlan]) -> NotReady:
        waits = (why_left_waits(self.spec, plan.bucket, plan.expected, end_offsets) for plan in made.values())
        until_ms = next_batch_due_ms(
            self.spec, end_offsets, made.values(), state.listed_ms + self.spec.watermark_every_ms
        )
        last_ms = None if end_offsets.steps is None else end_offsets.steps.last_ms
        return NotReady(
            end_offsets.listed_ms,
            tuple(wait for wait in waits if wait is not None),
            until_ms,
            highs_of(end_offsets),
            last_ms,
        )


@dataclass(slots=True)
class StallTimer:
    """Remembers since when right has not advanced, as one process has seen it: `max_wait` counts from there.

    The watermark of an idle topic follows the clock and so moves at each look, without a batch plan. Time before the
    process started to look does not count.
    """

    started_ms: int
    _moved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def since_ms(self, bucket: int) -> int:
        """Returns since when (ms) right has not advanced in a bucket."""
        return self._moved[bucket][1] if bucket in self._moved else self.started_ms

    def saw(self, state: Mapping[int, Bucket], plans: Mapping[int, BucketPlan], now_ms: int) -> None:
        """Notes which watermarks the plans of one look, by bucket, advance at `now_ms`."""
        for number, plan in plans.items():
            known_ms = self._moved[number][0] if number in self._moved else state[number].watermark_ms
            if plan.expected.watermark_ms > known_ms:
                self._moved[number] = (plan.expected.watermark_ms, now_ms)


def next_batch_due_ms(
    spec: JoinSpec, end_offsets: EndOffsets, plans: Iterable[BucketPlan], expires_from_ms: int
) -> int:
    """Returns until when planning would find nothing to read, like these plans; at least the listing's time.

    expires_from_ms   when the next batch that only expires the window may run
    """
    due = [time_ms for plan in plans for time_ms in _due(spec, end_offsets, plan, expires_from_ms)]
    return max(min([*due, end_offsets.listed_ms + PLAN_EVERY_MS]), end_offsets.listed_ms)


def highs_of(end_offsets: EndOffsets) -> dict[str, dict[int, int]]:
    """Returns where both topics end, by side and partition: unchanged while nothing is written to them."""
    return {side: {p: ends.high for p, ends in end_offsets.side(side).items()} for side in ("left", "right")}


def _due(spec: JoinSpec, end_offsets: EndOffsets, plan: BucketPlan, expires_from_ms: int) -> list[int]:
    """Returns when the passing of time may lead to a batch of one bucket."""
    bucket, now_ms = plan.bucket, end_offsets.listed_ms
    right = [(partition_range.end, end_offsets.right[p]) for p, partition_range in bucket.right.items()]
    waiting = [
        partition_range.held_ms
        for p, partition_range in bucket.left.items()
        if partition_range.end < end_offsets.left[p].stable
    ]
    ends: list[Ends] = [*(ends for _, ends in right), *(end_offsets.left[p] for p in bucket.left)]
    if any(end < ends.stable for end, ends in right) or not all(partition.settled for partition in ends):
        return [now_ms]
    if waiting and (spec.right.max_wait_ms is not None or bucket.stored_ms is not None):
        return [now_ms]
    due = [now_ms if held_ms is None else end_offsets.may_go_at(spec, held_ms) for held_ms in waiting]
    if bucket.oldest_ms is not None:
        expires_ms = (
            now_ms if plan.expires() else latest_left(spec.right, bucket.oldest_ms) + spec.producer_delay_ms + 1
        )
        due.append(max(expires_ms, expires_from_ms))
    return due
