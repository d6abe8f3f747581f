"""A simulated log over a history at a clock's time: a `TopicLog` without a broker. Pure.

Like the broker:

- An offset exists once the clock has reached its `appended_ms`, and is readable from its `readable_ms` on.
- The time index searches from the start of the log, whatever the reader's position, and ignores transactions and
  plausibility: it also answers with aborted records, markers and records from the future.
- Retention moves the start; compaction leaves gaps.

Like `BrokerLog`, with the same code (`teacup.kafka.log.time_search`):

- An answer of the index counts only if the block of valid records that starts there has reached the time.
- Otherwise, and if event times are in the payload (`exact_index=False`, where the index knows only append times), it
  searches blocks of records.

Not simulated: leaders and their epochs never change on their own, nothing is truncated, and no call takes any time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import pyarrow as pa

from joins.spec import Side
from joins.testing.history import Event, EventKind, TopicHistory, carried
from teacup.base.times import UNLIMITED_MS
from teacup.kafka.errors import KafkaUnavailable, OffsetOutOfRange
from teacup.kafka.log.time_search import BlockQuery, Timed, block_size, borne_out, run_in_rounds, search
from teacup.kafka.log.topic_log import Ends, LeaderPosition, TimeAnswer, TimeQuery
from teacup.kafka.records.record import LOG_APPEND_TIME, OUTLIERS, typical

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
"""The schema that `fetch` returns."""

CREATE_TIME = 1


@dataclass(slots=True)
class Clock:
    """The wall clock of a simulation. Only `advance` moves it."""

    now_ms: int = 0

    def advance(self, ms: int) -> int:
        """Advances by `ms` and returns the new time. Raises ValueError if `ms` is negative."""
        if ms < 0:
            raise ValueError(f"ms: {ms} is not allowed; the clock of a simulation never goes back")
        self.now_ms += ms
        return self.now_ms


@dataclass(slots=True)
class SimulatedLog:
    """One topic of a history at the clock's time. Implements `teacup.kafka.log.topic_log.TopicLog`.

    exact_index  whether event times are Kafka's timestamps; if not, they are in the payload (the history's values must
                 carry them), and Kafka's timestamps are append times
    side         where the records carry their join key and their type; None: as a side does that says nothing
    identity     returned by `topic_id`; changing it simulates another topic of the same name
    outliers, max_future_skew_ms   as in `BrokerLog`; the skew limits how far payload times may exceed the append time
    """

    history: TopicHistory
    clock: Clock
    exact_index: bool = True
    side: Side | None = None
    identity: str = "simulated"
    outliers: int = OUTLIERS
    max_future_skew_ms: int = UNLIMITED_MS
    _starts: dict[int, int] = field(default_factory=dict, init=False)
    _cuts: dict[int, list[int]] = field(default_factory=dict, init=False)
    _failures: int = field(default=0, init=False)

    @property
    def topic(self) -> str:
        return self.history.topic

    def fail_next(self, n: int = 1) -> None:
        """Makes the next `n` calls raise KafkaUnavailable."""
        self._failures = n

    def delete_before(self, partition: int, offset: int) -> None:
        """Deletes records before `offset`, like retention. Raises ValueError above the high watermark."""
        if offset > (high := self._ends(partition).high):
            raise ValueError(f"offset: {offset} is above the high watermark {high} of {self.topic}-{partition}")
        self._starts[partition] = max(offset, self._start(partition))

    def lead_anew(self, partition: int, end: int) -> None:
        """Elects another leader, which had only the records below `end`; the log has since grown again."""
        self._cuts.setdefault(partition, []).append(end)

    def topic_id(self) -> str:
        self._answer()
        return self.identity

    def partition_count(self) -> int:
        self._answer()
        return len(self.history.partitions)

    def described(self) -> tuple[str, int]:
        return self.topic_id(), self.partition_count()

    def config(self) -> dict[str, str]:
        return {"message.timestamp.type": "CreateTime" if self.exact_index else "LogAppendTime"}

    def highs(self, *others: SimulatedLog) -> dict[str, dict[int, int]]:
        return {log.topic: {p: ends.high for p, ends in log.ends().items()} for log in (self, *others)}

    def ends(self) -> dict[int, Ends]:
        self._answer()
        return {partition: self._ends(partition) for partition in range(len(self.history.partitions))}

    def ends_with(self, other: SimulatedLog) -> tuple[dict[int, Ends], dict[int, Ends]]:
        return self.ends(), other.ends()

    def truncated(self, positions: Mapping[int, LeaderPosition]) -> set[int]:
        """Answers as in the Protocol. A leader epoch is the number of earlier leaders (`lead_anew`)."""
        self._answer()
        cuts = {p: self._cuts.get(p, [])[position.epoch :] for p, position in positions.items()}
        return {p for p, position in positions.items() if position.offset > min(cuts[p], default=position.offset)}

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        self._answer()
        return {partition: self._index(partition, time_ms) for partition, time_ms in times_ms.items()}

    def first_at_or_after(
        self, queries: Mapping[int, TimeQuery], ceiling_ms: int, *, sure: bool = False
    ) -> dict[int, TimeAnswer]:
        self._answer()
        return {
            partition: self._by_index(partition, query, ceiling_ms) or self._by_search(partition, query, ceiling_ms)
            for partition, query in queries.items()
        }

    def valid_times(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        self._answer()
        return {p: self._valid(p, range(start, end), ceiling_ms, count) for p, (start, end) in spans.items()}

    def readable(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, bool]:
        self._answer()
        return {p: any(self._is_readable(p, offset) for offset in range(*span)) for p, span in spans.items()}

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        self._answer()
        return {p: self._last(p, end, ceiling_ms, count) for p, end in ends.items()}

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        blocks = self.last_times(ends, ceiling_ms, block_size(self.outliers))
        return {p: typical([at for _, at in block]) if block else None for p, block in blocks.items()}

    def fetch(self, partition: int, start: int, end: int) -> pa.RecordBatch:
        """Returns the readable data records with start <= offset < end, in offset order, as `RECORDS`.

        Raises `OffsetOutOfRange` if retention has deleted the start of the range, and ValueError if it ends above the
        last stable offset, where a `read_committed` reader would wait.
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
        events = [event for event in self.history.partitions[partition][start:end] if event.kind is EventKind.DATA]
        stamp = CREATE_TIME if self.exact_index else LOG_APPEND_TIME
        side = self.side or Side(topic=self.topic)
        carries = [carried(side, event) for event in events]
        columns: list[list[object]] = [
            [event.partition for event in events],
            [event.offset for event in events],
            [self._timestamp_ms(event) for event in events],
            [stamp] * len(events),
            [own for own, _, _ in carries],
            [value for _, _, value in carries],
            [headers for _, headers, _ in carries],
        ]
        return pa.record_batch(
            [pa.array(column, part.type) for column, part in zip(columns, RECORDS, strict=True)],
            schema=RECORDS,
        )

    def _answer(self) -> None:
        if self._failures:
            self._failures -= 1
            raise KafkaUnavailable(f"{self.topic}: set to fail; {self._failures} more calls will")

    def _timestamp_ms(self, event: Event) -> int:
        return event.time_ms if self.exact_index or event.kind is EventKind.MARKER else event.appended_ms

    def _start(self, partition: int) -> int:
        return self._starts.get(partition, 0)

    def _ends(self, partition: int) -> Ends:
        events, now_ms = self.history.partitions[partition], self.clock.now_ms
        start = self._start(partition)
        return Ends(
            start=start,
            stable=max(start, bisect_right(events, now_ms, key=lambda event: event.readable_ms)),
            high=bisect_right(events, now_ms, key=lambda event: event.appended_ms),
            epoch=len(self._cuts.get(partition, ())),
        )

    def _indexed(self, partition: int) -> list[Event]:
        ends = self._ends(partition)
        events = self.history.partitions[partition][ends.start : ends.high]
        return [event for event in events if event.kind is not EventKind.GAP]

    def _index(self, partition: int, time_ms: int) -> int:
        hits = (event.offset for event in self._indexed(partition) if self._timestamp_ms(event) >= time_ms)
        return next(hits, self._ends(partition).high)

    def _valid_time(self, partition: int, offset: int, ceiling_ms: int) -> int | None:
        """Returns the time of the record at an offset; None unless it is readable now and its time is valid."""
        if not self._is_readable(partition, offset):
            return None
        event = self.history.partitions[partition][offset]
        if not self.exact_index:
            ceiling_ms = min(ceiling_ms, event.appended_ms + self.max_future_skew_ms)
        return event.time_ms if 0 <= event.time_ms <= ceiling_ms else None

    def _is_readable(self, partition: int, offset: int) -> bool:
        ends = self._ends(partition)
        return ends.start <= offset < ends.stable and self.history.partitions[partition][offset].kind is EventKind.DATA

    def _by_index(self, partition: int, query: TimeQuery, ceiling_ms: int) -> TimeAnswer | None:
        """Returns the index's answer, or None if it cannot be trusted."""
        if not self.exact_index:
            return None
        offset = self._index(partition, query.time_ms)
        if offset >= query.hi:
            return TimeAnswer(query.hi, query.time_ms, reached=False)
        block = self._valid(partition, range(offset, query.hi), ceiling_ms, block_size(self.outliers))
        begins = borne_out(block, query.time_ms) if offset >= query.lo else None
        return None if begins is None else TimeAnswer(begins, query.time_ms, reached=True)

    def _by_search(self, partition: int, query: TimeQuery, ceiling_ms: int) -> TimeAnswer:
        lo = min(max(query.lo, self._start(partition)), query.hi)

        def blocks_of(probes: Mapping[int, BlockQuery]) -> dict[int, list[Timed]]:
            return {p: self._block(p, probe, ceiling_ms) for p, probe in probes.items()}

        return run_in_rounds({partition: search(replace(query, lo=lo), self.outliers)}, blocks_of)[partition]

    def _block(self, partition: int, probe: BlockQuery, ceiling_ms: int) -> list[Timed]:
        if probe.start is None:
            return self._last(partition, probe.end, ceiling_ms, probe.count)
        return self._valid(partition, range(probe.start, probe.end), ceiling_ms, probe.count)

    def _valid(self, partition: int, offsets: range, ceiling_ms: int, count: int) -> list[Timed]:
        """Returns the first `count` records at these offsets that are readable and have a valid time."""
        times = ((offset, self._valid_time(partition, offset, ceiling_ms)) for offset in offsets)
        return list(islice(((offset, at) for offset, at in times if at is not None), count))

    def _last(self, partition: int, end: int, ceiling_ms: int, count: int) -> list[Timed]:
        backward = range(end - 1, self._start(partition) - 1, -1)
        return self._valid(partition, backward, ceiling_ms, count)[::-1]
