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

The arithmetic is a generator per bucket: it yields an `Ask`, is sent the answers, and returns the bucket's plan.
`admit` runs all buckets in lockstep, so that one call to the log serves all partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from datadelay.progress import UNKNOWN, Idle, caught_up, frontier, partition_progress
from joins.spec import JoinSpec
from joins.window.state import Admission, Bucket, Reading
from kafkaio.topiclog import Ends, TimeAnswer, TimeQuery, TopicLog

NEVER_CAPPED = 2**62
SHARE_MET = 0.6  # a target that fills this part of the share is not searched for any longer
SEARCH_ROUNDS = 5
RENEW_EVERY_MS = 24 * 3_600_000  # without a record to read: offsets of groups last seven days


@dataclass(frozen=True, slots=True)
class Ask:
    """Look-ups in both topics that can be made at once; each maps a partition to what is asked of it."""

    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    estimate: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    find: Mapping[str, Mapping[int, TimeQuery]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    newest: Mapping[str, Mapping[int, int | None]]
    estimate: Mapping[str, Mapping[int, int]]
    find: Mapping[str, Mapping[int, TimeAnswer]]


Plan = Generator[Ask, Answers, Bucket]


@dataclass(frozen=True, slots=True)
class Listing:
    """The ends of both topics, and the wall clock just before they were listed."""

    listed_ms: int
    left: Mapping[int, Ends]
    right: Mapping[int, Ends]

    def of(self, side: str) -> Mapping[int, Ends]:
        return self.left if side == "left" else self.right


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


def list_ends(left: TopicLog, right: TopicLog, now_ms: int) -> Listing:
    """List right before left: right's progress is then never concluded from a clock that left is ahead of."""
    right_ends = right.ends()
    return Listing(now_ms, left.ends(), right_ends)


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
    shares = fair_shares({b.number: _unread(b, listing) for b in state.buckets.values()}, spec.max_records)
    plans = {
        number: plan_bucket(spec, bucket, listing, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return carry_out(spec, state, listing, plans, {"left": left, "right": right}, watch)


def plan_left(
    spec: JoinSpec, before: Bucket, listing: Listing, frontier_ms: int, share: int, waiting_since_ms: int
) -> Plan:
    """A bucket of left alone: right is elsewhere, and how far it is there comes as `frontier_ms`."""
    bucket = before.carried_on()
    ends = {p: listing.left[p].stable for p in bucket.left}
    newest = (yield Ask(newest={"left": ends})).newest["left"]
    at_end = {p: _progress_at_end(spec, "left", p, newest[p], listing) for p in ends}
    known_ms = max(frontier_ms, bucket.frontier_ms)
    return (
        yield from admit_left(
            spec, bucket, listing, ends, at_end, newest, known_ms, share, waiting_since_ms, may_give_up=True
        )
    )


def admit_by_frontier(
    spec: JoinSpec, state: Admission, listing: Listing, left: TopicLog, frontier_ms: int, watch: Watch
) -> Admission:
    """As `admit`, for a right topic that is read by somebody else: `frontier_ms` says how far, `UNKNOWN` not known."""
    shares = fair_shares({b.number: _unread(b, listing) for b in state.buckets.values()}, spec.max_records)
    plans = {
        number: plan_left(spec, bucket, listing, frontier_ms, shares[number], watch.since_ms(number))
        for number, bucket in state.buckets.items()
    }
    return carry_out(spec, state, listing, plans, {"left": left}, watch)


def carry_out(
    spec: JoinSpec,
    state: Admission,
    listing: Listing,
    plans: Mapping[int, Plan],
    logs: Mapping[str, TopicLog],
    watch: Watch,
) -> Admission:
    """Make the plans with the logs' answers; `state` itself where they read nothing and expire nothing.

    Once begun, they are carried out once a day all the same: it renews receipts and positions, which Kafka forgets.
    """
    buckets = _in_lockstep(plans, logs, listing.listed_ms + spec.max_future_skew_ms)
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


def plan_bucket(spec: JoinSpec, before: Bucket, listing: Listing, share: int, waiting_since_ms: int) -> Plan:
    """The bucket's part of the next admission: how far each partition is read, and the reports that follow."""
    bucket = before.carried_on()
    ends = {side: {p: listing.of(side)[p].stable for p in bucket.side(side)} for side in ("left", "right")}
    answers = yield Ask(newest=ends)
    at_end = {
        side: {p: _progress_at_end(spec, side, p, answers.newest[side][p], listing) for p in ends[side]}
        for side in ends
    }
    cap = _reach_of_left(spec, bucket, listing, answers.newest["left"]) + spec.after_ms + spec.right.disorder_ms
    target = cap
    if cap == NEVER_CAPPED + spec.after_ms + spec.right.disorder_ms:
        target = NEVER_CAPPED
    if _unread(bucket, listing) > share:
        target = min(target, (yield from _search_target(spec, bucket, ends, at_end["right"], share, target)))

    planned = yield from _read_to(spec, bucket, listing, ends, at_end, answers.newest, target, share, waiting_since_ms)
    if not planned.reads and target < cap:
        # Disorder hid every unread record below the target: read a share of right whatever its times are. A frontier
        # that moved does not help: without records to read or to expire, this admission is thrown away.
        planned = yield from _read_to(spec, bucket, listing, ends, at_end, answers.newest, cap, share, waiting_since_ms)
    return planned


def _search_target(
    spec: JoinSpec,
    bucket: Bucket,
    ends: Mapping[str, Mapping[int, int]],
    at_end: Mapping[int, int],
    share: int,
    cap: int,
) -> Generator[Ask, Answers, int]:
    """A target time H whose batch has at most `share` records, and not many less; by secants over the time index.

    Half a share of either side is surely not too much, a whole one of either is enough: the target lies between.
    """

    def reaching(answers: Answers) -> int:
        lag = spec.after_ms + spec.right.disorder_ms
        times = [t for t in answers.newest["right"].values() if t is not None]
        times += [t + lag + 1 for t in answers.newest["left"].values() if t is not None]
        return min([cap, *times])

    def ahead(records: int) -> Ask:
        return Ask(
            newest={
                side: {
                    p: min(r.end + max(records // len(bucket.side(side)), 1), ends[side][p])
                    for p, r in bucket.side(side).items()
                    if r.end < ends[side][p]
                }
                for side in ends
            }
        )

    low = reaching((yield ahead(share // 2)))
    high = reaching((yield ahead(share)))
    low_count = yield from _count(spec, bucket, ends, at_end, low)
    high_count = yield from _count(spec, bucket, ends, at_end, high)
    if high_count <= share:
        return high
    for _ in range(SEARCH_ROUNDS):
        if low_count >= SHARE_MET * share or high - low <= 1:
            break
        slope = (0.85 * share - low_count) / max(high_count - low_count, 1)
        middle = min(max(low + int((high - low) * slope), low + 1), high - 1)
        count = yield from _count(spec, bucket, ends, at_end, middle)
        if count <= share:
            low, low_count = middle, count
        else:
            high, high_count = middle, count
    return low


def _count(
    spec: JoinSpec,
    bucket: Bucket,
    ends: Mapping[str, Mapping[int, int]],
    at_end: Mapping[int, int],
    target: int,
) -> Generator[Ask, Answers, int]:
    """About how many records a batch with this target reads."""
    answers = yield Ask(estimate={"right": dict.fromkeys(bucket.right, target)})
    count, progress = 0, []
    for p, reading in bucket.right.items():
        offset = answers.estimate["right"][p]
        count += max(min(offset, ends["right"][p]) - reading.end, 0)
        progress.append(
            max(
                reading.progress_ms,
                target - spec.right.disorder_ms if offset < ends["right"][p] else at_end[p],
            )
        )
    limit = frontier(progress, bucket.frontier_ms) - spec.after_ms
    answers = yield Ask(estimate={"left": dict.fromkeys(bucket.left, limit)})
    for p, reading in bucket.left.items():
        count += max(min(answers.estimate["left"][p], ends["left"][p]) - reading.end, 0)
    return count


def _read_to(
    spec: JoinSpec,
    bucket: Bucket,
    listing: Listing,
    ends: Mapping[str, Mapping[int, int]],
    at_end: Mapping[str, Mapping[int, int]],
    newest: Mapping[str, Mapping[int, int | None]],
    target: int,
    share: int,
    waiting_since_ms: int,
) -> Plan:
    """Carry a target out: right up to it, then left up to where right's frontier lets it go."""
    right = yield from _read_side(
        spec, "right", bucket.right, ends["right"], at_end["right"], newest["right"], listing, target, share
    )
    share_left = max(share - sum(r.records for r in right.values()), share // 2, 1)
    frontier_ms = frontier((r.progress_ms for r in right.values()), bucket.frontier_ms)
    at_right_end = all(right[p].end == ends["right"][p] for p in right)
    left_side = ends["left"], at_end["left"], newest["left"]
    return (
        yield from admit_left(
            spec,
            replace(bucket, right=right),
            listing,
            *left_side,
            frontier_ms,
            share_left,
            waiting_since_ms,
            may_give_up=at_right_end,
        )
    )


def admit_left(
    spec: JoinSpec,
    bucket: Bucket,
    listing: Listing,
    ends: Mapping[int, int],
    at_end: Mapping[int, int],
    newest: Mapping[int, int | None],
    frontier_ms: int,
    share: int,
    waiting_since_ms: int,
    *,
    may_give_up: bool,
) -> Plan:
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
    left = bucket.left
    if limit > UNKNOWN:
        left = yield from _read_side(spec, "left", bucket.left, ends, at_end, newest, listing, limit, share)
    left_frontier = frontier(r.progress_ms for r in left.values())
    expiry_ms = max(left_frontier - spec.before_ms, bucket.expiry_ms) if left_frontier > UNKNOWN else bucket.expiry_ms
    return replace(
        bucket,
        left=left,
        frontier_ms=frontier_ms,
        moved_ms=moved_ms,
        stalled_from_ms=stalled_from_ms,
        expiry_ms=expiry_ms,
    ).forgetting(spec)


def _read_side(
    spec: JoinSpec,
    side: str,
    readings: Mapping[int, Reading],
    ends: Mapping[int, int],
    at_end: Mapping[int, int],
    newest: Mapping[int, int | None],
    listing: Listing,
    until_ms: int,
    share: int,
) -> Generator[Ask, Answers, dict[int, Reading]]:
    """Read each partition up to its first record at or above `until_ms`, or to its end, or to its part of the share.

    Both sides obey the same rule; only left must *stop* below the time (every record read is below it), so that left
    asks with its disorder as the margin.
    """
    disorder = spec.left.disorder_ms if side == "left" else spec.right.disorder_ms
    ceiling = listing.listed_ms + spec.max_future_skew_ms
    margin = disorder if side == "left" else 0
    found: Mapping[int, TimeAnswer] = {}
    if until_ms < NEVER_CAPPED:
        queries = {p: TimeQuery(until_ms, r.end, ends[p], margin) for p, r in readings.items()}
        found = (yield Ask(find={side: queries})).find[side]

    after: dict[int, Reading] = {}
    cut: dict[int, int] = {}
    allowance = max(2 * share // len(readings), 1)
    for p, reading in readings.items():
        answer = found.get(p)
        if answer is None or not answer.reached:
            end, bound = max(ends[p], reading.end), ceiling
            progress = at_end[p]
            known = newest[p]
            if known is not None:
                bound = min(bound, known + disorder)
        else:
            end, bound = max(answer.offset, reading.end), answer.time_ms + disorder
            progress = answer.time_ms - disorder
        if end - reading.end > allowance:
            cut[p] = reading.end + allowance
        after[p] = reading.to(end, progress, min(bound, ceiling) + 1)
    if cut:
        last = (yield Ask(newest={side: cut})).newest[side]
        for p, end in cut.items():
            known = last[p]
            progress = UNKNOWN if known is None else known - disorder
            bound = ceiling if known is None else min(known + disorder, ceiling)
            after[p] = readings[p].to(end, progress, bound + 1)
    return after


def _progress_at_end(spec: JoinSpec, side: str, p: int, newest: int | None, listing: Listing) -> int:
    """The progress of a partition that is read to its stable end."""
    ends = listing.of(side)[p]
    return partition_progress(
        disorder_ms=spec.left.disorder_ms if side == "left" else spec.right.disorder_ms,
        newest_ms=newest,
        caught_up_listed_ms=listing.listed_ms if caught_up(ends.stable, ends.stable, ends.high) else None,
        producer_delay_ms=spec.producer_delay_ms,
        idle=spec.idle,
    )


def _reach_of_left(spec: JoinSpec, bucket: Bucket, listing: Listing, newest: Mapping[int, int | None]) -> int:
    """Up to which time left can be read at all: right is not read further than such records need it.

    A left partition that follows the clock has no bound, as its progress expires the window by itself. One that is
    held (an open transaction, `idle: hold`) would let the window grow without end.
    """
    if spec.idle is Idle.ADVANCE and any(listing.left[p].settled for p in bucket.left):
        return NEVER_CAPPED
    return max([t + spec.left.disorder_ms + 1 for t in newest.values() if t is not None], default=UNKNOWN)


def _unread(bucket: Bucket, listing: Listing) -> int:
    return sum(
        max(listing.of(side)[p].stable - r.end, 0) for side in ("left", "right") for p, r in bucket.side(side).items()
    )


def _in_lockstep(plans: Mapping[int, Plan], logs: Mapping[str, TopicLog], ceiling_ms: int) -> dict[int, Bucket]:
    """Run all plans, one round of merged look-ups at a time."""
    done: dict[int, Bucket] = {}
    asks: dict[int, Ask] = {}

    def step(number: int, answers: Answers | None) -> None:
        try:
            asks[number] = plans[number].send(answers) if answers is not None else next(plans[number])
        except StopIteration as stop:
            done[number] = stop.value

    for number in plans:
        step(number, None)
    while asks:
        round_, asks = asks, {}
        answers = _look_up(round_.values(), logs, ceiling_ms)
        for number in round_:
            step(number, answers)
    return dict(sorted(done.items()))


def _look_up(asks: Iterable[Ask], logs: Mapping[str, TopicLog], ceiling_ms: int) -> Answers:
    merged: dict[str, dict[str, dict[int, Any]]] = {
        kind: {"left": {}, "right": {}} for kind in ("newest", "estimate", "find")
    }
    for ask in asks:
        for kind, of_kind in merged.items():
            for side, wanted in getattr(ask, kind).items():
                of_kind[side].update(wanted)
    return Answers(
        newest={s: logs[s].newest(w, ceiling_ms) if w else {} for s, w in merged["newest"].items()},
        estimate={s: logs[s].estimate(w) if w else {} for s, w in merged["estimate"].items()},
        find={s: logs[s].first_at_or_after(w, ceiling_ms) if w else {} for s, w in merged["find"].items()},
    )
