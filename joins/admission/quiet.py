"""How long a look that found nothing to do stays right, as long as the ends of the topics stay where they are. Pure.

With the same ends only the clock can lead to a batch, at a time that is known:

    left waits      its next record goes once the clock proves right beyond it: time + after + producer delay
    the window      expires once the clock proves left beyond its oldest record: time + before + producer delay; batches
                    that only expire it keep their distance
    anything else   a topic that was recreated or cut off, new partitions, the daily batch: looked for every second

Where more than the clock decides, each look makes a plan: right is not read to its end, a transaction is open, left's
next record is not known, `max_wait` runs, another system says how far right is stored.
"""

from __future__ import annotations

from collections.abc import Iterable

from joins.admission.listing import Listing
from joins.admission.plan import Plan
from joins.admission.rules import latest_left, latest_right
from joins.spec import JoinSpec
from kafkaio.topiclog import Ends

PLAN_EVERY_MS = 1_000


def quiet_until(spec: JoinSpec, listing: Listing, plans: Iterable[Plan], expires_from_ms: int) -> int:
    """Returns until when planning would find nothing to read, as these plans did; at least the listing's time.

    expires_from_ms   when the next batch that only expires the window may run
    """
    due = [time_ms for plan in plans for time_ms in _due(spec, listing, plan, expires_from_ms)]
    return max(min([*due, listing.listed_ms + PLAN_EVERY_MS]), listing.listed_ms)


def highs_of(listing: Listing) -> dict[str, dict[int, int]]:
    """Returns where both topics end, by side and partition: while that is the same, nothing was written to them."""
    return {side: {p: ends.high for p, ends in listing.side(side).items()} for side in ("left", "right")}


def _due(spec: JoinSpec, listing: Listing, plan: Plan, expires_from_ms: int) -> list[int]:
    """Returns when time may lead to a batch of one bucket."""
    bucket, now_ms = plan.bucket, listing.listed_ms
    right = [(reading.end, listing.right[p]) for p, reading in bucket.right.items()]
    waiting = [reading.held_ms for p, reading in bucket.left.items() if reading.end < listing.left[p].stable]
    ends: list[Ends] = [*(ends for _, ends in right), *(listing.left[p] for p in bucket.left)]
    if any(end < ends.stable for end, ends in right) or not all(partition.settled for partition in ends):
        return [now_ms]
    if waiting and (spec.max_wait_ms is not None or bucket.outside_ms is not None):
        return [now_ms]
    clock_ms = spec.producer_delay_ms + 1
    due = [now_ms if held_ms is None else latest_right(spec, held_ms) + clock_ms for held_ms in waiting]
    if bucket.oldest_ms is not None:
        expires_ms = now_ms if plan.expires() else latest_left(spec, bucket.oldest_ms) + clock_ms
        due.append(max(expires_ms, expires_from_ms))
    return due
