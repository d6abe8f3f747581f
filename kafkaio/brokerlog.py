"""One topic of a real broker, as seen by a planner: ends, ids, and where a time begins.

A time is looked up in the broker's index first, for all partitions in one call. The index answers with the
first record of any kind at or after the time, searched from the start of the log: a transaction's marker,
an aborted record or one from the future answers as well. So the record at the answered offset is read, and
the answer counts only if a readable record stands exactly there with `time_ms <= time <= ceiling_ms`.

Otherwise, and where times are in the payload, single records are compared: a binary search with the invariant

    the valid record before `low` has time < sought,    the valid record at `answer` has time >= sought

in which a record above the ceiling, or without a time, is stepped over. Records are not sorted by time:
what is found is *some* place where the time is passed, hence the margin that is taken off the time sought.
All partitions advance in lockstep, so that the rounds cost and not the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as kafka_admin

from kafkaio import client
from kafkaio.errors import KafkaUnavailable
from kafkaio.eventtime import TimeOf, event_times
from kafkaio.pointread import PointReader, Record
from kafkaio.topiclog import Ends, TimeAnswer, TimeQuery

# These have no types.
OffsetSpec: Any = kafka_admin.OffsetSpec  # type: ignore[attr-defined]
ConfigResource: Any = kafka_admin.ConfigResource  # type: ignore[attr-defined]

T = TypeVar("T")

BEYOND_THE_LOG = 1 << 62  # an offset that no log reaches: the index knows no record at or after the time

_ANSWERED_WITHIN_S = 5.0  # then the client learns anew, and the call is tried again
_TAKE_AT_MOST = 4096  # records in one go, where one after the other has no time


class BrokerLog:
    """Implements `kafkaio.topiclog.TopicLog`. Every call is retried within bounds, then raises `KafkaUnavailable`."""

    def __init__(self, topic: str, kafka: Mapping[str, str], time_of: TimeOf | None = None) -> None:
        self._topic = topic
        self._time_of = time_of or TimeOf()
        self._kafka = dict(kafka)
        self._trouble: KafkaError | None = None
        self._admin = client.admin(kafka, self._on_error)
        self._points = PointReader(topic, kafka)
        self._partitions: int | None = None

    @property
    def topic(self) -> str:
        return self._topic

    def topic_id(self) -> str:
        return str(self._describe().topic_id)

    def partition_count(self) -> int:
        """Asked anew each time; the other calls keep to the count that was last told."""
        self._partitions = len(self._describe().partitions)
        return self._partitions

    def config(self) -> dict[str, str]:
        """The topic's configuration, defaults of the broker included."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._topic)

        def ask() -> dict[str, str]:
            future = self._admin.describe_configs([resource], request_timeout=_ANSWERED_WITHIN_S)[resource]
            return {name: entry.value for name, entry in self._result(future, None).items()}

        return self._retried(ask)

    def ends(self) -> dict[int, Ends]:
        partitions = range(self._partitions if self._partitions is not None else self.partition_count())
        # In this order each of start <= stable <= high holds although the log goes on between the calls.
        starts = self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))
        stables = self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
        highs = self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
        return {
            p: Ends(
                start=min(starts[p].offset, stables[p].offset),
                stable=stables[p].offset,
                high=highs[p].offset,
                epoch=highs[p].leader_epoch,
            )
            for p in partitions
        }

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """As in the Protocol; `BEYOND_THE_LOG` where no record reaches the time."""
        if not self._time_of.in_payload:
            return {p: _or_beyond(found.offset) for p, found in self._index(times_ms).items()}
        ends = self.ends()
        queries = {p: TimeQuery(at, ends[p].start, ends[p].stable) for p, at in times_ms.items()}
        answers = self._search(queries, ceiling_ms=1 << 62)
        return {p: one.offset if one.reached else BEYOND_THE_LOG for p, one in answers.items()}

    def first_at_or_after(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        answers = {} if self._time_of.in_payload else self._by_index(queries, ceiling_ms)
        rest = {p: query for p, query in queries.items() if p not in answers}
        return answers | self._search(rest, ceiling_ms)

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        starts = {p: found.offset for p, found in self._all(ends, OffsetSpec.earliest()).items()}
        times: dict[int, int | None] = {p: None for p, end in ends.items() if end <= starts[p]}
        if not self._time_of.in_payload:
            largest = self._all(ends, OffsetSpec.max_timestamp())
            spots = {p: at.offset for p, at in largest.items() if starts[p] <= at.offset < ends[p]}
            times |= self._confirmed(spots, {}, ceiling_ms)
        back = 1
        while rest := {p: end for p, end in ends.items() if p not in times}:
            spans = {p: (max(end - back, starts[p]), end) for p, end in rest.items()}
            found = self._last_valid(spans, ceiling_ms)
            for p, (start, _) in spans.items():
                if p in found:
                    times[p] = found[p]
                elif start == starts[p]:
                    times[p] = None
            back *= 4
        return times

    def times_at(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int) -> dict[int, int | None]:
        found = self._first_valid(spans, ceiling_ms)
        return {p: found[p][1] if p in found else None for p in spans}

    def close(self) -> None:
        self._points.close()

    def _by_index(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        """The answers of the index that hold; a partition that it is wrong about is missing."""
        found = {p: _or_beyond(at.offset) for p, at in self._index({p: q.time_ms for p, q in queries.items()}).items()}
        none = {p: TimeAnswer(q.hi, q.time_ms, False) for p, q in queries.items() if found[p] >= q.hi}
        floors = {p: q.time_ms for p, q in queries.items()}
        spots = {p: at for p, at in found.items() if p not in none}
        held = self._confirmed(spots, floors, ceiling_ms)
        return none | {p: TimeAnswer(max(found[p], queries[p].lo), queries[p].time_ms, True) for p in held}

    def _confirmed(self, spots: Mapping[int, int], floors: Mapping[int, int], ceiling_ms: int) -> dict[int, int]:
        """The times of the readable records that stand exactly at these offsets, from the floor to the ceiling."""
        records = self._points.take({p: (at, at + 1) for p, at in spots.items()})
        times = self._times([record for some in records.values() for record in some])
        return {
            record.partition: at
            for record, at in times
            if at is not None and floors.get(record.partition, at) <= at <= ceiling_ms
        }

    def _first_valid(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int) -> dict[int, tuple[int, int]]:
        """Offset and time of the first record in each span that has a time, and one not above the ceiling."""
        found: dict[int, tuple[int, int]] = {}
        rest, count = dict(spans), 1
        while rest:
            records = self._points.take(rest, count)
            for record, at in self._times([record for some in records.values() for record in some]):
                if at is not None and at <= ceiling_ms:
                    found.setdefault(record.partition, (record.offset, at))
            rest = {
                p: (some[-1].offset + 1, rest[p][1])
                for p, some in records.items()
                if p not in found and len(some) == count
            }
            count = min(count * 8, _TAKE_AT_MOST)
        return found

    def _last_valid(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int) -> dict[int, int]:
        """The time of the last record in each span that has one not above the ceiling: no earlier record is more than
        the disorder above it, which an earlier one, as from behind a transaction's marker, would not promise."""
        records = self._points.take(spans, max(end - start for start, end in spans.values()))
        times = self._times([record for some in records.values() for record in some])
        return {record.partition: at for record, at in times if at is not None and at <= ceiling_ms}

    def _search(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        if not queries:
            return {}
        starts = self._all(queries, OffsetSpec.earliest())
        searches = {
            p: _Search(sought_ms=query.time_ms - query.margin_ms, low=max(query.lo, starts[p].offset), high=query.hi)
            for p, query in queries.items()
        }
        while spans := {p: one.span for p, one in searches.items() if one.low < one.high}:
            found = self._first_valid(spans, ceiling_ms)
            for p in spans:
                searches[p].compare(found.get(p))
        return {
            p: TimeAnswer(query.hi, query.time_ms - query.margin_ms, False)
            if (answer := searches[p].answer) is None
            else TimeAnswer(answer, query.time_ms - query.margin_ms, True)
            for p, query in queries.items()
        }

    def _times(self, records: Sequence[Record]) -> list[tuple[Record, int | None]]:
        stamps = pa.array([record.timestamp_ms for record in records], pa.int64())
        values = pa.array([record.value for record in records], pa.binary())
        return list(zip(records, event_times(self._time_of, stamps, values).to_pylist(), strict=True))

    def _index(self, times_ms: Mapping[int, int]) -> dict[int, Any]:
        return self._offsets({p: OffsetSpec.for_timestamp(max(at, 0)) for p, at in times_ms.items()})

    def _all(self, partitions: Iterable[int], spec: Any) -> dict[int, Any]:
        return self._offsets(dict.fromkeys(partitions, spec))

    def _offsets(
        self, specs: Mapping[int, Any], isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, Any]:
        """What the broker knows of each partition (`offset`, `timestamp`, `leader_epoch`), in one call."""
        if not specs:
            return {}

        def ask() -> dict[int, Any]:
            futures = self._admin.list_offsets(
                {TopicPartition(self._topic, p): spec for p, spec in specs.items()},
                isolation_level=isolation,
                request_timeout=_ANSWERED_WITHIN_S,
            )
            return {at.partition: self._result(future, at.partition) for at, future in futures.items()}

        return self._retried(ask)

    def _describe(self) -> Any:
        def ask() -> Any:
            futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_ANSWERED_WITHIN_S)
            return self._result(futures[self._topic], None)

        return self._retried(ask)

    def _retried(self, ask: Callable[[], T]) -> T:
        """Before it asks again, the client learns brokers and leaders anew.

        By itself librdkafka asks with the leader's epoch that it knows, and waits for a controller that it does not
        know, for minutes after a broker was restarted.
        """

        def asked() -> T:
            try:
                return ask()
            except KafkaUnavailable:
                client.learn(self._admin, self._topic, client.LEARN_TIMEOUT_S)
                raise

        return client.retried(asked, self._kafka)

    def _result(self, future: Any, partition: int | None) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            self._admin.poll(0)
            raise client.translate(error.args[0], "look-up", self._topic, partition, self._trouble) from error

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error


@dataclass
class _Search:
    """The binary search in one partition; see the module's docstring for its invariant."""

    sought_ms: int
    low: int
    high: int
    answer: int | None = None

    @property
    def span(self) -> tuple[int, int]:
        return (self.low + self.high) // 2, self.high

    def compare(self, found: tuple[int, int] | None) -> None:
        """Take in offset and time of the first valid record of `span`."""
        middle = self.span[0]
        if found is None:
            self.high = middle
        elif found[1] >= self.sought_ms:
            self.answer, self.high = found[0], middle
        else:
            self.low = found[0] + 1


def _or_beyond(offset: int) -> int:
    return offset if offset >= 0 else BEYOND_THE_LOG
