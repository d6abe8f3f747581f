"""The watermark of a partition, and that of a topic. Pure.

    watermark of a partition   a time T: every record still unread in it has event time >= T
    watermark of a topic       the minimum over its partitions; it never goes back

Three facts about a partition give its watermark, and the largest of them counts (1: `unread_watermark`, 2 and 3:
`partition_watermark`):

1. *The first record still unread, or one already read, has time >= H.* No later record is more than the disorder D
   below a time seen before it: the watermark is H - D.
2. *The newest record read has time M.* Likewise M - D.
3. *Caught up:* position = last stable offset = high watermark when the ends were listed. Whatever arrives later was
   unreadable at that moment, and a record is readable at most the producer delay after its event time: the watermark
   is listed - delay. This keeps an idle partition from stalling a join. It needs a clock that the event times
   follow: `Idle.HOLD` switches it off, for topics replayed with old times. An open transaction (last stable offset
   below the high watermark) also switches it off while it lasts, because it hides records of unknown time.

The time of a single record may be wrong: late, or ahead of its neighbours. So H and M are typical times of *blocks*
(`teacup.kafka.records.record`), of which at most a minority are wrong; more than that is known of an unread block
(`unread_watermark`). Near the log's start a block is shorter. Then a time counts only if more records have reached it
than can be wrong (`teacup.kafka.records.record.proven`).

The minimum over inputs that are not idle, and "it never goes back", are taken from Flink's `CombinedWatermarkStatus`.
The idle rule replaces its idleness time-out, which would also fire if it was the reader that did not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from teacup.base.times import EARLIEST_MS
from teacup.kafka.log.time_search import block_size
from teacup.kafka.records.record import proven, typical

UNKNOWN = EARLIEST_MS
"""The watermark of a partition about which nothing is known: no record is below it."""


def known_ms(time_ms: int | None) -> int | None:
    """Returns a watermark, or a time near one; None if it is not known: `UNKNOWN`, perhaps shifted by an interval."""
    return None if time_ms is None or time_ms <= UNKNOWN // 2 else time_ms


class Idle(StrEnum):
    """What to conclude from a partition that has been read to its end."""

    ADVANCE = "advance"
    HOLD = "hold"


def partition_watermark(
    *,
    disorder_ms: int,
    newest_ms: int | None = None,
    caught_up_listed_ms: int | None = None,
    producer_delay_ms: int,
    idle: Idle = Idle.ADVANCE,
) -> int:
    """Returns the watermark of one partition in event-time milliseconds; `UNKNOWN` without any fact.

    newest_ms            the time of the newest record known to be read
    caught_up_listed_ms  the wall clock just before the ends were listed, if the partition is caught up with them
    """
    facts = [UNKNOWN]
    if newest_ms is not None:
        facts.append(newest_ms - disorder_ms)
    if caught_up_listed_ms is not None and idle is Idle.ADVANCE:
        facts.append(caught_up_listed_ms - producer_delay_ms)
    return max(facts)


def unread_watermark(
    *,
    read_ms: Sequence[int],
    unread_ms: Sequence[int],
    outliers: int,
    disorder_ms: int,
    settled_listed_ms: int | None,
    producer_delay_ms: int,
    idle: Idle = Idle.ADVANCE,
) -> int:
    """Returns the watermark of a partition with unread records; D is the disorder.

        floor    what the read records prove, less D: no timely unread record is below it
        among    the smallest time of the unread block that is not below the floor: those below it are late
        behind   no timely record behind the unread block is below it: the block's typical time, less D. A shorter
                 block holds all unread records, and a single record may be most of it. Then:
                     at most listed - producer delay, if no transaction is open
                     otherwise, or with `idle: hold`, what the last block of all records proves instead
        watermark = max(floor, min(among, behind))

    So a late record at the position does not send the watermark back, and a record ahead of its neighbours
    does not advance it, even if it is the only unread one.

    read_ms            times of the last block of valid records that were read; fewer at the log's start
    unread_ms          times of the first block of valid unread records; fewer: there are no more
    outliers           how many records of a block, or of a shorter one, may have a wrong time
    settled_listed_ms  the wall clock just before the ends were listed, if no open transaction hid records
    """
    block = block_size(outliers)
    floor = proven_watermark(read_ms, outliers, disorder_ms)
    behind = typical(unread_ms) - disorder_ms
    if len(unread_ms) < block:
        if settled_listed_ms is not None and idle is Idle.ADVANCE:
            behind = min(behind, settled_listed_ms - producer_delay_ms)
        else:
            behind = proven_watermark([*read_ms, *unread_ms][-block:], outliers, disorder_ms)
    return max(floor, min([behind, *(at for at in unread_ms if at >= floor)]))


def proven_watermark(times_ms: Sequence[int], outliers: int, disorder_ms: int) -> int:
    """Returns what consecutive records, at most a block, prove of all that follow; `UNKNOWN` if all may be wrong."""
    reached_ms = proven(times_ms, outliers)
    return UNKNOWN if reached_ms is None else reached_ms - disorder_ms


def watermark(watermark_ms: Iterable[int], before_ms: int = UNKNOWN) -> int:
    """Returns the minimum over the partitions, but never less than the already known watermark `before_ms`."""
    return max(min(watermark_ms, default=UNKNOWN), before_ms)
