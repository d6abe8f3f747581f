"""A simulated log over a history, as of the time of a clock: a `TopicLog` without a broker.

What it does like the broker:

- An offset exists once the clock has reached its `appended_ms`, and is readable from its `readable_ms` on.
- The time index searches from the start of the log, whatever the reader's position is, and knows nothing of
  transactions or of plausibility: aborted records, markers and records from the future answer as well.
- Retention moves the start; compaction leaves gaps.

What `BrokerLog` makes of such an index, done here in the same way:

- An answer counts only where a readable data record stands there, with a time that is not from the future.
- Otherwise, and where event times are in the payload (`exact_index=False`: the index then knows append times
  only), a binary search over single records. They are not sorted, so it finds *some* crossing of the time less
  the margin: a record below it, with everything before that at most the disorder higher.

What it does not do: leaders and their epochs never change, nothing is truncated, and no call takes any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from joins.testing.history import Event, Kind, TopicHistory
from kafkaio.errors import KafkaUnavailable, OffsetOutOfRange
from kafkaio.topiclog import Ends, TimeAnswer, TimeQuery

RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""What `fetch` gives."""

CREATE_TIME = 1
LOG_APPEND_TIME = 2


@dataclass(slots=True)
class Clock:
    """The wall clock of a simulation; it goes only when told."""

    now_ms: int = 0

    def advance(self, ms: int) -> int:
        """Go on by `ms` milliseconds (ValueError if negative); the new time."""
        if ms < 0:
            raise ValueError(f"ms: {ms} is not allowed; the clock of a simulation never goes back")
        self.now_ms += ms
        return self.now_ms


@dataclass(slots=True)
class SimulatedLog:
    """One topic of a history at the clock's time; implements `kafkaio.topiclog.TopicLog`.

    exact_index  True: event times are Kafka's timestamps. False: they are in the payload (the history's values
                 have to carry them), and Kafka's timestamps are the times of append
    identity     what `topic_id` answers; another one makes it another topic of the same name
    """

    history: TopicHistory
    clock: Clock
    exact_index: bool = True
    identity: str = "simulated"
    _starts: dict[int, int] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)

    @property
    def topic(self) -> str:
        return self.history.topic

    def fail_next(self, n: int = 1) -> None:
        """Let the next `n` calls raise KafkaUnavailable."""
        self._failures = n

    def delete_before(self, partition: int, offset: int) -> None:
        """What retention does: `offset` is the first that is left. ValueError beyond the high watermark."""
        if offset > (high := self._ends(partition).high):
            raise ValueError(f"offset: {offset} is above the high watermark {high} of {self.topic}-{partition}")
        self._starts[partition] = max(offset, self._start(partition))

    def topic_id(self) -> str:
        self._answer()
        return self.identity

    def partition_count(self) -> int:
        self._answer()
        return len(self.history.partitions)

    def ends(self) -> dict[int, Ends]:
        self._answer()
        return {partition: self._ends(partition) for partition in range(len(self.history.partitions))}

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        self._answer()
        return {partition: self._index(partition, time_ms) for partition, time_ms in times_ms.items()}

    def first_at_or_after(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        self._answer()
        return {
            partition: self._by_index(partition, query, ceiling_ms) or self._by_search(partition, query, ceiling_ms)
            for partition, query in queries.items()
        }

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        self._answer()
        return {partition: self._newest(partition, end, ceiling_ms) for partition, end in ends.items()}

    def times_at(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int) -> dict[int, int | None]:
        self._answer()
        found = {p: self._step(p, range(start, end), ceiling_ms) for p, (start, end) in spans.items()}
        return {p: None if event is None else event.time_ms for p, event in found.items()}

    def fetch(self, partition: int, start: int, end: int) -> pa.RecordBatch:
        """The readable data records with start <= offset < end, in offset order, as `RECORDS`.

        Raises OffsetOutOfRange for a range that starts below what retention has left, ValueError for one that ends
        above the last stable offset (a `read_committed` reader would wait there).
        """
        self._answer()
        ends = self._ends(partition)
        if start < end and start < ends.start:
            raise OffsetOutOfRange(self.topic, partition, start, ends.start, ends.high)
        if end > ends.stable:
            raise ValueError(
                f"end: {end} is above the last stable offset {ends.stable} of {self.topic}-{partition}; "
                "read what was readable when the ends were listed"
            )
        events = [event for event in self.history.partitions[partition][start:end] if event.kind is Kind.DATA]
        stamp = CREATE_TIME if self.exact_index else LOG_APPEND_TIME
        columns: list[list[object]] = [
            [event.partition for event in events],
            [event.offset for event in events],
            [self._timestamp_ms(event) for event in events],
            [stamp] * len(events),
            [event.key for event in events],
            [event.value for event in events],
            [None] * len(events),
        ]
        return pa.record_batch(
            [pa.array(column, part.type) for column, part in zip(columns, RECORDS, strict=True)],
            schema=RECORDS,
        )

    def _answer(self) -> None:
        if self._failures:
            self._failures -= 1
            raise KafkaUnavailable(f"{self.topic}: told to fail; {self._failures} more calls will")

    def _timestamp_ms(self, event: Event) -> int:
        return event.time_ms if self.exact_index or event.kind is Kind.MARKER else event.appended_ms

    def _start(self, partition: int) -> int:
        return self._starts.get(partition, 0)

    def _ends(self, partition: int) -> Ends:
        events, now_ms = self.history.partitions[partition], self.clock.now_ms
        start = self._start(partition)
        return Ends(
            start=start,
            stable=max(start, bisect_right(events, now_ms, key=lambda event: event.readable_ms)),
            high=bisect_right(events, now_ms, key=lambda event: event.appended_ms),
            epoch=0,
        )

    def _indexed(self, partition: int) -> list[Event]:
        ends = self._ends(partition)
        events = self.history.partitions[partition][ends.start : ends.high]
        return [event for event in events if event.kind is not Kind.GAP]

    def _index(self, partition: int, time_ms: int) -> int:
        hits = (event.offset for event in self._indexed(partition) if self._timestamp_ms(event) >= time_ms)
        return next(hits, self._ends(partition).high)

    def _answers(self, partition: int, offset: int, ceiling_ms: int) -> Event | None:
        """The record at an offset, if a reader gets it now and its time is not from the future."""
        ends = self._ends(partition)
        if not ends.start <= offset < ends.stable:
            return None
        event = self.history.partitions[partition][offset]
        return event if event.kind is Kind.DATA and event.time_ms <= ceiling_ms else None

    def _by_index(self, partition: int, query: TimeQuery, ceiling_ms: int) -> TimeAnswer | None:
        """What the index says, None where it cannot be trusted."""
        if not self.exact_index:
            return None
        offset = self._index(partition, query.time_ms)
        if offset >= query.hi:
            return TimeAnswer(query.hi, query.time_ms, reached=False)
        if self._answers(partition, offset, ceiling_ms) is None:
            return None
        return TimeAnswer(max(query.lo, offset), query.time_ms, reached=True)

    def _by_search(self, partition: int, query: TimeQuery, ceiling_ms: int) -> TimeAnswer:
        """Invariant: the record below `low` is below the time sought, the first one from `high` on is not."""
        sought_ms = query.time_ms - query.margin_ms
        low, high = query.lo, query.hi
        reached = False
        while low < high:
            middle = (low + high) // 2
            found = self._step(partition, range(middle, high), ceiling_ms)
            if found is not None and found.time_ms < sought_ms:
                low = found.offset + 1
            else:
                high = middle
                reached = reached or found is not None
        return TimeAnswer(high, sought_ms, reached) if reached else TimeAnswer(query.hi, sought_ms, reached)

    def _step(self, partition: int, offsets: range, ceiling_ms: int) -> Event | None:
        """The first record on the way, over gaps and whatever does not answer."""
        on_the_way = (self._answers(partition, offset, ceiling_ms) for offset in offsets)
        return next((event for event in on_the_way if event is not None), None)

    def _newest(self, partition: int, end: int, ceiling_ms: int) -> int | None:
        if self.exact_index and (indexed := self._indexed(partition)):
            top = max(indexed, key=lambda event: event.time_ms)
            if top.offset < end and self._answers(partition, top.offset, ceiling_ms) is not None:
                return top.time_ms
        last = self._step(partition, range(end - 1, self._start(partition) - 1, -1), ceiling_ms)
        return None if last is None else last.time_ms
