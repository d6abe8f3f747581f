"""The two clocks of this machine, in milliseconds, and what is due once in a period.

`teacup.base.clock` says what may be concluded from the wall clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable


def wall_ms() -> int:
    """Returns the wall clock: milliseconds since the epoch, UTC. It can jump."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Returns the monotonic clock: milliseconds since some moment, the same for the whole machine.

    It never goes back.
    """
    return time.monotonic_ns() // 1_000_000


def read_clocks() -> tuple[int, int]:
    """Reads the wall clock and the monotonic clock together."""
    return wall_ms(), monotonic_ms()


class Every:
    """Tells when it is time again, on a monotonic clock in seconds.

    at_once   the first time is now; otherwise it is after one period
    """

    def __init__(self, period_s: float, *, at_once: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s, self._clock = period_s, clock
        self._next_s = -math.inf if at_once else clock() + period_s

    def due(self) -> bool:
        """Returns whether a period has passed since this was last true; then the next one begins."""
        now_s = self._clock()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._period_s
        return True
