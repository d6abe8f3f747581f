"""Which partitions hold a topic's watermark back, unless all are alike. Pure.

A topic's watermark is the smallest of its partitions', and some partition always has the smallest. Naming it would
often send people to a partition like all others. So a partition is named only if it stands out: it is further behind
the next one than all others are apart, and by more than `ALIKE_MS`. If a slow broker holds several partitions back
together, the fewest that stand out in this way are named, at most half of all.

    times of the watermarks         named
    10:00:00  :05  :05  :06         the first: 5 s behind, the others are within 1 s
    10:00:05  :05  :05  :06         none: all alike
    10:00:00  :00  :05  :05         the first two
    10:00:00  :05  :10  :15         none: none is further behind than the others are apart

Of two partitions the slower one is named if it is more than `ALIKE_MS` behind; a single partition always is. Partitions
that are read to their end advance by the clock, and so are alike.
"""

from __future__ import annotations

from collections.abc import Mapping

ALIKE_MS = 1_000
"""Watermarks that are closer than this differ by when their partitions were read."""
ALIKE = "all alike"
"""The answer if no partition stands out."""


def stragglers(watermarks_ms: Mapping[int, int]) -> list[int]:
    """Returns the partitions that stand out as the slowest, the slowest first; none: all are alike."""
    order = sorted(watermarks_ms, key=lambda p: (watermarks_ms[p], p))
    times = [watermarks_ms[p] for p in order]
    if len(order) < 2:
        return order
    for count in range(1, len(order) // 2 + 1):
        apart_ms = times[-1] - times[count]
        if times[count] - times[count - 1] > max(apart_ms, ALIKE_MS):
            return order[:count]
    return []


def holders(topic: str, watermarks_ms: Mapping[int, int]) -> str:
    """Returns the partitions of a topic that hold it back, in a few words."""
    slow = stragglers(watermarks_ms)
    if not slow:
        return ALIKE
    more = f" and {len(slow) - 1} more" if len(slow) > 1 else ""
    return f"{topic}-{slow[0]}{more}"
