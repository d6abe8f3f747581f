"""The wall clock as the planner of a join reads it: not at all while something contradicts it."""

from __future__ import annotations

import logging

from joins.errors import ClockBehind
from kafkaio.clock import Trust, WallClock, not_before
from kafkaio.now import read_clocks

log = logging.getLogger("teacup.joins.admission.planclock")


class PlanClock:
    """Reads the clock for one planner; `anchor` is a trusted reading of both clocks.

    times_set   how often it was set: times before that are not comparable with later ones
    """

    def __init__(self, name: str, anchor: tuple[int, int]) -> None:
        self._name, self._clock = name, WallClock(anchor)
        self.times_set = 0

    def now_ms(self, listed_ms: int | None = None) -> int:
        """Returns the wall clock; raises `ClockBehind` if it has jumped, or is before an earlier listing."""
        reading = self._clock.look(*read_clocks())
        if not reading.confirmed:
            raise ClockBehind(str(reading.reason))
        if reading.trust is Trust.ACCEPTED:
            self.times_set += 1
            log.warning("%s: %s", self._name, reading.reason)
        if listed_ms is not None and (reason := not_before(reading.wall_ms, listed_ms)) is not None:
            raise ClockBehind(reason)
        return reading.wall_ms
