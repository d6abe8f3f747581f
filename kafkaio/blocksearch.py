"""Finds where a time begins among records that are not sorted by time, some of them wrong: bisection by blocks. Pure.

A time is wrong if it is late (more than the disorder below an earlier correct one) or ahead of its neighbours. A block
is 2m + 1 consecutive valid records, of which at most m are wrong. `sought` is the query's time less its margin, and the
margin is at least the disorder. For a block that is read from the middle on:

    m + 1 or more are below `sought`   one of the last m + 1 of these is correct: every timely record before it is at
                                       most the disorder above it, and so below the query's time. `low` moves behind
                                       the first of the last m + 1
    otherwise                          m + 1 or more are not below `sought`, and one of them is correct: the time has
                                       been reached. `high` moves to the middle

So no single record decides. Near the end a block from the middle on would be too short. The *last* block below `hi` is
read instead, including records before `lo`. Only the start of the log can make that block short; then it proves
nothing, because all of it may be wrong. Every record between `low` and the end of the last block read is known. The
answer is the first one there that is not below `sought`: all that precedes it is known, or proven by the blocks.

The search is a generator: it yields a `BlockQuery` and is sent the records found. So a real broker and a simulated log
run the same code, and the searches of all partitions advance in lockstep.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from kafkaio.eventtime import typical
from kafkaio.topiclog import TimeAnswer, TimeQuery

Timed = tuple[int, int]
"""Offset and event time of a valid record."""


@dataclass(frozen=True, slots=True)
class BlockQuery:
    """The first `count` valid records of [start, end), or the last `count` below `end` if `start` is None."""

    start: int | None
    end: int
    count: int


Searching = Generator[BlockQuery, Sequence[Timed], TimeAnswer]


def block_size(outliers: int) -> int:
    """Returns the size of a block: of this many consecutive valid records at most `outliers` may be wrong."""
    return 2 * outliers + 1


def borne_out(block: Sequence[Timed], time_ms: int) -> int | None:
    """Returns where the time begins in the block at the index's answer; None if at most half its records reach it."""
    if not block or typical([at for _, at in block]) < time_ms:
        return None
    return next(offset for offset, at in block if at >= time_ms)


def search(query: TimeQuery, outliers: int) -> Searching:
    """Finds where the query's time begins in [lo, hi); `lo` is not below the start of the log."""
    size, sought_ms = block_size(outliers), query.time_ms - query.margin_ms
    low, high = query.lo, query.hi
    known: Sequence[Timed] = ()  # the block from `high` on
    while low < high:
        middle = (low + high) // 2
        block = yield BlockQuery(middle, query.hi, size)
        if len(block) < size:
            known = yield BlockQuery(None, query.hi, size)
            begins = known[0][0] if known else query.hi
            behind = _proven(known, sought_ms, outliers) if len(known) == size else None
            if behind is not None or begins <= low or len(known) < size:
                low = low if behind is None else max(low, behind)
                break
            high = begins
        elif (behind := _proven(block, sought_ms, outliers)) is not None:
            low = behind
        else:
            high, known = middle, block
    rest = (offset for offset, at in known if offset >= low and at >= sought_ms)
    answer = next(rest, None)
    return TimeAnswer(query.hi if answer is None else answer, sought_ms, answer is not None)


def _proven(block: Sequence[Timed], sought_ms: int, outliers: int) -> int | None:
    """Returns the offset below which a full block proves all timely records to be before the query's time, if any."""
    below = [offset for offset, at in block if at < sought_ms]
    return below[-outliers - 1] + 1 if len(below) > outliers else None
