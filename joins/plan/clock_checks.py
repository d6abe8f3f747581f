"""Checks of the wall clock: while something contradicts it, the join and the feeder hold.

A logged batch cannot be undone, so the clock is checked before:

a clock that is behind   would turn good records into dead letters: most records of a batch must not be ahead of it
                         (`check_last_times`)
a clock that is ahead    would let left go before right has arrived: where brokers stamp records, those that arrive
                         after a listing must not have been appended before it (`BrokersClock`)
a clock that jumps       is compared with the monotonic clock (`PlanClock`)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from joins.errors import ClockBehind
from joins.plan.readable import EndOffsets
from teacup.base.clock import Trust, WallClock, not_after, not_before
from teacup.base.now import read_clocks
from teacup.base.times import LATEST_MS
from teacup.kafka.log.time_search import block_size
from teacup.kafka.log.topic_log import Ends, TopicLog

log = logging.getLogger("teacup.joins.plan.clock_checks")

WRONG_CLOCK = "wrong_clock", math.inf
"""What `ClockBehind` means to a reader (`StreamReader.patience`)."""


class PlanClock:
    """Reads the clock for one planner; `anchor` is a trusted reading of both clocks.

    read        reads the wall clock and the monotonic clock together
    times_set   how often it was set: times before and after are not comparable
    """

    def __init__(
        self, name: str, anchor: tuple[int, int], read: Callable[[], tuple[int, int]] = lambda: read_clocks()
    ) -> None:
        self._name, self._clock, self._read = name, WallClock(anchor), read
        self.times_set = 0

    def now_ms(self, listed_ms: int | None = None) -> int:
        """Returns the wall clock time; raises `ClockBehind` if it has jumped, or is before an earlier listing."""
        reading = self._clock.read(*self._read())
        if not reading.confirmed:
            raise ClockBehind(str(reading.reason))
        if reading.trust is Trust.ACCEPTED:
            self.times_set += 1
            log.warning("%s: %s", self._name, reading.reason)
        if listed_ms is not None and (reason := not_before(reading.wall_ms, listed_ms)) is not None:
            raise ClockBehind(reason)
        return reading.wall_ms


class BrokersClock:
    """Compares each listing with the append times of the records that came after it."""

    def __init__(self, logs: Mapping[str, TopicLog], tolerance_ms: int) -> None:
        """logs: by side, the topics whose event times are the broker's append times."""
        self._logs, self._tolerance_ms = logs, tolerance_ms
        self._before: EndOffsets | None = None

    def compare(self, end_offsets: EndOffsets) -> None:
        """Raises `ClockBehind` if the previous listing's time is later than what was appended after it."""
        before = self._before
        if before is not None and end_offsets.listed_ms >= before.listed_ms:  # otherwise the clock was set back
            for side, log in self._logs.items():
                self._compare(before, side, log, end_offsets.side(side))
        self._before = end_offsets

    def _compare(self, before: EndOffsets, side: str, log: TopicLog, ends: Mapping[int, Ends]) -> None:
        for p, range_before in before.side(side).items():
            if ends[p].stable > range_before.high:  # one partition is enough
                for _, appended_ms in log.valid_times({p: (range_before.high, ends[p].stable)}, LATEST_MS, 1)[p]:
                    if (reason := not_after(before.listed_ms, appended_ms, self._tolerance_ms)) is not None:
                        raise ClockBehind(f"{log.topic}-{p}: {reason}")
                return


def check_last_times(log: TopicLog, ranges: Mapping[int, tuple[int, int]], ceiling_ms: int, clock_ms: int) -> None:
    """Checks the last records of the ranges [start, end) that are about to be read, by partition.

    Raises `ClockBehind` if too many of them are ahead of the clock, and `KafkaIOError`.
    """
    lasts = log.last_times({p: end for p, (_, end) in ranges.items()}, LATEST_MS, block_size(log.outliers))
    inside = {p: [at for offset, at in lasts[p] if offset >= start] for p, (start, _) in ranges.items()}
    check_clock(inside, log.outliers, ceiling_ms, clock_ms)


def check_clock(lasts: Mapping[int, Sequence[int]], outliers: int, ceiling_ms: int, clock_ms: int) -> None:
    """Raises `ClockBehind` if in some partition more than `outliers` of the last records are from the future.

    lasts   by partition, the times of the last block of records to be read, valid or not
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
