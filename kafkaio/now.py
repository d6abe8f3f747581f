"""The two clocks of this machine, in milliseconds. What may be concluded from the first: `kafkaio.clock`."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Returns the wall clock: milliseconds since the epoch, UTC. It can jump."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Returns the monotonic clock: milliseconds since some moment, the same for the whole machine.

    It never goes back.
    """
    return time.monotonic_ns() // 1_000_000


def read_clocks() -> tuple[int, int]:
    """Reads both together: the wall clock and the monotonic clock."""
    return wall_ms(), monotonic_ms()
