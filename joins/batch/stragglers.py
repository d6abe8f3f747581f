"""Which partitions hold a topic's watermark back, if it is some of them and not all alike. Pure.

A watermark is the smallest of its partitions', and one of them is always the smallest: of evenly filled ones the first
of equals. To name it would send people to a partition that is like all others. So a partition is named only if it
stands out: it lies further behind the next one than all others are apart, and by more than `ALIKE_MS`. If a broker is
slow, several partitions are behind together: then the fewest that stand out in this way are named, at most half of all.

    times of the watermarks         named
    10:00:00  :05  :05  :06         the first: 5 s behind, the others are within 1 s
    10:00:05  :05  :05  :06         none: all alike
    10:00:00  :00  :05  :05         the first two
    10:00:00  :05  :10  :15         none: no one is behind more than the others are apart

Of two partitions the slower one is named if it is more than `ALIKE_MS` behind; the only one always, as there are no
others that it could be like. A partition that is read to its end advances by the clock: such partitions are alike.
"""

from __future__ import annotations

from collections.abc import Mapping

ALIKE_MS = 1_000
"""Watermarks that are closer than this differ by when their partitions were read."""
ALIKE = "all alike"
"""What is said if no partition stands out."""


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
    found = stragglers(watermarks_ms)
    if not found:
        return ALIKE
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{topic}-{found[0]}{more}"
