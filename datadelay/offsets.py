"""Which offset a time has in each partition, and whether that can be trusted. Over any `TopicLog`.

    record         the first readable record with time >= T stands there, or a little behind it
    log start      the same, at the first record that retention has left: earlier ones may be gone
    past the end   no record reaches T: the last stable offset, so that reading begins with what arrives next
    no time        there are offsets, but no record among them has a time: the last stable offset as well
    empty          the partition holds nothing: its end as well

A record from further in the future than `max_future_skew` counts as none, as in the joins. `no time` may be harmless
(all is aborted or compacted away), or a wrong path to the time: who sets a consumer by it would skip all that is there.

Kafka's time index answers exactly. Where times are in the payload, or the index is misled (by a record from the
future, a transaction's marker), single records are searched: with a disorder of at most D every record before the
answer has time < T, and a few from T - D on may be read again. A larger disorder than was said shows in no look at
single records. Either way the neighbours are read: the record at the answer must have reached T (T - D), none known
before it may. An answer that they contradict (the log changed meanwhile, the index is broken) is not `verified`, and
nothing is to be set by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kafkaio.topiclog import Ends, TopicLog
from kafkaio.topiclog import TimeQuery as Query


class Found(StrEnum):
    """What stands at an offset that was found for a time."""

    RECORD = "record"
    LOG_START = "log start"
    PAST_END = "past the end"
    NO_TIME = "no time"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """Where a time begins in one partition.

    before_ms  the largest time that is cheaply known of the records before the offset, None where there is none
    at_ms      the time of the first record from the offset on, None where there is none
    """

    partition: int
    offset: int
    found: Found
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
    """The offset of `time_ms` in each partition, in their order. Raises `kafkaio.errors.KafkaIOError`."""
    count = log.partition_count()
    progress(f"{log.topic}: listing the ends of {count} partitions")
    ends = log.ends()
    ceiling_ms = now_ms + max_future_skew_ms
    progress(f"{log.topic}: looking the time up")
    answers = log.first_at_or_after(
        {p: Query(time_ms, e.start, e.stable, disorder_ms) for p, e in ends.items()}, ceiling_ms
    )
    offsets = {p: answer.offset for p, answer in answers.items()}
    progress(f"{log.topic}: reading the neighbours of {len(offsets)} offsets")
    at = log.times_at({p: (offset, ends[p].stable) for p, offset in offsets.items()}, ceiling_ms)
    before = log.newest(offsets, ceiling_ms)
    return tuple(
        OffsetAt(
            partition=p,
            offset=offset,
            found=_found(answers[p].reached, ends[p], at[p], before[p]),
            before_ms=before[p],
            at_ms=at[p],
            ends=ends[p],
            verified=_verified(time_ms, answers[p].time_ms, answers[p].reached, at[p], before[p]),
        )
        for p, offset in sorted(offsets.items())
    )


def _found(reached: bool, ends: Ends, at_ms: int | None, before_ms: int | None) -> Found:
    if not reached:
        if before_ms is not None or at_ms is not None:
            return Found.PAST_END
        return Found.NO_TIME if ends.start < ends.stable else Found.EMPTY
    return Found.LOG_START if before_ms is None and ends.start > 0 else Found.RECORD


def _verified(time_ms: int, sought_ms: int, reached: bool, at_ms: int | None, before_ms: int | None) -> bool:
    if before_ms is not None and before_ms >= time_ms:
        return False
    return at_ms is not None and at_ms >= sought_ms if reached else at_ms is None
