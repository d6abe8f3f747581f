"""The wall clock as the planner of a join reads it: not at all while something contradicts it."""

from __future__ import annotations

import logging

from joins.errors import ClockBehind
from kafkaio.clock import WallClock, not_before
from kafkaio.now import monotonic_ms, wall_ms

log = logging.getLogger("teacup.joins.admission.planclock")


def read_clocks() -> tuple[int, int]:
    """The wall clock and the monotonic clock of this machine, in milliseconds."""
    return wall_ms(), monotonic_ms()


class PlanClock:
    """One planner's clock; `anchor` is a trusted reading of both clocks."""

    def __init__(self, name: str, anchor: tuple[int, int]) -> None:
        self._name, self._clock = name, WallClock(anchor)

    def now_ms(self, listed_ms: int | None = None) -> int:
        """The wall clock, unless it has jumped, or is before an earlier listing; then raises `ClockBehind`."""
        reading = self._clock.look(*read_clocks())
        if not reading.confirmed:
            raise ClockBehind(str(reading.reason))
        if reading.reason is not None:
            log.warning("%s: %s", self._name, reading.reason)
        if listed_ms is not None and (reason := not_before(reading.wall_ms, listed_ms)) is not None:
            raise ClockBehind(reason)
        return reading.wall_ms
