"""SyncBolt: what a batch may read. Pure: state and ends in, admission out; the log is asked through `Ask`s.

One bucket, one batch, with H a target time and D the disorder of a side:

    right partition    is read up to its first record with time >= H; progress H - D_right. One that has none is read
                       to its end; progress is what `datadelay.progress` concludes from the newest record and the clock
    right frontier F   the minimum of right's progress
    left               may go where `time + after < F`: each partition up to its first record at or above F - after
    left progress      F - after - D_left, or that of its end where it was read so far
    expiry E           the minimum of left's progress, less `before`: right records with time < E match nothing to come

H is the largest that keeps the batch within its share of records: so whichever topic is behind is read, and right is
never read further than left needs it. Left's progress counts records that are *not yet read*; that is the report of
the article which prevents the deadlock: when right is far behind, E is already near left's position and old right
records pass through without filling the window. F, E and every progress never go back.

The arithmetic is a generator per bucket (`plan`), of which all run in lockstep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from datadelay.progress import UNKNOWN
from joins.spec import JoinSpec
from joins.window.listing import Listing
from joins.window.lockstep import Asking, in_lockstep
from joins.window.plan import plan_bucket, plan_left
from joins.window.state import Admission, Bucket
from kafkaio.topiclog import TopicLog

RENEW_EVERY_MS = 24 * 3_600_000  # without a record to read: offsets of groups last seven days


@dataclass(slots=True)
class Watch:
    """Since when right stands still, as seen by one process: what `max_wait` counts from.

    A frontier that follows the clock over an idle topic moves at each look, although no admission is made of it. And
    time before the process began to look counts for nothing.
    """

    started_ms: int
    _moved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def since_ms(self, bucket: int) -> int:
        return self._moved[bucket][1] if bucket in self._moved else self.started_ms

    def saw(self, before: Mapping[int, Bucket], after: Mapping[int, Bucket], now_ms: int) -> None:
        for number, bucket in after.items():
            known_ms = self._moved[number][0] if number in self._moved else before[number].frontier_ms
            if bucket.frontier_ms > known_ms:
                self._moved[number] = (bucket.frontier_ms, now_ms)


def admit(
    spec: JoinSpec,
    state: Admission,
    listing: Listing,
    left: TopicLog,
    right: TopicLog,
    watch: Watch | None = None,
) -> Admission:
    """The admission after `state`; `state` itself when there is nothing to read and nothing to expire.

    watch  remembers look-ups that came to nothing; without it, `max_wait` counts from the last admission
    """
    watch = watch or Watch(UNKNOWN)
    shares = fair_shares({b.number: listing.unread(b) for b in state.buckets.values()}, spec.max_records)
    plans = {
        number: plan_bucket(spec, bucket, listing, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return _next_admission(spec, state, listing, plans, {"left": left, "right": right}, watch)


def admit_by_frontier(
    spec: JoinSpec, state: Admission, listing: Listing, left: TopicLog, frontier_ms: int, watch: Watch
) -> Admission:
    """As `admit`, for a right topic that is read by somebody else: `frontier_ms` says how far, `UNKNOWN` not known."""
    shares = fair_shares({b.number: listing.unread(b) for b in state.buckets.values()}, spec.max_records)
    plans = {
        number: plan_left(spec, bucket, listing, frontier_ms, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return _next_admission(spec, state, listing, plans, {"left": left}, watch)


def _next_admission(
    spec: JoinSpec,
    state: Admission,
    listing: Listing,
    plans: Mapping[int, Asking[Bucket]],
    logs: Mapping[str, TopicLog],
    watch: Watch,
) -> Admission:
    """Make the plans with the logs' answers; `state` itself where they read nothing and expire nothing.

    Once begun, they are carried out once a day all the same: it renews receipts and positions, which Kafka forgets.
    """
    buckets = in_lockstep(plans, logs, listing.listed_ms + spec.max_future_skew_ms)
    watch.saw(state.buckets, buckets, listing.listed_ms)
    reads = any(bucket.reads for bucket in buckets.values())
    expires = listing.listed_ms - state.listed_ms >= spec.frontier_every_ms and any(
        bucket.expires_records for bucket in buckets.values()
    )
    renews = state.number > 0 and listing.listed_ms - state.listed_ms >= RENEW_EVERY_MS
    if not (reads or expires or renews):
        return state
    return replace(state, number=state.number + 1, listed_ms=listing.listed_ms, buckets=buckets)


def fair_shares(unread: Mapping[int, int], limit: int) -> dict[int, int]:
    """Max-min fair: no bucket gets more than it has unread while another one with unread records gets less."""
    shares: dict[int, int] = {}
    left_over = limit
    for i, (number, records) in enumerate(sorted(unread.items(), key=lambda item: item[1])):
        shares[number] = max(min(records, left_over // (len(unread) - i)), 1)
        left_over -= min(shares[number], left_over)
    return shares
