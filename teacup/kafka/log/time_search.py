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
answer is the first one there that is not below `sought`: everything before it is known, or proven by the blocks.

The search is a generator: it yields a `BlockQuery`, is sent the records found, and returns its answer. So a real broker
and a simulated log run the same code. `run_in_rounds` runs many such generators: one call answers what all of them ask
in a round, whatever they ask.

The search relies on the configured disorder. Records may be further out of order, for instance because a
producer without idempotence retried. Then records of the time or later may lie before the answer, and a reader that
starts there never reads them. `look_back` looks for them. Reading the whole log would find all of them; looking at a
block at each of the distances 1, 2, 4, 8, ... blocks before the answer finds every run of displaced records that is at
least as long as its distance. For a partition of a thousand million records that takes about 25 blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from teacup.base.times import iso
from teacup.kafka.log.topic_log import TimeAnswer, TimeQuery, TopicLog
from teacup.kafka.records.record import typical

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
    found_block: Sequence[Timed] = ()  # the block from `high` on
    while low < high:
        middle = (low + high) // 2
        block = yield BlockQuery(middle, query.hi, size)
        if len(block) < size:
            found_block = yield BlockQuery(None, query.hi, size)
            begins = found_block[0][0] if found_block else query.hi
            behind = _proven(found_block, sought_ms, outliers) if len(found_block) == size else None
            if behind is not None or begins <= low or len(found_block) < size:
                low = low if behind is None else max(low, behind)
                break
            high = begins
        elif (behind := _proven(block, sought_ms, outliers)) is not None:
            low = behind
        else:
            high, found_block = middle, block
    rest = (offset for offset, at in found_block if offset >= low and at >= sought_ms)
    answer = next(rest, None)
    return TimeAnswer(query.hi if answer is None else answer, sought_ms, answer is not None)


def _proven(block: Sequence[Timed], sought_ms: int, outliers: int) -> int | None:
    """Returns the offset below which a full block proves all timely records to be before the query's time, if any."""
    below = [offset for offset, at in block if at < sought_ms]
    return below[-outliers - 1] + 1 if len(below) > outliers else None


@dataclass(frozen=True, slots=True)
class TimeFound:
    """Where a time was found in one partition: `offset`, in a log that begins at `low`."""

    offset: int
    low: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class LookedBack:
    """Records before an offset that have reached its time.

    seen          how many records were looked at
    reached       how many of them have reached the time; at least one
    first         the smallest offset of these
    newest_ms     the largest of their times
    whole_block   whether most records of a block have reached it: more than may be wrong
    """

    partition: int
    answer: TimeFound
    seen: int
    reached: int
    first: int
    newest_ms: int
    whole_block: bool

    def text(self, topic: str) -> str:
        """Returns it for people, without what follows from it."""
        at = self.answer
        return (
            f"{self.reached} of {self.seen} records that were looked at before offset {at.offset} of {topic}-"
            f"{self.partition} have times from {iso(at.time_ms)} on, up to {iso(self.newest_ms)}, the first at offset "
            f"{self.first}"
        )


def look_back(log: TopicLog, answers: Mapping[int, TimeFound], ceiling_ms: int) -> dict[int, LookedBack]:
    """Returns the partitions where some of the records looked at have reached the time. Raises `KafkaUnavailable`."""
    size = block_size(log.outliers)
    blocks: dict[int, list[list[Timed]]] = {p: [] for p in answers}
    ends, distance = {p: at.offset for p, at in answers.items()}, size
    while spans := {
        p: (max(answers[p].offset - distance, answers[p].low), end) for p, end in ends.items() if end > answers[p].low
    }:
        for p, block in log.valid_times(spans, ceiling_ms, size).items():
            blocks[p].append(block)
        ends, distance = {p: start for p, (start, _) in spans.items()}, distance * 2
    seen = {p: _of(p, answers[p], some) for p, some in blocks.items()}
    return {p: looked_back for p, looked_back in seen.items() if looked_back is not None}


def left_behind(
    log: TopicLog, starts: Mapping[int, int], queries: Mapping[int, TimeQuery], ceiling_ms: int
) -> list[str]:
    """Looks back from starts that were found by queries; returns the results as texts. Raises `KafkaUnavailable`."""
    answers = {p: TimeFound(starts[p], query.lo, query.time_ms) for p, query in queries.items()}
    return [reached.text(log.topic) for _, reached in sorted(look_back(log, answers, ceiling_ms).items())]


def _of(partition: int, answer: TimeFound, blocks: list[list[Timed]]) -> LookedBack | None:
    reached = [(offset, at) for block in blocks for offset, at in block if at >= answer.time_ms]
    if not reached:
        return None
    return LookedBack(
        partition=partition,
        answer=answer,
        seen=sum(map(len, blocks)),
        reached=len(reached),
        first=min(offset for offset, _ in reached),
        newest_ms=max(at for _, at in reached),
        whole_block=any(block and typical([at for _, at in block]) >= answer.time_ms for block in blocks),
    )


K = TypeVar("K")
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
T = TypeVar("T")


def run_in_rounds(
    generators: Mapping[K, Generator[Asked, Answer, T]],
    answers_to: Callable[[Mapping[K, Asked]], Mapping[K, Answer]],
) -> dict[K, T]:
    """Returns what each generator returns.

    answers_to   answers the questions of one round, by the keys of the generators that ask them
    """
    results: dict[K, T] = {}
    asked: dict[K, Asked] = {}

    def advance(key: K, step: Callable[[], Asked]) -> None:
        try:
            asked[key] = step()
        except StopIteration as end:
            results[key] = end.value

    for key, generator in generators.items():
        advance(key, generator.__next__)
    while asked:
        answers = answers_to(asked)
        asked = {}
        for key, answer in answers.items():
            advance(key, partial(generators[key].send, answer))
    return results
