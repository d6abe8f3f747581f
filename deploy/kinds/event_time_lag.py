"""How far a job is in event time, and what holds it, from its last batch and the present ends of its topics. Pure.

It is for those who look at a job from elsewhere: the batch says how far both sides were read and what that proved, the
topics what is there, and the times of their first unread records. A partition that is read to its end is at least at
the clock less `producer_delay`, as for the planner (`idle: hold` switches that off).

    behind   how old, in event time, the first unread left records are; 0 if there are none
    held     why left waits, by bucket, the slowest right partition first; empty if the next batch takes it
    alike    no right partition stands out as the slowest (`joins.batch.stragglers`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.rules import latest_right, right_watermark
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.batch.stragglers import ALIKE, stragglers
from joins.lookup.feed.spec import FeedBatch
from joins.plan.readable import EndOffsets
from joins.plan.wait_reasons import LeftWaits, reason, why_left_waits
from joins.spec import JoinSpec
from teacup.kafka.log.topic_log import Ends


@dataclass(frozen=True, slots=True)
class HeldBy:
    """What holds the left of a bucket. cause: one of `joins.plan.wait_reasons.Cause`; text: the same for people.

    partition   as `topic-number`; None where no partition of right does, or none alone
    """

    cause: str
    partition: str | None
    text: str

    @property
    def short(self) -> str:
        """Returns it for a table."""
        return self.cause if self.partition is None else f"{self.partition} ({self.cause})"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimeLag:
    """Where a job is in event time.

    behind_ms      None: unknown, or the kind has no event times
    watermark_ms   by side, if known: no unread record has a smaller time
    held           what holds left, by bucket
    exact          whether it is known where the last batch ended; otherwise all counts from where that began
    """

    behind_ms: int | None = None
    watermark_ms: Mapping[str, int] | None = None
    held: tuple[HeldBy, ...] = ()
    alike: bool = False
    exact: bool = True

    @property
    def held_by(self) -> str:
        """Returns in a few words what left waits for; empty: for nothing."""
        if not self.held:
            return ""
        if self.alike:
            return f"{ALIKE} ({', '.join(dict.fromkeys(held.cause for held in self.held))})"
        more = f" and {len(self.held) - 1} more" if len(self.held) > 1 else ""
        return f"{self.held[0].short}{more}"


def of_join(
    spec: JoinSpec,
    batch_plan: BatchPlan,
    facts: Mapping[int, BucketFacts],
    end_offsets: EndOffsets,
    next_ms: Mapping[int, int],
) -> EventTimeLag:
    """Returns where a join stands after a batch.

    facts     what the batch found out, by bucket, as far as known
    next_ms   the times of the first unread records of left partitions

    Nothing is known if a topic has lost partitions, because it was recreated.
    """
    if any(p not in end_offsets.left for bucket in batch_plan.buckets.values() for p in bucket.left):
        return EventTimeLag(exact=False)
    buckets = [_after(spec, batch_plan, bucket, facts) for bucket in batch_plan.buckets.values()]
    seen = [_Seen.of(spec, bucket, end_offsets, next_ms) for bucket in buckets]
    left_ms = min((bucket.left_ms for bucket in seen), default=UNKNOWN)
    right_ms = min((bucket.right_ms for bucket in seen), default=UNKNOWN)
    waiting = sorted((bucket for bucket in seen if bucket.unread), key=lambda bucket: bucket.right_ms)
    right = {p: at_ms for bucket in seen for p, at_ms in bucket.right.items()}
    return EventTimeLag(
        behind_ms=_behind_ms((bucket.next_ms for bucket in waiting), end_offsets.listed_ms),
        watermark_ms={side: at for side, at in (("left", left_ms), ("right", right_ms)) if at > UNKNOWN},
        held=tuple(dict.fromkeys(held for bucket in waiting for held in bucket.held_by(spec, end_offsets))),
        alike=bool(right) and not stragglers(right),
        exact=len(facts) == len(batch_plan.buckets),
    )


def of_feeder(fed: FeedBatch, ends: Mapping[int, Ends], next_ms: Mapping[int, int], now_ms: int) -> EventTimeLag:
    """Returns where a feeder stands; `next_ms` as of a join, of right partitions."""
    unread = [p for p, span in fed.spans.items() if p in ends and ends[p].stable > span.end]
    return EventTimeLag(behind_ms=_behind_ms((next_ms.get(p, UNKNOWN) for p in unread), now_ms))


def _behind_ms(next_ms: Iterable[int], now_ms: int) -> int | None:
    """Returns how old the oldest of these records is, 0 if there is none; None if the time of one is not known."""
    oldest_ms = min(next_ms, default=now_ms)
    return None if oldest_ms <= UNKNOWN else max(now_ms - oldest_ms, 0)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A bucket after the last batch, with the watermarks that hold now.

    unread, next_ms   whether left has more, and the smallest time among the first unread records; unknown if one is
    """

    bucket: Bucket
    left_ms: int
    right_ms: int
    next_ms: int
    unread: bool
    right: Mapping[int, int]

    @classmethod
    def of(cls, spec: JoinSpec, bucket: Bucket, end_offsets: EndOffsets, next_ms: Mapping[int, int]) -> _Seen:
        """Returns it with what the clock proves of partitions that are read to their end."""
        left = {p: _now_ms(spec, r, end_offsets.left.get(p), end_offsets.listed_ms) for p, r in bucket.left.items()}
        right = {p: _now_ms(spec, r, end_offsets.right.get(p), end_offsets.listed_ms) for p, r in bucket.right.items()}
        more = [p for p, r in bucket.left.items() if end_offsets.left[p].stable > r.end]
        oldest_ms = min((next_ms.get(p, left[p]) for p in more), default=UNKNOWN)
        stored_ms = bucket.watermark_ms if spec.right.source.is_stored else None
        right_ms = right_watermark(right.values(), bucket.watermark_ms, stored_ms)
        return cls(bucket, min(left.values(), default=UNKNOWN), right_ms, oldest_ms, bool(more), right)

    def held_by(self, spec: JoinSpec, end_offsets: EndOffsets) -> Iterator[HeldBy]:
        """Yields what left waits for, unless its next record may go."""
        if self.next_ms > UNKNOWN and latest_right(spec.right, self.next_ms) < self.right_ms:
            return
        bucket = self.bucket
        if spec.right.source.is_stored:
            bucket = structs.replace(bucket, stored_ms=self.right_ms)
        known = BucketFacts(
            right={p: RangeFacts(r.end, self.right[p]) for p, r in bucket.right.items()}, watermark_ms=self.right_ms
        )
        if any(p not in end_offsets.right for p in bucket.right):
            return
        if (waits := why_left_waits(spec, bucket, known, end_offsets)) is not None:
            yield _held(spec, waits)


def _held(spec: JoinSpec, waits: LeftWaits) -> HeldBy:
    if spec.right.source.is_stored:
        waits = replace(waits, detail=spec.right.store.delay.consumer)
    partition = None if waits.partition is None or waits.alike else f"{spec.right.topic}-{waits.partition}"
    return HeldBy(waits.cause.value, partition, reason(spec, waits))


def _after(spec: JoinSpec, batch_plan: BatchPlan, bucket: Bucket, facts: Mapping[int, BucketFacts]) -> Bucket:
    """Returns a bucket as the batch left it, or as it found it where that is not known: with empty ranges."""
    if bucket.number in facts:
        return bucket.after(facts[bucket.number], batch_plan.listed_ms, spec)
    return structs.replace(
        bucket,
        left={p: r.to(r.start) for p, r in bucket.left.items()},
        right={p: r.to(r.start) for p, r in bucket.right.items()},
    )


def _now_ms(spec: JoinSpec, partition_range: PartitionRange, ends: Ends | None, now_ms: int) -> int:
    """Returns the watermark of a partition now."""
    read_to_its_end = ends is not None and ends.settled and partition_range.end >= ends.stable
    if spec.idle is Idle.ADVANCE and read_to_its_end:
        return max(partition_range.watermark_ms, now_ms - spec.producer_delay_ms)
    return partition_range.watermark_ms
