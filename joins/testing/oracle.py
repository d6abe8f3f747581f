"""Joins a whole history by brute force: what every run over it must output, however it was cut. Pure.

It compares every left record with every right one and keeps no state, so it can be checked by reading. Quadratic: keep
histories to a few thousand records.

Left records, right records:

    time in the future                            in no row, on either side: these are dead letters
    left key is null                              one row, unmatched, null_key
    no right record with its key in the interval  one row, unmatched, no_candidate
    otherwise                                     one row, matched, with the policy's choice; `all`: each pair

A record is from the future when its time lies more than `max_future_skew_ms` above the clock *at its append*. A join
compares with the clock when it lists the ends; keep such records so far ahead that the run's clock never gets there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from joins.spec import JoinSpec, Policy
from joins.testing.history import Event, History, TopicHistory
from teacup.kafka.headers import NO_CANDIDATE, NULL_KEY

Position = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Result:
    """One output row, by the positions of its two records; right's are None if it is unmatched."""

    left_partition: int
    left_offset: int
    right_partition: int | None
    right_offset: int | None
    outcome: str
    reason: str | None = None

    @property
    def right(self) -> Position | None:
        """The position of the right record, (partition, offset); None if there is none."""
        if self.right_partition is None or self.right_offset is None:
            return None
        return self.right_partition, self.right_offset


def join(history: History, spec: JoinSpec) -> list[Result]:
    """Returns every row of the left outer join, each once: by left's partition and offset, then right's time."""
    rights = present(history.right, spec)
    rows: list[Result] = []
    for left in present(history.left, spec):
        chosen = _chosen(spec.policy, left, [right for right in rights if _pairs(left, right, spec)])
        rows += [Result(left.partition, left.offset, right.partition, right.offset, "matched") for right in chosen]
        if not chosen:
            reason = NULL_KEY if left.key is None else NO_CANDIDATE
            rows.append(Result(left.partition, left.offset, None, None, "unmatched", reason))
    return rows


def possible(left: Event, history: History, spec: JoinSpec) -> set[Position | None]:
    """Returns what a left record with a wrong time may be joined with: nothing, or any of its pairs.

    That includes pairs with a right record that was from the future at its append: its time may have come since.
    """
    pairs = (right for right in history.right.records() if _pairs(left, right, spec))
    return {None, *((right.partition, right.offset) for right in pairs)}


def unjoined(history: History, spec: JoinSpec, results: Iterable[Result]) -> set[Position]:
    """Returns the positions of the right records, also those with null keys, that appear in no row of the results."""
    joined = {result.right for result in results}
    return {(right.partition, right.offset) for right in present(history.right, spec)} - joined


def present(topic: TopicHistory, spec: JoinSpec) -> list[Event]:
    """Returns the records of one side that take part: all readable ones except those from the future."""
    return [event for event in topic.records() if not event.is_future(spec.max_future_skew_ms)]


def _pairs(left: Event, right: Event, spec: JoinSpec) -> bool:
    return (
        left.key is not None
        and left.key == right.key
        and left.time_ms - spec.before_ms <= right.time_ms <= left.time_ms + spec.after_ms
    )


def _chosen(policy: Policy, left: Event, candidates: Iterable[Event]) -> list[Event]:
    order = sorted(candidates, key=lambda one: policy.rank(left.time_ms, one.time_ms, one.partition, one.offset))
    return order if policy is Policy.ALL else order[:1]
