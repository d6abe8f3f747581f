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
    """Look in [lo, hi) of one partition for the place where the time `time_ms` begins.

    `margin_ms` is taken off `time_ms` where the answer has to come from a search over blocks of unsorted records
    (times in the payload, an index that a record ahead of its neighbours or a transaction marker has poisoned).
    """

    time_ms: int
    lo: int
    hi: int
    margin_ms: int = 0


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """Where a time begins in one partition.

    A *timely* record is at most the partition's disorder below every earlier record that is itself timely; any other
    one lies, and at most `outliers` of a block of 2 * outliers + 1 consecutive valid records may
    (`kafkaio.blocksearch`).

    offset   in [lo, hi]; every timely record in [lo, offset) has a time below the query's `time_ms`, provided that the
             partition's disorder is at most the query's margin (an answer of the index needs no such proviso)
    time_ms  the time that was looked for in the end: the query's, or the query's less its margin
    reached  a readable record in [offset, hi) has a time >= `time_ms`. False: none was found, and `offset` is `hi`.
             It is a hint: among the last records below `hi` a single one, which may lie, is enough
    """

    offset: int
    time_ms: int
    reached: bool


class TopicLog(Protocol):
    """One topic, as seen by a planner. Every call may raise `kafkaio.errors.KafkaUnavailable`."""

    @property
    def topic(self) -> str: ...

    @property
    def outliers(self) -> int:
        """How many of 2 * outliers + 1 consecutive valid records may lie."""

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
        """Per partition where a time begins: a hint for what to read, that no single record can move.

        The index's answer counts where it says that no record reaches the time, and where it lies in [lo, hi) and the
        block of valid records that starts there bears it out (`blocksearch.borne_out`). Otherwise blocks are
        searched.
        """

    def valid_times(
        self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int, count: int
    ) -> dict[int, list[tuple[int, int]]]:
        """Per partition offset and event time of the first `count` valid records in [start, end), in offset order.

        Records without a valid time (`kafkaio.eventtime`), control records and aborted ones are stepped over.
        """

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[tuple[int, int]]]:
        """Per partition offset and event time of the last `count` valid records below the end, in offset order.

        Fewer only where the log holds no more.
        """

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        """Per partition the typical time of the last block of valid records below the given end; None without one.

        What was readable below `end` proves it: every timely record from `end` on is at most the disorder below it.
        """
