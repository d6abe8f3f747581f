"""Two topics as plain data: what is at every offset, and when it becomes visible. Pure.

A partition is a tuple of events, one per offset, starting at 0. Each has two wall-clock times:

    appended_ms   it enters the log: from then on the high watermark is above it
    readable_ms   the last stable offset passes it: from then on a `read_committed` reader gets it

For a record outside transactions both are the same, unless an open transaction precedes it. Inside a transaction,
`readable_ms` is the time of the transaction's marker. Neither ever decreases from one offset to the next, because the
last stable offset never goes back.

The key of an `Event` is the join key. If a side's join key is not Kafka's key, `carried` puts it where that side looks
for it: in a field of the value, which is then a JSON object, or in a header. Every part of a composite key holds it.
Kafka's key is then something else, so that nothing can be joined by it. `carried` also puts the type of an event where
the `where` of its side looks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from joins.spec import Side
from teacup.kafka.records.record import HEADER, KAFKA, KeyOf


class EventKind(StrEnum):
    """What is at an offset. Only data is ever read. Everything except gaps has a time in the broker's index."""

    DATA = "data"
    MARKER = "marker"  # a transaction's control record; its time is the wall clock at its append
    ABORTED = "aborted"  # a record of an aborted transaction
    GAP = "gap"  # an offset that compaction removed


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One offset of one partition.

    time_ms      event time; negative if it has none
    key          join key
    type         what a side's `where` compares
    wrong_time   the time breaks the topic's rules: missing, later than the disorder, or ahead of its neighbours
    """

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    appended_ms: int
    readable_ms: int
    kind: EventKind = EventKind.DATA
    wrong_time: bool = False
    type: str = "a"

    def fits(self, side: Side) -> bool:
        """Returns whether a side takes it: each part of its `where` holds the type."""
        return side.where_of is None or all(self.type in texts for _, texts in side.where_of.parts)

    def is_future(self, max_future_skew_ms: int) -> bool:
        """Returns whether its time is too far ahead of the clock at its append, which makes it a dead letter."""
        return self.time_ms > self.appended_ms + max_future_skew_ms


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """One topic from its first record to its last.

    Raises ValueError if a partition's events are not numbered from 0, or one of their clocks goes back.
    """

    topic: str
    partitions: tuple[tuple[Event, ...], ...]

    def __post_init__(self) -> None:
        for partition, events in enumerate(self.partitions):
            for offset, event in enumerate(events):
                where = f"{self.topic}-{partition}@{offset}"
                if (event.partition, event.offset) != (partition, offset):
                    raise ValueError(f"{where} holds {event}; number partitions and offsets from 0, without holes")
                if event.readable_ms < event.appended_ms:
                    raise ValueError(
                        f"{where}: readable_ms {event.readable_ms} is below appended_ms {event.appended_ms}"
                    )
            for last, event in pairwise(events):
                if event.appended_ms < last.appended_ms or event.readable_ms < last.readable_ms:
                    raise ValueError(
                        f"{self.topic}-{partition}@{event.offset}: appended_ms or readable_ms is below "
                        "that of the offset before it; a log only grows, its last stable offset never goes back"
                    )

    def without_wrong_times(self) -> TopicHistory:
        """Returns the topic with gaps in place of records with wrong times."""
        return self._with_gaps(lambda event: event.wrong_time)

    def read_from(self, starts: Mapping[int, int]) -> TopicHistory:
        """Returns the topic with gaps before these offsets."""
        return self._with_gaps(lambda event: event.offset < starts[event.partition])

    def _with_gaps(self, gone: Callable[[Event], bool]) -> TopicHistory:
        return TopicHistory(
            self.topic,
            tuple(
                tuple(replace(event, kind=EventKind.GAP) if gone(event) else event for event in events)
                for events in self.partitions
            ),
        )

    def records(self) -> Iterator[Event]:
        """Yields every record that is ever readable, including those from the future, by partition and offset."""
        return (event for events in self.partitions for event in events if event.kind is EventKind.DATA)

    def events(self) -> Iterator[Event]:
        """Yields what is at every offset, by partition and offset."""
        return (event for events in self.partitions for event in events)

    def disorder_ms(self, ceiling_ms: int | None = None) -> tuple[int, ...]:
        """Returns for each partition the largest distance of a record's time below an earlier record's.

        Records with times above `ceiling_ms` (from the future) do not count.
        """
        return tuple(_disorder_ms(_times_ms(events, ceiling_ms)) for events in self.partitions)

    def producer_delay_ms(self, ceiling_ms: int | None = None) -> tuple[int, ...]:
        """Returns for each partition the longest time from a record's event time until it is readable.

        A partition without records has 0. Records with times above `ceiling_ms` (from the future) do not count.
        """
        return tuple(
            max((event.readable_ms - event.time_ms for event in _data(events, ceiling_ms)), default=0)
            for events in self.partitions
        )

    def within(
        self, *, disorder_ms: int, producer_delay_ms: int | None = None, ceiling_ms: int | None = None
    ) -> tuple[bool, ...]:
        """Returns for each partition whether it keeps to the disorder and, if given, to the producer delay."""
        return tuple(
            disorder <= disorder_ms and (producer_delay_ms is None or delay <= producer_delay_ms)
            for disorder, delay in zip(self.disorder_ms(ceiling_ms), self.producer_delay_ms(ceiling_ms), strict=True)
        )


@dataclass(frozen=True, slots=True)
class History:
    """Both topics of a join, and the wall-clock time at which a run over them starts.

    If `start_ms` is after `end_ms`, everything is a backlog; if it is before the first append, the run is live.
    """

    left: TopicHistory
    right: TopicHistory
    start_ms: int = 0

    def without_wrong_times(self) -> History:
        """Returns the history without the records with wrong times."""
        return History(self.left.without_wrong_times(), self.right.without_wrong_times(), self.start_ms)

    @property
    def end_ms(self) -> int:
        """The wall-clock time from which everything is readable (`start_ms` if both topics are empty)."""
        readable = (event.readable_ms for side in (self.left, self.right) for event in side.events())
        return max(readable, default=self.start_ms)


def _data(events: tuple[Event, ...], ceiling_ms: int | None) -> Iterator[Event]:
    return (
        event
        for event in events
        if event.kind is EventKind.DATA and (ceiling_ms is None or event.time_ms <= ceiling_ms)
    )


def _times_ms(events: tuple[Event, ...], ceiling_ms: int | None) -> Iterator[int]:
    return (event.time_ms for event in _data(events, ceiling_ms))


def _disorder_ms(times_ms: Iterator[int]) -> int:
    largest, worst = None, 0
    for time_ms in times_ms:
        largest = time_ms if largest is None else max(largest, time_ms)
        worst = max(worst, largest - time_ms)
    return worst


Headers = list[tuple[str, bytes | None]]


def carried(side: Side, event: Event) -> tuple[bytes | None, Headers | None, bytes | None]:
    """Returns a record's Kafka key, headers and value. Raises ValueError for a path through an array."""
    own, headers, value = _keyed(side.key_of, event)
    for part, _ in () if side.where_of is None else side.where_of.parts:
        if part.startswith(HEADER):
            headers = [*(headers or []), (part.removeprefix(HEADER), event.type.encode())]
        else:
            value = _with(value, part, event.type)
    return own, headers, value


def _keyed(key_of: KeyOf, event: Event) -> tuple[bytes | None, Headers | None, bytes | None]:
    if key_of.is_kafkas:
        return event.key, None, event.value
    own = event.key if KAFKA in key_of.parts else b"%d" % event.offset
    named = [part.removeprefix(HEADER) for part in key_of.parts if part.startswith(HEADER)]
    headers: Headers = [] if event.key is None else [(name, event.key) for name in named]
    value = event.value
    for path in key_of.paths:
        value = _with(value, path, None if event.key is None else event.key.decode())
    return own, headers or None, value


def _with(value: bytes | None, path: str, key: str | None) -> bytes | None:
    if key is None:
        return value
    names = [name.strip('"') for name in re.findall(r'\.("[^"]+"|[\w-]+)', path)]
    if "[" in path:
        raise ValueError(f"key: {path!r} leads through an array; a simulated log has objects only")
    whole: dict[str, Any] = {} if value is None else json.loads(value)
    inner = whole
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
    inner[names[-1]] = key
    return json.dumps(whole).encode()
