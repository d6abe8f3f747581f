"""The clocks of a machine, of which the wall clock steps."""

from __future__ import annotations

from teacup.http.server.serving import SteadyClock
from tests.support.times import NOON_MS

HOUR_MS = 3_600_000
STEP_MS = 2 * HOUR_MS


class Clocks:
    """Of a machine; the monotonic one tells the time since noon."""

    def __init__(self) -> None:
        self.passed_ms = self.off_ms = 0

    def __call__(self) -> tuple[int, int]:
        return NOON_MS + self.passed_ms + self.off_ms, self.passed_ms

    def clock(self, *, believes_ahead: bool = False) -> SteadyClock:
        return SteadyClock(self(), believes_ahead=believes_ahead, read=self)
