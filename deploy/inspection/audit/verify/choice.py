"""Which right records one left record may have been joined with, given what is known of the run. Pure.

Candidates are the right records of its key in its interval. Each was readable for the left record, or not:

    the left record's batch is known          so is what it had: the right records read by then (`number`), except those
                                              below the expiry. Only one result is right
    not known, left is timely                 timely right records were there, late ones may have been: the policy's
                                              choice among the timely ones, or a late one that it prefers to that
    not known, left is late                   records below some time may have expired: the same among the others
    not known, with `max_wait`                left may have gone before right was read: any candidate, or none

`possible` returns every result that may be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from joins.spec import Policy

Chosen = frozenset[int]
"""The positions of the right records in the rows of a left record; empty if it is unmatched."""

NONE: Chosen = frozenset()


@dataclass(frozen=True, slots=True)
class RightCandidate:
    """A right record that pairs with the left one.

    position  its partition and offset as one number; candidates are ordered by it
    number    the batch that read it; None if not known
    surely    nothing suggests that it was not there
    """

    time_ms: int
    position: int
    number: int | None = None
    surely: bool = True


@dataclass(frozen=True, slots=True)
class LeftCase:
    """A left record whose result is not simply the choice among all candidates.

    number     the batch that wrote it; None if not known
    expiry_ms  right records below it had left the window before that batch
    late       whether it was late
    waited     whether it waited for right; False if `max_wait` may have let it go earlier
    """

    time_ms: int
    number: int | None = None
    expiry_ms: int | None = None
    late: bool = False
    waited: bool = True


def chosen(policy: Policy, time_ms: int, candidates: Iterable[RightCandidate]) -> Chosen:
    """Returns what the policy chooses among the candidates."""
    order = sorted(candidates, key=lambda one: policy.rank(time_ms, one.time_ms, one.position))
    return frozenset(one.position for one in (order if policy is Policy.ALL else order[:1]))


def allowed(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate], got: Chosen) -> bool:
    """Returns whether a left record may have been joined with the right records in `got`."""
    if policy is Policy.ALL:
        return any(sure <= got <= every for sure, every in _known(left, candidates))
    return got in possible(policy, left, candidates)


def expected(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate]) -> Chosen:
    """Returns the right result, or what it would be if nothing had been late."""
    surely, _ = next(_known(left, candidates))
    return chosen(policy, left.time_ms, (one for one in candidates if one.position in surely))


def possible(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate]) -> set[Chosen]:
    """Returns every result that may be right under a policy that chooses one record."""
    choices: set[Chosen] = set()
    ranks = {one.position: policy.rank(left.time_ms, one.time_ms, one.position) for one in candidates}
    for sure, every in _known(left, candidates):
        best = min(sure, key=ranks.__getitem__, default=None)
        choices.add(NONE if best is None else frozenset({best}))
        choices |= {frozenset({at}) for at in every - sure if best is None or ranks[at] < ranks[best]}
    return choices


def _known(left: LeftCase, candidates: Sequence[RightCandidate]) -> Iterator[tuple[Chosen, Chosen]]:
    """Yields what was surely there and what may have been there, for each way that the run may have gone."""
    if left.number is not None:
        had = frozenset(
            one.position
            for one in candidates
            if one.number is not None
            and one.number <= left.number
            and (left.expiry_ms is None or one.time_ms >= left.expiry_ms)
        )
        yield had, had
        return
    since = [None] if not left.late else [None, *sorted({one.time_ms + 1 for one in candidates})]
    for time_ms in since:
        every = [one for one in candidates if time_ms is None or one.time_ms >= time_ms]
        sure = [one for one in every if one.surely and left.waited]
        yield frozenset(one.position for one in sure), frozenset(one.position for one in every)
