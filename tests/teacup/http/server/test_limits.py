"""Limits by caller: what passes, and what is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from teacup.http.server.limits import HeldBytes, Places, RateLimiter


@given(gaps_ms=st.lists(st.integers(0, 3_000), min_size=1, max_size=200), burst=st.integers(1, 20))
def test_never_lets_through_more_than_burst_and_rate_allow(gaps_ms: list[int], burst: int) -> None:
    """In any sequence of requests, counted by hand; and after the time that it names, the next one passes."""
    limiter = RateLimiter(rate_per_s=2.0, burst=burst)
    now_s, passed = 0.0, []
    for gap_ms in gaps_ms:
        now_s += gap_ms / 1000
        wait_s = limiter.take("a", now_s)
        if wait_s is None:
            passed.append(now_s)
            continue
        other = RateLimiter(rate_per_s=2.0, burst=burst)
        assert other.take("b", now_s) is None
        now_s += wait_s
        assert limiter.take("a", now_s) is None
        passed.append(now_s)

    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + 2.0 * (passed[last] - passed[first]) + 1e-6


def test_forgets_the_callers_that_were_silent_longest() -> None:
    """Made-up addresses cannot fill the memory."""
    limiter = RateLimiter(rate_per_s=0.001, burst=1, max_callers=2)
    for caller in ("a", "b", "c"):
        assert limiter.take(caller, 0.0) is None

    assert limiter.take("b", 0.0) is not None
    assert limiter.take("a", 0.0) is None


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.booleans()), max_size=60))
def test_holds_no_more_than_allowed_together_and_half_of_it_by_one(steps: list[tuple[str, int, bool]]) -> None:
    """Counted by hand, while bodies come and go; who holds nothing is never refused."""
    held, bodies = HeldBytes(100), {caller: list[int]() for caller in "abc"}
    for caller, size, ends in steps:
        if ends and bodies[caller]:
            held.give_back(caller, bodies[caller].pop())
            continue
        before, mine = sum(map(sum, bodies.values())), sum(bodies[caller])
        taken = held.take(caller, size)
        assert taken == (mine == 0 or (before + size <= 100 and mine + size <= 50))
        if taken:
            bodies[caller].append(size)


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60), most=st.integers(1, 8))
def test_a_caller_has_as_many_places_as_it_leaves_free(steps: list[tuple[str, bool]], most: int) -> None:
    """Counted by hand, while requests come and go: one alone has half, and a newcomer finds one while one is free."""
    places, held = Places(most), dict.fromkeys("abc", 0)
    for caller, ends in steps:
        if ends and held[caller]:
            places.give_back(caller)
            held[caller] -= 1
            continue
        free = most - sum(held.values())
        taken = places.take(caller)
        assert taken == (free > held[caller] or (free > 0 and held[caller] == 0))
        held[caller] += taken
