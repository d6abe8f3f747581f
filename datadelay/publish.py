"""What is published of a consumer's submissions: the rules of the Data Delay API, without its database or clock. Pure.

    accept   Published, Submission, now -> Published, or a refusal
    rewind   Published, now             -> Published: whatever comes next is accepted
    view     Published, now             -> Delay: the state at this moment

A reader may act on a `consumed_until` irrevocably: it releases left records of a join. Hence:

1. *Late submissions change nothing.* One that was listed before the newest accepted one, or before a rewind, is
   refused. The identical submission changes nothing either, so a sender that got no answer may repeat it.
2. *The value never goes back*: the published one is the largest of all values since the last rewind.
3. *A submission that breaks this premise makes the delay unknown*: another generation of the consumer or of the store
   it feeds, a position below an earlier one, a partition that is gone (only if a value or a position was known
   before: nothing else can be contradicted). It is **held** there until a later submission is beyond the last
   published value (everything that readers were promised is consumed again), or until a rewind reports that the
   consumer went back on purpose.
4. *A claim about a store names the store.* Positions that no longer name it, although earlier ones did, were not
   committed by the feeder: the delay is unknown until its next commit, even after a rewind.
5. *Unknown is unknown*: a submission without a value publishes none. The next one with a value may, because positions
   are remembered in between.
6. *A value that is not renewed becomes stale*; it stays readable, because it is still true. Unknown does not become
   stale.

    state          value   when
    unknown        none    no value submitted, or held, or rewound and nothing submitted since
    stale          yes     its newest submission is older than stale_after
    caught_up      yes     the submission says so
    ok             yes     otherwise
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from datadelay.errors import SubmissionInvalid, SubmissionLate
from datadelay.model import Delay, DelayState, PartitionReport, Submission, fitted, slowest
from datadelay.watermark import UNKNOWN, watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewLimits:
    """How far ahead of the server's clock a submission may lie; one beyond that would block all later ones.

    clock_skew_ms   for the time when the ends were listed: the collector's clock against the server's
    future_skew_ms  for the value: event times are set by producers
    """

    clock_skew_ms: int = 60_000
    future_skew_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The stored state of one consumer and topic.

    last        the newest accepted submission
    positions   the newest known position of each partition; None after a rewind: there is nothing to compare with
    value_ms    the published value; None if unknown
    floor_ms    the last published value since the last rewind
    held        why values up to `floor_ms` are not accepted; None if they are
    reason      why the delay is unknown; None if it is known
    success_ms  when the newest submission that carried a value was listed
    since_ms    when the state (apart from stale) began
    """

    last: Submission
    positions: Mapping[int, int] | None
    value_ms: int | None
    floor_ms: int | None
    held: str | None
    reason: str | None
    rewound_ms: int | None
    success_ms: int | None
    since_ms: int
    slowest: PartitionReport | None

    @property
    def fresh_state(self) -> DelayState:
        """The state of a value that is not stale."""
        if self.value_ms is None:
            return DelayState.UNKNOWN
        return DelayState.CAUGHT_UP if self.last.caught_up else DelayState.OK


def accept(
    before: Published | None,
    submission: Submission,
    *,
    now_ms: int,
    stale_after_ms: int,
    bounds: SkewLimits = SkewLimits(),
) -> Published:
    """Returns what is published after `submission`; the same object as `before` if it is a repetition.

    Raises `SubmissionLate`, or `SubmissionInvalid` for times that lie in the future.
    """
    if before is not None:
        submission = _without_claim(before.last, submission)
        if submission == before.last:
            return before
    _refuse_future(submission, now_ms, bounds)
    if before is not None:
        _refuse_late(before, submission)

    floor_ms = before.floor_ms if before else None
    held = before.held if before else None
    submitted = {p.partition: p.position for p in submission.partitions if p.position is not None}
    positions: Mapping[int, int] = submitted
    value_ms = submission.consumed_until_ms

    if before is not None and before.positions is not None:
        nothing_promised = floor_ms is None and not before.positions
        broken = None if nothing_promised else _premise_broken(before.last, before.positions, submission)
        if broken is not None:
            held = broken
        else:
            positions = {**before.positions, **submitted}
            if value_ms is not None and (floor_ms is None or value_ms > floor_ms):
                held = None

    reason: str | None
    if held is not None:
        value_ms, reason = None, _held_reason(held, submission, floor_ms)
    elif value_ms is None:
        reason = submission.reason
    else:
        value_ms, reason = watermark([value_ms], UNKNOWN if floor_ms is None else floor_ms), None

    after = Published(
        last=submission,
        positions=positions,
        value_ms=value_ms,
        floor_ms=floor_ms if value_ms is None else value_ms,
        held=held,
        reason=reason,
        rewound_ms=before.rewound_ms if before else None,
        success_ms=_success_ms(before, submission),
        since_ms=now_ms,
        slowest=slowest(submission.partitions),
    )
    if before is not None and state_at(before, now_ms, stale_after_ms) is after.fresh_state:
        after = replace(after, since_ms=before.since_ms)
    return after


def rewind(before: Published, *, now_ms: int, note: str | None = None) -> Published:
    """Forgets earlier promises: unknown until a submission that was listed from now on, which will be accepted."""
    why = f" ({note})" if note else ""
    return replace(
        before,
        positions=None,
        value_ms=None,
        floor_ms=None,
        held=None,
        reason=f"rewound{why}: waiting for a submission whose ends were listed after the rewind",
        rewound_ms=max(now_ms, before.rewound_ms or now_ms),
        since_ms=now_ms,
    )


def state_at(published: Published, now_ms: int, stale_after_ms: int) -> DelayState:
    """Returns the state at `now_ms`."""
    if published.value_ms is not None and now_ms - published.last.listed_ms > stale_after_ms:
        return DelayState.STALE
    return published.fresh_state


def view(published: Published, *, now_ms: int, stale_after_ms: int, with_partitions: bool = False) -> Delay:
    """Returns what a reader gets at `now_ms`."""
    last = published.last
    state = state_at(published, now_ms, stale_after_ms)
    since_ms, reason = published.since_ms, published.reason
    if state is DelayState.STALE:
        since_ms = max(since_ms, last.listed_ms + stale_after_ms)
        reason = f"no submission for more than {stale_after_ms / 1000:g} s: look at the collector"
    return Delay(
        consumer=last.consumer,
        topic=last.topic,
        now_ms=now_ms,
        state=state,
        reason=reason,
        consumed_until_ms=published.value_ms,
        delay_ms=None if published.value_ms is None else now_ms - published.value_ms,
        since_ms=since_ms,
        listed_ms=last.listed_ms,
        age_ms=max(0, now_ms - last.listed_ms),
        success_ms=published.success_ms,
        stale_after_ms=stale_after_ms,
        generation=last.generation,
        store_generation=last.store_generation,
        slowest=published.slowest,
        partitions=last.partitions if with_partitions else None,
    )


def _refuse_future(submission: Submission, now_ms: int, bounds: SkewLimits) -> None:
    ahead_ms = submission.listed_ms - now_ms
    if ahead_ms > bounds.clock_skew_ms:
        raise SubmissionInvalid(
            f"listed_ms {submission.listed_ms} is {ahead_ms} ms ahead of the server's clock, "
            f"{bounds.clock_skew_ms} are allowed: set the collector's clock"
        )
    if submission.consumed_until_ms is None:
        return
    ahead_ms = submission.consumed_until_ms - now_ms
    if ahead_ms > bounds.future_skew_ms:
        raise SubmissionInvalid(
            f"consumed_until_ms {submission.consumed_until_ms} is {ahead_ms} ms ahead of the server's clock, "
            f"{bounds.future_skew_ms} are allowed: a record from the future must not count"
        )


def _refuse_late(before: Published, submission: Submission) -> None:
    listed_ms, newest_ms = submission.listed_ms, before.last.listed_ms
    if listed_ms <= newest_ms:
        than, remedy = "of the same time as, but unlike,", ""
        if listed_ms < newest_ms:
            behind_s = (newest_ms - listed_ms) / 1_000
            than, remedy = "older than", f" If not, a clock is, or was, {behind_s:.0f} s off: set the collector's clock"
        raise SubmissionLate(
            f"listed_ms {listed_ms} is {than} the newest submission's {newest_ms} for consumer "
            f"{submission.consumer!r}, topic {submission.topic!r}: nothing was changed; do two collectors run?{remedy}"
        )
    if before.rewound_ms is not None and listed_ms < before.rewound_ms:
        raise SubmissionLate(
            f"listed_ms {listed_ms} is older than the rewind at {before.rewound_ms} of consumer "
            f"{submission.consumer!r}, topic {submission.topic!r}: nothing was changed; collect again"
        )


def _without_claim(last: Submission, submission: Submission) -> Submission:
    """Turns a submission that no longer names a store into one that knows nothing; returns any other unchanged.

    If it gives its own reason for knowing nothing (for instance that there are no positions), that remains the reason.
    """
    store = last.store_generation
    if store is None or submission.store_generation is not None:
        return submission
    reason = fitted(
        f"its positions no longer name the store that was fed (generation {store}): were they set by hand? They count "
        "again once the feeder has committed its own; it does so whenever it runs"
    )
    reports = tuple(
        PartitionReport(report.partition, None, None, report.reason or reason) for report in submission.partitions
    )
    return replace(
        submission,
        consumed_until_ms=None,
        reason=submission.reason or reason,
        partitions=reports,
        store_generation=store,
        caught_up=False,
    )


def _premise_broken(last: Submission, positions: Mapping[int, int], submission: Submission) -> str | None:
    """Returns why values of `submission` cannot be compared with earlier ones; None if they can."""
    if submission.generation != last.generation:
        return f"new generation of the consumer ({_short(last.generation)} -> {_short(submission.generation)})"
    if submission.store_generation != last.store_generation:
        old, new = _short(last.store_generation), _short(submission.store_generation)
        return f"new generation of the store ({old} -> {new})"
    reports = {report.partition: report for report in submission.partitions}
    for partition, position in sorted(positions.items()):
        report = reports.get(partition)
        if report is None:
            return f"partition {partition} is gone (its position was {position})"
        if report.position is not None and report.position < position:
            return f"partition {partition} went back from position {position} to {report.position}"
    return None


def _held_reason(held: str, submission: Submission, floor_ms: int | None) -> str:
    settles = "a value" if floor_ms is None else f"a value beyond {floor_ms}"
    now = f"; now: {submission.reason}" if submission.reason else ""
    return f"{held}; settled by {settles}, or by a rewind{now}"


def _success_ms(before: Published | None, submission: Submission) -> int | None:
    if submission.consumed_until_ms is not None:
        return submission.listed_ms
    return before.success_ms if before else None


def _short(generation: str | None) -> str:
    if generation is None:
        return "none"
    return generation if len(generation) <= 40 else f"{generation[:37]}..."
