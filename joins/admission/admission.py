"""SyncBolt: what a batch may read. Pure: state and ends in, admission out; it queries the log through `Ask`s.

One bucket, one batch, with H a target time and D the disorder of a side:

    right partition    is read until its records prove that H is reached, and its progress is H - D; one that has no
                       such record is read to its end, and its progress is what its records and the clock prove
    right frontier F   the minimum of right's progress
    left               may go where `time + after < F`: each partition up to its first record at or above F - after
    left progress      of the records from there on: no timely one has a smaller time
    expiry E           the minimum of left's progress, less `before`: right records with time < E match nothing to come

The driver plans ranges by asking the log where times begin. That is a hint. F, E, the progress and where left stops are
what the task finds in the records (`joins.window.batch`); they come back as facts, and the next plan starts from them.

H is the largest target that keeps the batch within its share of records: whichever topic is behind is read, and right
is never read further than left needs it. Left's progress covers records that are *not yet read*. This is the article's
report, which prevents the deadlock: when right is far behind, E is already near left's position, and old right records
pass through without filling the window. F, E and every progress never go back.

The arithmetic is one generator per bucket (`plan`); all of them run in lockstep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from datadelay.progress import UNKNOWN
from joins.admission.facts import BucketFacts
from joins.admission.holding import Held, why_left_waits
from joins.admission.listing import Listing
from joins.admission.lockstep import Asking, in_lockstep
from joins.admission.plan import Plan, plan_bucket, plan_left, rebased
from joins.admission.quiet import highs_of, quiet_until
from joins.admission.state import Admission, Bucket
from joins.spec import JoinSpec
from kafkaio.fairshare import fair_shares
from kafkaio.topiclog import TopicLog

RENEW_EVERY_MS = 24 * 3_600_000  # even without records to read: Kafka keeps the offsets of groups for seven days


@dataclass(slots=True)
class Watch:
    """Since when right has made no progress, as seen by one process: `max_wait` counts from there.

    A frontier that follows the clock over an idle topic moves at each look, although it leads to no admission. Time
    before the process started to look does not count.
    """

    started_ms: int
    _moved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def since_ms(self, bucket: int) -> int:
        """Since when (ms) right has made no progress in a bucket."""
        return self._moved[bucket][1] if bucket in self._moved else self.started_ms

    def saw(self, state: Mapping[int, Bucket], plans: Mapping[int, Plan], now_ms: int) -> None:
        """Note which frontiers the plans of one look (by bucket) advance, at `now_ms`."""
        for number, plan in plans.items():
            known_ms = self._moved[number][0] if number in self._moved else state[number].frontier_ms
            if plan.expected.frontier_ms > known_ms:
                self._moved[number] = (plan.expected.frontier_ms, now_ms)


@dataclass(frozen=True, slots=True)
class Planned:
    """The next admission, and the facts that are expected of it, by bucket.

    ahead  the sides and partitions whose newest records seem to be ahead of the clock, or have no time
    """

    admission: Admission
    expected: Mapping[int, BucketFacts]
    ahead: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def nothing(cls, begun: Admission) -> Planned:
        """The first batch of a join with nothing to read yet."""
        return cls(replace(begun, number=begun.number + 1), {})

    def rebased(self, state: Admission) -> Planned:
        """The same ranges, planned with expected facts, applied to the `state` that the previous batch really left."""
        buckets = {n: rebased(self.admission.buckets[n], bucket) for n, bucket in state.buckets.items()}
        return replace(self, admission=replace(self.admission, buckets=buckets))


def admit(
    spec: JoinSpec,
    state: Admission,
    listing: Listing,
    left: TopicLog,
    right: TopicLog,
    watch: Watch | None = None,
) -> Planned | Held:
    """The admission after `state`; with nothing to read and nothing to expire, what left waits for.

    state  as the previous batch left it (`Admission.after`)
    watch  remembers looks that led to no admission; without it, `max_wait` counts from the last admission
    """
    watch = watch or Watch(UNKNOWN)
    shares = _shares(spec, state, listing)
    plans = {
        number: plan_bucket(spec, bucket, listing, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return _next_admission(spec, state, listing, plans, {"left": left, "right": right}, watch)


def admit_by_frontier(
    spec: JoinSpec, state: Admission, listing: Listing, left: TopicLog, frontier_ms: int, watch: Watch
) -> Planned | Held:
    """Like `admit`, for a right topic that the feeder reads: `frontier_ms` says how far, `UNKNOWN` if not known."""
    shares = _shares(spec, state, listing)
    plans = {
        number: plan_left(spec, bucket, listing, frontier_ms, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return _next_admission(spec, state, listing, plans, {"left": left}, watch)


def _next_admission(
    spec: JoinSpec,
    state: Admission,
    listing: Listing,
    plans: Mapping[int, Asking[Plan]],
    logs: Mapping[str, TopicLog],
    watch: Watch,
) -> Planned | Held:
    """Make the plans with the logs' answers; with nothing to read and nothing to expire, what left waits for.

    A join that has started still runs a batch once a day: this renews receipts and positions, which Kafka expires.
    """
    made = in_lockstep(plans, logs, listing.listed_ms + spec.max_future_skew_ms)
    watch.saw(state.buckets, made, listing.listed_ms)
    reads = any(plan.bucket.reads for plan in made.values())
    waited_ms = listing.listed_ms - state.listed_ms
    expires = waited_ms >= spec.frontier_every_ms and any(plan.expires() for plan in made.values())
    renews = state.number > 0 and waited_ms >= RENEW_EVERY_MS
    if not (reads or expires or renews):
        waits = (why_left_waits(spec, plan.bucket, plan.expected, listing) for plan in made.values())
        until_ms = quiet_until(spec, listing, made.values(), state.listed_ms + spec.frontier_every_ms)
        return Held(listing.listed_ms, tuple(one for one in waits if one is not None), until_ms, highs_of(listing))
    admission = replace(
        state,
        number=state.number + 1,
        listed_ms=listing.listed_ms,
        skew_ms=spec.max_future_skew_ms,
        right_bytes=spec.max_right_bytes,
        buckets={number: plan.bucket for number, plan in made.items()},
        parts=state.parts and (spec.buckets or state.parts),
    )
    ahead = frozenset().union(*(plan.ahead for plan in made.values()))
    return Planned(admission, {number: plan.expected for number, plan in made.items()}, ahead)


def _shares(spec: JoinSpec, state: Admission, listing: Listing) -> dict[int, int]:
    """How many records the batch may read of each bucket, one at least."""
    shares = fair_shares({b.number: listing.unread(b) for b in state.buckets.values()}, spec.max_records)
    return {number: max(share, 1) for number, share in shares.items()}
