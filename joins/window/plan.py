"""One bucket's part of a batch. Pure, as a generator: it yields an `Ask`, is sent the answers, returns the bucket."""

from __future__ import annotations

from dataclasses import replace

from datadelay.progress import UNKNOWN, Idle, frontier
from joins.spec import JoinSpec
from joins.window.listing import Listing
from joins.window.lockstep import Asking
from joins.window.readable import NEVER_CAPPED, Readable, look, read_up_to
from joins.window.state import Bucket
from joins.window.target import search_target


def plan_bucket(spec: JoinSpec, before: Bucket, listing: Listing, share: int, waiting_since_ms: int) -> Asking[Bucket]:
    """How far each partition is read, and the reports that follow.

    share             how many records the batch may read of this bucket
    waiting_since_ms  the wall clock from which on `max_wait` counts, where the frontier has not moved later
    """
    bucket = before.carried_on()
    left, right = yield from look(spec, bucket, listing, "left", "right")
    cap = min(_reach_of_left(spec, bucket, listing, left) + spec.after_ms + right.disorder_ms, NEVER_CAPPED)
    target = cap
    if listing.unread(bucket) > share:
        target = yield from search_target(spec, bucket, left, right, share, cap)

    planned = yield from _read_to(spec, bucket, listing, left, right, target, share, waiting_since_ms)
    if not planned.reads and target < cap:
        # Disorder hid every unread record below the target: read a share of right whatever its times are. A frontier
        # that moved does not help: without records to read or to expire, this admission is thrown away.
        planned = yield from _read_to(spec, bucket, listing, left, right, cap, share, waiting_since_ms)
    return planned


def plan_left(
    spec: JoinSpec, before: Bucket, listing: Listing, frontier_ms: int, share: int, waiting_since_ms: int
) -> Asking[Bucket]:
    """A bucket of left alone: right is elsewhere, and how far it is there comes as `frontier_ms`."""
    bucket = before.carried_on()
    (left,) = yield from look(spec, bucket, listing, "left")
    known_ms = max(frontier_ms, bucket.frontier_ms)
    return (yield from _admit_left(spec, bucket, listing, left, known_ms, share, waiting_since_ms, may_give_up=True))


def _read_to(
    spec: JoinSpec,
    bucket: Bucket,
    listing: Listing,
    left: Readable,
    right: Readable,
    target: int,
    share: int,
    waiting_since_ms: int,
) -> Asking[Bucket]:
    """Carry a target out: right up to it, then left up to where right's frontier lets it go."""
    after = yield from read_up_to(right, bucket.right, target, share)
    share_left = max(share - sum(r.records for r in after.values()), share // 2, 1)
    frontier_ms = frontier((r.progress_ms for r in after.values()), bucket.frontier_ms)
    at_end = all(after[p].end == right.ends[p] for p in after)
    bucket = replace(bucket, right=after)
    return (
        yield from _admit_left(
            spec, bucket, listing, left, frontier_ms, share_left, waiting_since_ms, may_give_up=at_end
        )
    )


def _admit_left(
    spec: JoinSpec,
    bucket: Bucket,
    listing: Listing,
    left: Readable,
    frontier_ms: int,
    share: int,
    waiting_since_ms: int,
    *,
    may_give_up: bool,
) -> Asking[Bucket]:
    """Left up to where right's frontier lets it go, however that is known: from right's ends, or by a data delay.

    may_give_up  left may pass without right after `max_wait`: nothing of right is there that could still be read
    """
    moved_ms = listing.listed_ms if frontier_ms > bucket.frontier_ms else bucket.moved_ms
    limit = frontier_ms - spec.after_ms if frontier_ms > UNKNOWN else UNKNOWN
    stalled_from_ms = None
    stuck_since = max(moved_ms, waiting_since_ms)
    if spec.max_wait_ms is not None and listing.listed_ms - stuck_since >= spec.max_wait_ms:
        waited_for = listing.listed_ms - spec.max_wait_ms
        if waited_for > limit and may_give_up:
            limit, stalled_from_ms = waited_for, limit
    after = bucket.left
    if limit > UNKNOWN:
        after = yield from read_up_to(left, bucket.left, limit, share)
    left_frontier = frontier(r.progress_ms for r in after.values())
    expiry_ms = max(left_frontier - spec.before_ms, bucket.expiry_ms) if left_frontier > UNKNOWN else bucket.expiry_ms
    return replace(
        bucket,
        left=after,
        frontier_ms=frontier_ms,
        moved_ms=moved_ms,
        stalled_from_ms=stalled_from_ms,
        expiry_ms=expiry_ms,
    ).forgetting(spec)


def _reach_of_left(spec: JoinSpec, bucket: Bucket, listing: Listing, left: Readable) -> int:
    """Up to which time left can be read at all: right is not read further than such records need it.

    A left partition that follows the clock has no bound, as its progress expires the window by itself. One that is
    held (an open transaction, `idle: hold`) would let the window grow without end.
    """
    if spec.idle is Idle.ADVANCE and any(listing.left[p].settled for p in bucket.left):
        return NEVER_CAPPED
    return max([t + left.disorder_ms + 1 for t in left.newest.values() if t is not None], default=UNKNOWN)
