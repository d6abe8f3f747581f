"""A wall clock that is trusted only while something else agrees with it. Pure: times are arguments.

A wall clock can jump (a bad time server, a resumed machine, a manual change), and conclusions drawn from it
(watermarks, ceilings) cannot be taken back. Three things can contradict it here (and, when a batch is planned, most of
its records):

    the monotonic clock       since the anchor, the last trusted reading, both must have advanced alike
    an earlier listing        persisted with a plan, or published: the clock had already reached that time
    the broker's clock        for topics with append times: what came after a listing was not appended before it

State of `WallClock` at each look:

    agreed        within `TOLERANCE_MS` of the anchor: trusted, and the anchor moves here (slow drift is not a jump)
    unconfirmed   it has jumped forwards or backwards: not trusted. If it agrees with the old anchor again, it is
                  `agreed` at once; if it has agreed with itself for `STEADY_MS`, somebody has set it
    accepted      it was set: trusted, with a new anchor; reported once

The first anchor is trusted, because only `not_before` can contradict it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

TOLERANCE_MS = 1_000
STEADY_MS = 60_000
FAR_MS = 60_000


class Trust(StrEnum):
    """The result of a look at the clock."""

    AGREED = "agreed"
    ACCEPTED = "accepted"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A look at the clock. `reason` is for people; None if the clock agreed.

    steady_ms   the wall clock or, while it is not trusted, what it would be by the monotonic clock since the anchor
    """

    wall_ms: int
    trust: Trust
    reason: str | None = None
    steady_ms: int = 0

    @property
    def confirmed(self) -> bool:
        """Whether something else agrees with the wall clock."""
        return self.trust is not Trust.UNCONFIRMED


class WallClock:
    """One process's clock. `anchor` is a wall clock and a monotonic clock read together, both in milliseconds."""

    def __init__(self, anchor: tuple[int, int], ahead_ms: float | None = None) -> None:
        """ahead_ms: replaces `STEADY_MS` for a clock that is far ahead of every trusted reading."""
        self._ahead_ms = STEADY_MS if ahead_ms is None else ahead_ms
        self._offset_ms, self._monotonic_ms = anchor[0] - anchor[1], anchor[1]
        self._furthest_ms = self._offset_ms  # the furthest trusted offset
        self._jumped: tuple[int, int] | None = (
            None  # offset and monotonic time of the first reading that agrees with now
        )

    def read(self, wall_ms: int, monotonic_ms: int) -> ClockReading:
        """Returns the time and how far to trust it. Raises `ValueError` if the monotonic clock goes back."""
        if monotonic_ms < self._monotonic_ms:
            raise ValueError(f"monotonic_ms: {monotonic_ms} is below {self._monotonic_ms}; it never goes back")
        self._monotonic_ms = monotonic_ms
        offset_ms = wall_ms - monotonic_ms
        jump_ms = offset_ms - self._offset_ms
        if abs(jump_ms) <= TOLERANCE_MS:
            self._trust(offset_ms)
            return ClockReading(wall_ms, Trust.AGREED, None, wall_ms)
        if self._jumped is None or abs(offset_ms - self._jumped[0]) > TOLERANCE_MS:
            self._jumped = offset_ms, monotonic_ms
        steady_ms = monotonic_ms - self._jumped[1]
        needed_ms = self._ahead_ms if offset_ms > self._furthest_ms + FAR_MS else STEADY_MS
        jumped = f"the wall clock has jumped by {_difference(jump_ms)} against the monotonic clock"
        if steady_ms >= needed_ms:
            self._trust(offset_ms)
            reason = f"{jumped}, and has run steadily for {steady_ms / 1000:g} s: accepted"
            return ClockReading(wall_ms, Trust.ACCEPTED, reason, wall_ms)
        steadily = f", or has run steadily for {(needed_ms - steady_ms) / 1000:g} s more"
        reason = f"{jumped}: it is not trusted until it is set back{'' if math.isinf(needed_ms) else steadily}"
        return ClockReading(wall_ms, Trust.UNCONFIRMED, reason, self._offset_ms + monotonic_ms)

    def _trust(self, offset_ms: int) -> None:
        self._offset_ms, self._jumped = offset_ms, None
        self._furthest_ms = max(self._furthest_ms, offset_ms)


def not_before(wall_ms: int, listed_ms: int) -> str | None:
    """Returns why a clock before a persisted listing cannot be right; None if it is not before it."""
    behind_ms = listed_ms - wall_ms
    if behind_ms <= TOLERANCE_MS:
        return None
    return (
        f"the wall clock is {_difference(-behind_ms)} against the last listing ({listed_ms} ms since the epoch): it "
        "is not trusted until it has reached that time; set the clock of this machine"
    )


def not_after(listed_ms: int, appended_ms: int, tolerance_ms: int) -> str | None:
    """Returns why the clock cannot be right: the broker appended a record before a listing that the record came after.

    tolerance_ms   how far the two clocks may differ
    """
    ahead_ms = listed_ms - appended_ms
    if ahead_ms <= max(tolerance_ms, TOLERANCE_MS):
        return None
    return (
        f"the wall clock is {_difference(ahead_ms)} against the broker's: a record that came after a listing at "
        f"{listed_ms} (ms since the epoch) was appended at {appended_ms}: set one of them"
    )


def _difference(jump_ms: int) -> str:
    return f"{abs(jump_ms) / 1000:g} s {'ahead' if jump_ms > 0 else 'behind'}"
