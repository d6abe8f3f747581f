"""A wall clock that jumps: not trusted until it is set back or has been steady; and what else contradicts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.clock import STEADY_MS, TOLERANCE_MS, Trust, WallClock, not_before

START_MS = 1_795_000_000_000
JUMPS = st.integers(TOLERANCE_MS + 1, 10**8) | st.integers(-(10**8), -TOLERANCE_MS - 1)
STEPS = st.lists(st.integers(1, 5_000), min_size=1, max_size=20)


@given(STEPS, st.lists(st.integers(-TOLERANCE_MS // 2, TOLERANCE_MS // 2), min_size=20, max_size=20))
def test_a_clock_that_continues_with_the_monotonic_one_agrees(steps: list[int], jitter: list[int]) -> None:
    """Even if the two are read slightly apart."""
    clock, passed_ms = WallClock((START_MS, 7)), 0
    for step, off in zip(steps, jitter, strict=False):
        passed_ms += step
        assert clock.read(START_MS + passed_ms + off, 7 + passed_ms).trust is Trust.AGREED


@given(JUMPS, STEPS)
def test_a_jump_is_not_believed_until_it_has_been_steady(jump_ms: int, steps: list[int]) -> None:
    """In either direction; then it is accepted once, and agrees from there on."""
    clock, passed_ms = WallClock((START_MS, 0)), 0
    first = clock.read(START_MS + jump_ms, 0)
    assert not first.confirmed
    assert first.reason is not None
    assert ("ahead" if jump_ms > 0 else "behind") in first.reason
    for step in [*steps, STEADY_MS]:
        passed_ms += step
        found = clock.read(START_MS + jump_ms + passed_ms, passed_ms)
        assert found.confirmed == (passed_ms >= STEADY_MS)
        if found.confirmed:
            assert found.trust is Trust.ACCEPTED
            assert clock.read(START_MS + jump_ms + passed_ms, passed_ms).trust is Trust.AGREED
            return


@given(JUMPS, st.integers(0, STEADY_MS - 1))
def test_a_clock_that_is_set_back_agrees_at_once(jump_ms: int, passed_ms: int) -> None:
    """With the anchor from before the jump."""
    clock = WallClock((START_MS, 0))
    clock.read(START_MS + jump_ms, 0)
    assert not clock.read(START_MS + jump_ms + passed_ms, passed_ms).confirmed

    assert clock.read(START_MS + passed_ms, passed_ms).trust is Trust.AGREED


@given(st.lists(st.tuples(st.integers(0, STEADY_MS // 2), JUMPS), min_size=1, max_size=30))
def test_a_clock_that_continues_jumping_is_never_accepted(jumps: list[tuple[int, int]]) -> None:
    """Accepted only if, at every look, it has been equally far from the anchor for `STEADY_MS`."""
    clock, passed_ms = WallClock((START_MS, 0)), 0
    was_ms: list[tuple[int, int]] = []
    for step, jump_ms in jumps:
        passed_ms += step
        found = clock.read(START_MS + passed_ms + jump_ms, passed_ms)
        was_ms.append((passed_ms, jump_ms))
        recent = [at for when, at in was_ms if when > passed_ms - STEADY_MS]
        if found.trust is Trust.ACCEPTED:
            assert max(recent) - min(recent) <= 2 * TOLERANCE_MS
            return
        assert not found.confirmed


def test_a_listing_that_lies_ahead_contradicts_the_clock() -> None:
    """By more than the tolerance; the message says how far, in which direction, and what to do."""
    assert not_before(START_MS, START_MS + TOLERANCE_MS) is None
    assert not_before(START_MS, START_MS - 10**9) is None
    assert "3600 s behind against the last listing" in (not_before(START_MS, START_MS + 3_600_000) or "")


def test_a_monotonic_clock_that_goes_back_is_refused() -> None:
    """It would be another machine's."""
    clock = WallClock((START_MS, 10))

    with pytest.raises(ValueError, match="monotonic_ms: 9 is below 10"):
        clock.read(START_MS, 9)
