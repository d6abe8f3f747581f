"""The time by which a server judges: the wall clock, or the monotonic clock while the wall clock has jumped.

What was concluded from a time cannot be taken back, and a wall clock may be hours ahead for a second. So while it
contradicts the monotonic clock (`teacup.base.clock`), time goes on by the latter, and requests are served; the log
names the clock.

A clock that was set back is believed once it has run steadily for a minute. So is one that was set ahead, where
something else would contradict it if it were wrong; otherwise it is not believed until the server is started again.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from teacup.base.clock import ClockReading, WallClock
from teacup.base.now import Every, read_clocks

log = logging.getLogger("teacup.http.server.steady_clock")

SAY_EVERY_S = 60.0


class SteadyClock:
    """Returns milliseconds since the epoch at each call. Thread-safe.

    anchor          a trusted reading of both clocks: of the process that starts the workers
    believes_ahead  whether a clock that was set ahead is believed after a minute
    read            reads both clocks
    """

    def __init__(
        self,
        anchor: tuple[int, int],
        *,
        believes_ahead: bool,
        read: Callable[[], tuple[int, int]] = read_clocks,
    ) -> None:
        self._believes_ahead, self._read = believes_ahead, read
        self._clock = self._anchored(anchor)
        self._last = anchor  # what was returned, and the monotonic clock
        self._lock = threading.Lock()
        self._every = Every(SAY_EVERY_S, at_once=True)
        self._jumped = False

    def __call__(self) -> int:
        with self._lock:
            wall_ms, monotonic_ms = self._read()
            if monotonic_ms < self._last[1]:  # of a restored machine: time goes on from what was returned last
                self._clock = self._anchored((self._last[0], monotonic_ms))
            reading = self._clock.look(wall_ms, monotonic_ms)
            self._last = reading.steady_ms, monotonic_ms
            self._say(reading)
        return reading.steady_ms

    def _anchored(self, anchor: tuple[int, int]) -> WallClock:
        return WallClock(anchor, ahead_ms=None if self._believes_ahead else math.inf)

    def _say(self, reading: ClockReading) -> None:
        if reading.confirmed:
            if self._jumped:
                log.warning("%s", reading.reason or "the wall clock of this machine agrees again")
                self._every = Every(SAY_EVERY_S, at_once=True)
        elif self._every.due():
            remedy = "" if self._believes_ahead else "; if it is right now, start this server again"
            log.warning("%s. Until then time goes on by the monotonic clock%s", reading.reason, remedy)
        self._jumped = not reading.confirmed
