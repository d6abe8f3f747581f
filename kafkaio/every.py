"""What is done at most once in a period, such as a line in the log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Every:
    """Says when it is time again, on a monotonic clock in seconds.

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
