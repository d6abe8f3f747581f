"""Which right records one left record may have been joined with, as far as what is known of the run decides it. Pure.

Candidates are the right records of its key in its interval; each was readable for the left record, or not:

    the batch of the left record is known     so is what its batch had: the right records read by then (`number`), none
                                              below the expiry. One result is right
    not known, left is timely                 timely right records were there, late ones may have been: the choice of
                                              the timely ones, or a late one that the policy prefers to it
    not known, left is late                   what is below some time may have expired: the same among the others
    not known, with `max_wait`                left may have gone before right was read: any candidate, or none

`possible` returns every result that may be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from joins.spec import Policy

Chosen = frozenset[int]
"""The positions of the right records in the rows of a left one; empty: it is unmatched."""

NONE: Chosen = frozenset()


@dataclass(frozen=True, slots=True)
class RightCandidate:
    """A right record that pairs with the left one.

    position  its partition and offset in one number, in this order
    number    of the batch that read it; None: not known
    surely    nothing speaks against its having been there
    """

    time_ms: int
    position: int
    number: int | None = None
    surely: bool = True


@dataclass(frozen=True, slots=True)
class LeftCase:
    """A left record whose result is not simply the choice among all candidates.

    number     of the batch that wrote it; None: not known
    expiry_ms  right records below it had left the window before that batch
    late       it was late
    waited     it waited for right: False if `max_wait` may have let it go before
    """

    time_ms: int
    number: int | None = None
    expiry_ms: int | None = None
    late: bool = False
    waited: bool = True


def chosen(policy: Policy, time_ms: int, candidates: Iterable[RightCandidate]) -> Chosen:
    """Returns what the policy chooses of these."""
    order = sorted(candidates, key=lambda one: policy.rank(time_ms, one.time_ms, one.position))
    return frozenset(one.position for one in (order if policy is Policy.ALL else order[:1]))


def allowed(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate], got: Chosen) -> bool:
    """Returns whether a left record may have been joined with these."""
    if policy is Policy.ALL:
        return any(sure <= got <= every for sure, every in _known(left, candidates))
    return got in possible(policy, left, candidates)


def expected(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate]) -> Chosen:
    """Returns the result that is right, or that would be if nothing had been late."""
    surely, _ = next(_known(left, candidates))
    return chosen(policy, left.time_ms, (one for one in candidates if one.position in surely))


def possible(policy: Policy, left: LeftCase, candidates: Sequence[RightCandidate]) -> set[Chosen]:
    """Returns every result that may be right, of a policy that chooses one."""
    found: set[Chosen] = set()
    ranks = {one.position: policy.rank(left.time_ms, one.time_ms, one.position) for one in candidates}
    for sure, every in _known(left, candidates):
        best = min(sure, key=ranks.__getitem__, default=None)
        found.add(NONE if best is None else frozenset({best}))
        found |= {frozenset({at}) for at in every - sure if best is None or ranks[at] < ranks[best]}
    return found


def _known(left: LeftCase, candidates: Sequence[RightCandidate]) -> Iterator[tuple[Chosen, Chosen]]:
    """Yields what was surely there, and what may have been, for each way that the run may have gone."""
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
