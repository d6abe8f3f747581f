"""Joins a whole history by brute force: what every run over it must output, however it is cut into batches. Pure.

It compares every left record with every right one and keeps no state, so you can check it by reading. It takes
quadratic time: keep histories to a few thousand records.

    does not fit its side's `where`               no row: skipped
    time in the future (either side)              no row: a dead letter
    left key is null                              one row, unmatched, null_key
    no other record with its key in the interval  one row, unmatched, no_candidate
    `before` unlimited, and the choice has no value  one row, unmatched, deleted
    otherwise                                     one row, matched, with the policy's choice; `all`: one row per pair
    type `full`: a right record in none of these  one row, unjoined: null_key, or expired

Of these rows the join's type leaves out those of other outcomes (`made` has all of left's).

A record is from the future if its time is more than `max_future_skew_ms` above the clock *at its append*. A join uses
the clock at the time when it lists the ends, so put such records so far ahead that the run's clock never gets there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from joins.outcome import Outcome
from joins.spec import JoinSpec, Policy, Side
from joins.testing.history import Event, History, TopicHistory
from teacup.kafka.headers import DELETED, EXPIRED, NO_CANDIDATE, NULL_KEY

Position = tuple[int, int]
"""Partition and offset."""

AFTER_ALL_LEFT: Position = (1 << 31, 0)
"""Behind each left position."""


@dataclass(frozen=True, slots=True)
class Result:
    """One output row, as the positions of its two records; right's is None if unmatched, left's if unjoined."""

    left_partition: int | None
    left_offset: int | None
    right_partition: int | None
    right_offset: int | None
    outcome: str
    reason: str | None = None

    @property
    def right(self) -> Position | None:
        """The position of the right record, if any."""
        if self.right_partition is None or self.right_offset is None:
            return None
        return self.right_partition, self.right_offset

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """The sort key of results: rows of left by its position, then those of right by theirs."""
        if self.left_partition is not None and self.left_offset is not None:
            return ((self.left_partition, self.left_offset),)
        assert self.right is not None
        return (AFTER_ALL_LEFT, self.right)


def join(history: History, spec: JoinSpec) -> list[Result]:
    """Returns the rows to write, ordered by left's partition and offset, then by the policy's rank.

    Those of right alone (`full`) follow, by right's partition and offset.
    """
    rows, outcomes = made(history, spec), spec.right.type.outcomes
    written = [row for row in rows if row.outcome in outcomes]
    if Outcome.UNJOINED.value not in outcomes:
        return written
    joined = {row.right for row in rows}
    alone = [
        right for right in present(history.right, spec, spec.right) if (right.partition, right.offset) not in joined
    ]
    return written + [
        Result(
            None,
            None,
            right.partition,
            right.offset,
            Outcome.UNJOINED.value,
            NULL_KEY if right.key is None else EXPIRED,
        )
        for right in alone
    ]


def made(history: History, spec: JoinSpec) -> list[Result]:
    """Returns the rows of the left outer join, in the same order."""
    rights = present(history.right, spec, spec.right)
    rows: list[Result] = []
    for left in present(history.left, spec, spec.left):
        chosen = _chosen(spec.right.policy, left, [right for right in rights if _pairs(left, right, spec)])
        deleted = spec.right.of_versions and bool(chosen) and chosen[0].value is None
        chosen = [] if deleted else chosen
        rows += [
            Result(left.partition, left.offset, right.partition, right.offset, Outcome.MATCHED.value)
            for right in chosen
        ]
        if not chosen:
            reason = DELETED if deleted else NULL_KEY if left.key is None else NO_CANDIDATE
            rows.append(Result(left.partition, left.offset, None, None, Outcome.UNMATCHED.value, reason))
    return rows


def possible(left: Event, history: History, spec: JoinSpec) -> set[Position | None]:
    """Returns what a left record with a wrong time may be joined with: nothing, or any record that it pairs with.

    That includes right records that were from the future at their append, because their time may have come since.
    """
    rights = (right for right in history.right.records() if right.fits(spec.right))
    pairs = (right for right in rights if _pairs(left, right, spec))
    return {None, *((right.partition, right.offset) for right in pairs)}


def unjoined(history: History, spec: JoinSpec, results: Iterable[Result]) -> set[Position]:
    """Returns the positions of right records, including those with null keys, that appear in no result (`made`)."""
    joined = {result.right for result in results}
    return {(right.partition, right.offset) for right in present(history.right, spec, spec.right)} - joined


def present(topic: TopicHistory, spec: JoinSpec, side: Side) -> list[Event]:
    """Returns the records of one side that take part: all readable ones that it takes and are not from the future."""
    return [event for event in topic.records() if event.fits(side) and not event.is_future(spec.max_future_skew_ms)]


def _pairs(left: Event, right: Event, spec: JoinSpec) -> bool:
    return (
        not (spec.one_topic and (left.partition, left.offset) == (right.partition, right.offset))
        and left.key is not None
        and left.key == right.key
        and left.time_ms - spec.right.before_ms <= right.time_ms <= left.time_ms + spec.right.after_ms
    )


def _chosen(policy: Policy, left: Event, candidates: Iterable[Event]) -> list[Event]:
    order = sorted(candidates, key=lambda one: policy.rank(left.time_ms, one.time_ms, one.partition, one.offset))
    return order if policy is Policy.ALL else order[:1]
