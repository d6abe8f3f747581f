"""Which offset a time has in each partition, and whether that can be trusted. Works on any `TopicLog`.

    record         the first readable record with time >= T is there, or a little later
    log start      the same, at the first record that retention has kept: earlier ones may be gone
    past the end   no record reaches T: the last stable offset, so that reading begins with what arrives next
    no time        there are offsets, but no record has a time: the last stable offset as well
    empty          the partition holds nothing: its end

A record further in the future than `max_future_skew` does not count, as in the joins. `no time` may be harmless (all is
aborted or compacted away), or the path to the time may be wrong: setting a consumer by it would skip all its records.

Kafka's time index answers exactly. If times are in the payload, or the index is misled (by a record from the future or
ahead of its neighbours, or by a transaction marker), blocks of records are searched. With a disorder of at most D,
every record before the answer has time < T, except those with wrong times (`kafkaio.blocksearch`); a few from T - D on
may be read again. In both cases the neighbours are read: most of the last block before the answer must be below T, and
some record of the block at the answer must have reached T (T - D). An answer that they contradict (the log changed
meanwhile, the index is broken) is not `verified`, and nothing may be set by it. Nor is one before which some block
further back has reached T (`kafkaio.lookback`): the disorder is larger than stated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafkaio.blocksearch import Timed, block_size
from kafkaio.eventtime import typical
from kafkaio.lookback import TimeFound, look_back
from kafkaio.topiclog import Ends, TimeAnswer, TopicLog
from kafkaio.topiclog import TimeQuery as Query


class OffsetKind(StrEnum):
    """What is at an offset that was found for a time."""

    RECORD = "record"
    LOG_START = "log start"
    PAST_END = "past the end"
    NO_TIME = "no time"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """Where a time begins in one partition.

    before_ms  the time of the last valid record before the offset; None if there is none
    at_ms      the time of the first valid record from the offset on; None if there is none
    """

    partition: int
    offset: int
    found: OffsetKind
    before_ms: int | None
    at_ms: int | None
    ends: Ends
    verified: bool


def offsets_at(
    log: TopicLog,
    time_ms: int,
    *,
    now_ms: int,
    disorder_ms: int = 1_000,
    max_future_skew_ms: int = 60_000,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[OffsetAt, ...]:
    """Returns the offset of `time_ms` in each partition, in their order. Raises `kafkaio.errors.KafkaIOError`."""
    count = log.partition_count()
    progress(f"{log.topic}: listing the ends of {count} partitions")
    ends = log.ends()
    ceiling_ms = now_ms + max_future_skew_ms
    progress(f"{log.topic}: looking up the time")
    answers = log.first_at_or_after(
        {p: Query(time_ms, e.start, e.stable, disorder_ms) for p, e in ends.items()}, ceiling_ms
    )
    offsets = {p: answer.offset for p, answer in answers.items()}
    progress(f"{log.topic}: reading the neighbours of {len(offsets)} offsets")
    size = block_size(log.outliers)
    at = log.valid_times({p: (offset, ends[p].stable) for p, offset in offsets.items()}, ceiling_ms, size)
    before = log.last_times(offsets, ceiling_ms, size)
    queried = {p: TimeFound(offset, ends[p].start, time_ms) for p, offset in offsets.items()}
    behind = {p for p, seen in look_back(log, queried, ceiling_ms).items() if seen.whole_block}
    at_ms = {p: block[0][1] if block else None for p, block in at.items()}
    before_ms = {p: block[-1][1] if block else None for p, block in before.items()}
    return tuple(
        OffsetAt(
            partition=p,
            offset=offset,
            found=_found(answers[p].reached, ends[p], at_ms[p], before_ms[p]),
            before_ms=before_ms[p],
            at_ms=at_ms[p],
            ends=ends[p],
            verified=p not in behind and _verified(time_ms, answers[p], _times(before[p]), _times(at[p])),
        )
        for p, offset in sorted(offsets.items())
    )


def _found(reached: bool, ends: Ends, at_ms: int | None, before_ms: int | None) -> OffsetKind:
    if not reached:
        if before_ms is not None or at_ms is not None:
            return OffsetKind.PAST_END
        return OffsetKind.NO_TIME if ends.start < ends.stable else OffsetKind.EMPTY
    return OffsetKind.LOG_START if before_ms is None and ends.start > 0 else OffsetKind.RECORD


def _verified(time_ms: int, answer: TimeAnswer, before_ms: Sequence[int], at_ms: Sequence[int]) -> bool:
    if before_ms and typical(before_ms) >= time_ms:
        return False
    return any(at >= answer.time_ms for at in at_ms) if answer.reached else not at_ms


def _times(block: Sequence[Timed]) -> list[int]:
    return [at for _, at in block]
