"""What a left record may have been joined with, compared with every way that a run can have gone."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from deploy.inspection.audit.verify.choice import LeftCase, RightCandidate, allowed, chosen, expected, possible
from joins.spec import Policy

BEFORE_MS = AFTER_MS = 4


@st.composite
def candidates(draw):
    """Few, at near times, with ties; some may have been late, or were read by a later batch."""
    drawn = draw(st.lists(st.tuples(st.integers(6, 14), st.booleans(), st.integers(-1, 3)), max_size=4))
    return [RightCandidate(time, position, number, surely) for position, (time, surely, number) in enumerate(drawn)]


def subsets(some):
    some = list(some)
    return chain.from_iterable(combinations(some, size) for size in range(len(some) + 1))


def by_hand(policy, time_ms, those):
    """The policies once more, as a person would choose."""
    order = sorted(those, key=lambda one: (one.time_ms, one.position))
    if policy is Policy.ALL:
        return frozenset(one.position for one in order)
    if policy is Policy.LAST:
        order.reverse()
    if policy is Policy.NEAREST:
        order.sort(key=lambda one: abs(one.time_ms - time_ms))
    return frozenset(one.position for one in order[:1])


@given(candidates(), st.sampled_from(Policy), st.booleans(), st.booleans())
def test_everything_that_a_run_can_have_given_is_allowed_and_nothing_else(some, policy, late, waited):
    """Late right records were there or not; what is old may have expired for a late left one."""
    left = LeftCase(10, late=late, waited=waited)
    given_by_runs = set()
    for since in range(6, 16) if late else (0,):
        live = [one for one in some if one.time_ms >= since]
        sure = [one for one in live if one.surely and waited]
        for more in subsets(one for one in live if one not in sure):
            given_by_runs.add(by_hand(policy, 10, [*sure, *more]))

    for got in map(frozenset, subsets(range(len(some)))):
        assert allowed(policy, left, some, got) == (got in given_by_runs)
    if policy is not Policy.ALL:
        assert possible(policy, left, some) == given_by_runs


@given(candidates(), st.sampled_from(Policy), st.integers(-1, 3), st.integers(5, 15))
def test_of_a_known_batch_one_result_is_right(some, policy, number, expiry_ms):
    """The choice among what it had read by then, and had not dropped."""
    left = LeftCase(10, number, expiry_ms, late=True)
    had = [one for one in some if one.number <= number and one.time_ms >= expiry_ms]

    assert expected(policy, left, some) == by_hand(policy, 10, had)
    assert [got for got in map(frozenset, subsets(range(len(some)))) if allowed(policy, left, some, got)] == [
        by_hand(policy, 10, had)
    ]


def test_of_two_equally_near_ones_the_earlier_is_chosen():
    """And of those of one time the one with the smaller position."""
    some = [RightCandidate(12, 1), RightCandidate(8, 3), RightCandidate(8, 2)]

    assert chosen(Policy.NEAREST, 10, some) == {2}
