"""The time by which a server judges: which of two clocks it follows, and what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.clock import STEADY_MS, TOLERANCE_MS
from tests.support.clocks import STEP_MS, Clocks
from tests.support.times import NOON_MS

LOOKS = st.lists(st.tuples(st.integers(0, 2 * STEADY_MS), st.sampled_from([-STEP_MS, 0, STEP_MS])), max_size=30)
"""Time that passes, and how far the wall clock is off at the look after it."""


@given(LOOKS)
def test_it_is_never_ahead_whatever_the_wall_clock_does(looks: list[tuple[int, int]]) -> None:
    """Of a store without clocks of its own: nobody else would notice. What is behind makes items live longer."""
    clocks = Clocks()
    clock = clocks.clock()
    for passed_ms, off_ms in looks:
        clocks.passed_ms, clocks.off_ms = clocks.passed_ms + passed_ms, off_ms
        assert clock() <= NOON_MS + clocks.passed_ms + TOLERANCE_MS


@pytest.mark.parametrize("off_ms", [-STEP_MS, STEP_MS])
@pytest.mark.parametrize("lasts_ms", [500, 30_000])
def test_a_step_is_named_and_passes(off_ms: int, lasts_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """Time goes on by the monotonic clock; once the wall clock is right again, that is said as well."""
    clocks = Clocks()
    clock = clocks.clock(believes_ahead=True)
    clocks.off_ms = off_ms
    during = [clock()]
    clocks.passed_ms = lasts_ms
    during.append(clock())
    clocks.off_ms = 0
    after = clock()

    assert during == [NOON_MS, NOON_MS + lasts_ms]
    assert after == NOON_MS + lasts_ms
    way = "ahead" if off_ms > 0 else "behind"
    jumped, agrees = caplog.messages
    assert jumped.startswith(
        f"the wall clock has jumped by 7200 s {way} against the monotonic clock: it is not trusted"
    )
    assert jumped.endswith("time goes on by the monotonic clock")
    assert agrees == "the wall clock of this machine agrees again"


@pytest.mark.parametrize(
    ("off_ms", "believes_ahead", "believed"),
    [(-STEP_MS, False, True), (-STEP_MS, True, True), (STEP_MS, True, True), (STEP_MS, False, False)],
)
def test_a_clock_that_was_set_for_good(off_ms: int, believes_ahead: bool, believed: bool) -> None:
    """It is believed after a minute, but not ahead where no other clock confirms it."""
    clocks = Clocks()
    clock = clocks.clock(believes_ahead=believes_ahead)
    clocks.off_ms = off_ms
    clock()
    clocks.passed_ms = STEADY_MS

    assert clock() == NOON_MS + STEADY_MS + (off_ms if believed else 0)


def test_a_small_step_ahead_is_believed_in_any_case() -> None:
    """As a time server may make one; it costs no more than a minute."""
    clocks = Clocks()
    clock = clocks.clock()
    clocks.off_ms = 2_000
    clock()
    clocks.passed_ms = STEADY_MS

    assert clock() == NOON_MS + STEADY_MS + 2_000


def test_a_machine_that_was_restored_goes_on_from_what_was_told_last() -> None:
    """Its monotonic clock tells an earlier time; a minute later the wall clock is believed."""
    clocks = Clocks()
    clock = clocks.clock()
    clocks.passed_ms = 5 * STEADY_MS
    told = [clock()]
    clocks.passed_ms, clocks.off_ms = 0, 2 * STEADY_MS
    told.append(clock())
    clocks.passed_ms = STEADY_MS
    told.append(clock())

    assert told == [NOON_MS + 5 * STEADY_MS, NOON_MS + 5 * STEADY_MS, NOON_MS + 3 * STEADY_MS]


def test_a_clock_that_was_behind_for_long_is_believed_when_it_is_right_again() -> None:
    """It is not further ahead than it was when it was trusted."""
    clocks = Clocks()
    clock = clocks.clock()
    for off_ms in (-STEP_MS, 0):
        clocks.off_ms = off_ms
        clock()
        clocks.passed_ms += STEADY_MS
        clock()

    assert clock() == NOON_MS + 2 * STEADY_MS
