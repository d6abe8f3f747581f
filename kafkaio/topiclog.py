"""What a reader that plans its own ranges must know of a topic: the Protocol that admission and collectors use.

`kafkaio.brokerlog.BrokerLog` answers from a real broker, `joins.testing.log.SimulatedLog` from memory. Offsets are
the next offset to read, times are event times in int64 milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ends:
    """The readable span of one partition: `start` <= `stable` <= `high`.

    start   the first offset that retention has left
    stable  the last stable offset: where a `read_committed` reader stops
    high    the high watermark; records in [stable, high) belong to open transactions
    epoch   the leader epoch, None where the broker tells none
    """

    start: int
    stable: int
    high: int
    epoch: int | None = None

    @property
    def settled(self) -> bool:
        """No open transaction hides records behind the last stable offset."""
        return self.stable == self.high


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """Look in [lo, hi) of one partition for the first readable record with event time >= `time_ms`.

    `margin_ms` is taken off `time_ms` where the answer has to come from a search over single, unsorted records
    (times in the payload, an index poisoned by a future record or a transaction marker).
    """

    time_ms: int
    lo: int
    hi: int
    margin_ms: int = 0


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """Where a time begins in one partition.

    offset   in [lo, hi]; every record in [lo, offset) has a time below the query's `time_ms`, provided that the
             partition's disorder is at most the query's margin (an exact answer needs no such proviso)
    time_ms  the time that was looked for in the end: the query's, or the query's less its margin
    reached  some readable record below `hi` (perhaps below `lo`) has a time >= `time_ms`; the first unread one from
             `offset` on is either it, or lies behind it. False: none was found, and `offset` is `hi`
    """

    offset: int
    time_ms: int
    reached: bool


class TopicLog(Protocol):
    """One topic, as seen by a planner. Every call may raise `kafkaio.errors.KafkaUnavailable`."""

    @property
    def topic(self) -> str: ...

    def topic_id(self) -> str:
        """The id that a topic keeps until it is deleted; a topic made again under its name has another."""

    def partition_count(self) -> int: ...

    def ends(self) -> dict[int, Ends]:
        """The ends of every partition. Take the clock *before* the call: that is the time they were listed."""

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """Per partition roughly where a time begins: one cheap, unchecked look-up (the index may be poisoned).

        The answer is the high watermark or above where no record reaches the time.
        """

    def first_at_or_after(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        """Per partition where a time begins, checked against the record found there.

        Records with times above `ceiling_ms` (from the future) and control records never answer.
        """

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        """Per partition the event time of some readable record below the given end, the largest that is cheaply known.

        At most the disorder below the largest time below `end` (the largest itself, or the last record's), never above
        `ceiling_ms`; None where no record is readable.
        """

    def times_at(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int) -> dict[int, int | None]:
        """Per partition the event time of the first readable record in [position, end); None where there is none.

        Records from the future (above `ceiling_ms`) and those without a time are stepped over.
        """
