"""Before a batch is logged: most of what it reads must not be ahead of the clock.

Once a batch is logged its ceiling stays, and records ahead of that are dead letters. A clock that is behind would make
dead letters of good records, so that the join and the feeder hold until it is corrected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from joins.spec import ClockBehind
from kafkaio.blocksearch import block_size
from kafkaio.topiclog import TopicLog

_ANY_TIME = 1 << 62


def look_at_clock(log: TopicLog, ranges: Mapping[int, tuple[int, int]], ceiling_ms: int, clock_ms: int) -> None:
    """Look at the last records of the ranges [start, end) that are about to be read, by partition.

    Raises `ClockBehind` where too many of them are ahead of the clock, `KafkaIOError`.
    """
    lasts = log.last_times({p: end for p, (_, end) in ranges.items()}, _ANY_TIME, block_size(log.outliers))
    inside = {p: [at for offset, at in lasts[p] if offset >= start] for p, (start, _) in ranges.items()}
    check_clock(inside, log.outliers, ceiling_ms, clock_ms)


def check_clock(lasts: Mapping[int, Sequence[int]], outliers: int, ceiling_ms: int, clock_ms: int) -> None:
    """Raise `ClockBehind` where in some partition more of the last records are from the future than may lie.

    lasts   by partition, the times of the last block of records that are to be read, whatever they are
    """
    for p, times in sorted(lasts.items()):
        future = sorted(time for time in times if time > ceiling_ms)
        if len(future) > outliers:
            raise ClockBehind(
                f"{len(future)} of the last {len(times)} records of partition {p} are up to "
                f"{(future[-1] - clock_ms) / 1000:,.0f} s ahead of this machine's clock: they would be dead letters. "
                "Correct the clock; or, if the records are really from the future, fix their producer, or raise "
                "`max_future_skew`"
            )
