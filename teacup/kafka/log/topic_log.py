"""What a reader that plans its own ranges must know of a topic: the Protocol for planners and collectors. Pure.

`teacup.kafka.log.broker_log.BrokerLog` answers from a real broker, `joins.testing.log.SimulatedLog` from memory.
Offsets are the next offset to read; times are event times in int64 milliseconds UTC.

How far a batch reads is limited by what fits (`fair_shares`). A run under `available_now` reads up to the ends that its
first look found (`ListedEnds`); otherwise it might never end, as records keep coming. A partition that was not listed
then is read by the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from teacup.base.times import LATEST_MS


@dataclass(frozen=True, slots=True)
class Ends:
    """The readable span of one partition: `start` <= `stable` <= `high`.

    start   the first offset that retention has kept
    stable  the last stable offset: where a `read_committed` reader stops
    high    the high watermark just before, or `stable` if that is above; records in [stable, high) belong to open
            transactions
    epoch   the leader epoch: a number that rises with each change of the partition's leader; None if the broker does
            not report it
    """

    start: int
    stable: int
    high: int
    epoch: int | None = None

    @property
    def settled(self) -> bool:
        """Returns whether no open transaction hides records behind the last stable offset."""
        return self.stable == self.high


@dataclass(frozen=True, slots=True)
class LeaderPosition:
    """An offset up to which a partition was listed.

    epoch   the leader epoch of that listing
    now     the leader epoch of the present listing
    """

    offset: int
    epoch: int
    now: int


@dataclass(frozen=True, slots=True)
class TimeQuery:
    """A question: where the time `time_ms` begins in [lo, hi) of one partition.

    `margin_ms` is subtracted from `time_ms` if the answer has to come from a block search over unsorted records (times
    in the payload, or an index misled by a record ahead of its neighbours or by a transaction marker).
    """

    time_ms: int
    lo: int
    hi: int
    margin_ms: int = 0


@dataclass(frozen=True, slots=True)
class TimeAnswer:
    """Where a time begins in one partition.

    A *timely* record is at most the partition's disorder below every earlier timely record. Any other record's time is
    wrong. At most `outliers` of a block of 2 * outliers + 1 consecutive valid records may be wrong
    (`teacup.kafka.log.time_search`).

    offset   in [lo, hi]; every timely record in [lo, offset) has a time below the query's `time_ms`, provided that the
             partition's disorder is at most the query's margin (an answer of the index needs no such proviso)
    time_ms  the time that was finally searched for: the query's, or the query's less its margin
    reached  whether a readable record in [offset, hi) has a time >= `time_ms`. If False, none was found and `offset` is
             `hi`. An estimate: a single record among the last below `hi`, which may be wrong, is enough
    """

    offset: int
    time_ms: int
    reached: bool


class TopicLog(Protocol):
    """A topic, as a planner sees it. Every call may raise `teacup.kafka.errors.KafkaUnavailable`."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def outliers(self) -> int:
        """How many of 2 * outliers + 1 consecutive valid records may be wrong."""

    def topic_id(self) -> str:
        """Returns the id that a topic keeps until it is deleted; a topic recreated under the same name has another."""

    def partition_count(self) -> int:
        """Returns how many partitions the topic has."""
        ...

    def ends(self) -> dict[int, Ends]:
        """Lists the ends of every partition. Read the clock *before* the call: that is the time they were listed."""

    def ends_with(self, other: Self) -> tuple[Mapping[int, Ends], Mapping[int, Ends]]:
        """Lists the ends of this topic and of another one."""

    def truncated(self, positions: Mapping[int, LeaderPosition]) -> set[int]:
        """Returns the partitions whose log another leader has cut off, so that it differs below these positions.

        Positions must lie above the first offset, and at most at the high watermark.
        """

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """Estimates where a time begins in each partition: one cheap, unchecked look-up (the index may be misled).

        If no record reaches the time, the answer is the high watermark or above.
        """

    def first_at_or_after(
        self, queries: Mapping[int, TimeQuery], ceiling_ms: int, *, sure: bool = False
    ) -> dict[int, TimeAnswer]:
        """Finds where a time begins in each partition: an estimate of what to read, which no single record can move.

        The index's answer counts if it says that no record reaches the time, or if it lies in [lo, hi) and the block of
        valid records that starts there confirms it (`teacup.kafka.log.time_search`). Otherwise blocks are searched.

        sure   for a caller that needs more than an estimate, such as a reader that begins there: the index is not
               believed when it says that no record reaches the time. A broker may say so for minutes after
               `DeleteRecords`, of a time before the remaining records
        """

    def valid_times(
        self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int, count: int
    ) -> dict[int, list[tuple[int, int]]]:
        """Reads offset and event time of the first `count` valid records in [start, end) of each partition.

        They are in offset order. Records without a valid time (`teacup.kafka.records.record`), control records and
        aborted records are skipped.
        """

    def readable(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, bool]:
        """Returns for each partition whether [start, end) holds a readable record, with a time or without."""

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[tuple[int, int]]]:
        """Reads offset and event time of the last `count` valid records below the end in each partition.

        They are in offset order, and fewer only if the log holds no more.
        """

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        """Returns for each partition the typical time of the last block of valid records below the end; None if none.

        What was readable below `end` proves it: every timely record from `end` on is at most the disorder below it.
        """


def begins_of(log: TopicLog, ends: Mapping[int, Ends], time_ms: int) -> dict[int, int]:
    """Returns where a reader of everything from a time on begins, by the index and within the log.

    For minutes after `DeleteRecords` a broker may still have the deleted records in its index, and then says that no
    record reaches a time before the remaining ones. So this is believed only if the last record does not reach it.
    """
    begins = log.estimate(dict.fromkeys(ends, max(time_ms, 0)))
    doubtful = {p: end.stable for p, end in ends.items() if begins[p] >= end.stable > end.start > 0}
    last = log.last_times(doubtful, LATEST_MS, 1) if doubtful else {}
    misled = {p for p, times in last.items() if times and times[-1][1] >= time_ms}
    return {p: end.start if p in misled else min(max(begins[p], end.start), end.stable) for p, end in ends.items()}


def fair_shares(waiting: Mapping[int, int], limit: int) -> dict[int, int]:
    """Returns max-min fair shares of `limit` records: none gets more than it has waiting while another one gets less.

    Together they are at most `limit`. If anything waits and the limit is 1 or more, somebody gets something.
    """
    shares: dict[int, int] = {}
    rest = limit
    for rank, number in enumerate(sorted(waiting, key=lambda number: (waiting[number], number))):
        shares[number] = min(waiting[number], rest // (len(waiting) - rank))
        rest -= shares[number]
    return shares


class ListedEnds:
    """The ends of one topic at the first look."""

    def __init__(self) -> None:
        self._first: dict[int, int] | None = None

    def cut(self, ends: Mapping[int, Ends]) -> dict[int, Ends]:
        """Returns these ends, with nothing readable after those of the first look. The first call is the first look."""
        if self._first is None:
            self._first = {p: now.stable for p, now in ends.items()}
        first = self._first
        return {p: replace(now, stable=min(now.stable, first.get(p, now.start))) for p, now in ends.items()}
