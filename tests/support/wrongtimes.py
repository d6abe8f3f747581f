"""Partitions in which some records have wrong times, for tests of what these must not affect."""

from __future__ import annotations

import random
from dataclasses import dataclass

from joins.testing.history import Event, TopicHistory
from joins.testing.log import Clock, SimulatedLog

BASE_MS = 1_700_000_000_000
CEILING_MS = BASE_MS + 10_000
FUTURE_MS = CEILING_MS + 5_000
DISORDER_MS = 20


@dataclass(frozen=True)
class DrawnTimes:
    """One partition: the time of each offset, when it is appended, and the offsets of the timely records."""

    times_ms: tuple[int, ...]
    appended_ms: tuple[int, ...]
    timely: frozenset[int]

    def valid(self, start: int, end: int) -> list[tuple[int, int]]:
        inside = list(enumerate(self.times_ms))[start:end]
        return [(offset, at) for offset, at in inside if 0 <= at <= CEILING_MS]


def drawn_times(chance: random.Random, length: int, outliers: int, *, from_the_start: bool = False) -> DrawnTimes:
    """At most `outliers` of 2 * outliers + 1 consecutive valid records are wrong, and fewer than half at the log's
    start.

    from_the_start   as many may be wrong there too, perhaps all that there are

    This also holds while some records that are ahead do not count yet: the rule is kept over 3 * outliers + 1 records.
    """
    times: list[int] = []
    appended: list[int] = []
    timely: set[int] = set()
    wrong: list[bool] = []  # of the valid records
    now_ms = BASE_MS
    for _ in range(length):
        now_ms += chance.randrange(15)
        appended.append(now_ms)
        if chance.random() < 0.1:
            times.append(chance.choice((-1, FUTURE_MS)))
            continue
        window = wrong[max(len(wrong) - 3 * outliers, 0) :] if outliers else []
        may = sum(window) < outliers and (from_the_start or sum(wrong) + 1 <= len(wrong) // 2)
        if may and chance.random() < 0.4:
            wrong_ms = chance.choice((0, now_ms - 300, now_ms + 60, now_ms + 2_000, CEILING_MS))
            times.append(wrong_ms)
            wrong.append(True)
            continue
        timely.add(len(times))
        times.append(now_ms - chance.randrange(DISORDER_MS + 1))
        wrong.append(False)
    return DrawnTimes(tuple(times), tuple(appended), frozenset(timely))


def simulated(partitions: list[DrawnTimes], outliers: int, *, payload: bool, now_ms: int = CEILING_MS) -> SimulatedLog:
    """The log as of `now_ms`; by default with all records."""
    events = tuple(
        tuple(
            Event(partition=p, offset=i, time_ms=at, key=None, value=None, appended_ms=when, readable_ms=when)
            for i, (at, when) in enumerate(zip(drawn.times_ms, drawn.appended_ms, strict=True))
        )
        for p, drawn in enumerate(partitions)
    )
    return SimulatedLog(TopicHistory("t", events), Clock(now_ms), exact_index=not payload, outliers=outliers)
