"""Where a time begins among records that are not sorted by it, and of which some lie: a bisection over blocks. Pure.

A record lies where its time is late (more than the disorder below an earlier one that does not lie) or ahead of its
neighbours. A block is 2m + 1 consecutive valid records, and at most m of a block lie. `sought` is the query's time less
its margin, and the margin is at least the disorder. Of a block that is read from the middle on,

    m + 1 or more are below `sought`   one of the last m + 1 of these does not lie: every timely record before it is at
                                       most the disorder above it, and so below the query's time. `low` moves behind
                                       the first of the last m + 1
    otherwise                          m + 1 or more are not below `sought`, and one of them does not lie: the time is
                                       reached. `high` moves to the middle

so that no single record decides. Near the end a block from the middle on would be shorter. There the *last* block below
`hi` is taken instead, records before `lo` included. Only the start of the log makes that one shorter: it proves nothing
then, as all of it may lie. What remains between `low` and the end of the last block that was read is known record by
record, and the answer is the first one there that is not below `sought`: before it stand facts, and what the blocks
prove.

The search is a generator that yields a `Probe` and is sent the records that were found, so that a real broker and a
simulated log run the same code, and the searches of all partitions advance in lockstep.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from kafkaio.eventtime import typical
from kafkaio.topiclog import TimeAnswer, TimeQuery

Timed = tuple[int, int]
"""Offset and event time of a valid record."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The first `count` valid records of [start, end); the last `count` below `end` where `start` is None."""

    start: int | None
    end: int
    count: int


Searching = Generator[Probe, Sequence[Timed], TimeAnswer]


def block_size(outliers: int) -> int:
    """Of so many consecutive valid records at most `outliers` may lie."""
    return 2 * outliers + 1


def borne_out(block: Sequence[Timed], time_ms: int) -> int | None:
    """Where the time begins in the block at an answer of the index; None where one record alone has reached it."""
    if not block or typical([at for _, at in block]) < time_ms:
        return None
    return next(offset for offset, at in block if at >= time_ms)


def search(query: TimeQuery, outliers: int) -> Searching:
    """Where the query's time begins in [lo, hi); `lo` is not below the start of the log."""
    size, sought_ms = block_size(outliers), query.time_ms - query.margin_ms
    low, high = query.lo, query.hi
    known: Sequence[Timed] = ()  # the block from `high` on
    while low < high:
        middle = (low + high) // 2
        block = yield Probe(middle, query.hi, size)
        if len(block) < size:
            known = yield Probe(None, query.hi, size)
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
    """The offset before which a full block proves every timely record to be below the query's time, if it does."""
    below = [offset for offset, at in block if at < sought_ms]
    return below[-outliers - 1] + 1 if len(below) > outliers else None
