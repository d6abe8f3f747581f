"""One topic of a real broker, as a planner sees it: ends, ids, and where a time begins.

A time is first looked up in the broker's index, for all partitions in one call. The index returns the first record
of any kind at or after the time, counted from the start of the log. That may be a transaction marker, an aborted
record, a record from the future or one ahead of its neighbours. So the block of valid records that starts there is
read, and the answer counts only if that block has reached the time. An answer that no record at all reaches a time
is exact.

Otherwise, and if times are in the payload, the search goes by blocks of records (`teacup.kafka.log.time_search`):
records are not sorted by time, and one with a wrong time at a probe must not discard what precedes it. All partitions
advance in lockstep, so the cost depends on the number of rounds, not of partitions. If records are small, a block
takes one fetch, as a single record does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import admin as kafka_admin

from teacup.base.times import LATEST_MS, UNLIMITED_MS
from teacup.kafka import client
from teacup.kafka.errors import KafkaUnavailable, TopicMissing
from teacup.kafka.log.admin import truncated
from teacup.kafka.log.point_reader import PointReader, Record
from teacup.kafka.log.time_search import BlockQuery, Timed, block_size, borne_out, run_in_rounds, search
from teacup.kafka.log.topic_log import Ends, LeaderPosition, TimeAnswer, TimeQuery
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.records.record import OUTLIERS, TimeOf, ceilings, event_times, typical, valid

# These are untyped.
OffsetSpec: Any = kafka_admin.OffsetSpec  # type: ignore[attr-defined]

T = TypeVar("T")

BEYOND_THE_LOG = 1 << 62  # an offset that no log reaches: no record in the index is at or after the time

_ANSWERED_WITHIN_S = 5.0  # after that the client refreshes its metadata and retries
_TAKE_AT_MOST = 4096  # records per read, as long as no record with a time is found
_TAKE_MORE, _GO_BACK_MORE = 8, 4  # factors for each further read


class BrokerLog:
    """Implements `teacup.kafka.log.topic_log.TopicLog`. Every call is retried for a limited time, then raises
    `KafkaUnavailable`.

    outliers            how many records of a block may have a wrong time (`teacup.kafka.log.time_search`)
    max_future_skew_ms  how far a valid time may lie above the record's append time, if the broker set that
    as_json             makes JSON of values (binary) in which the time is looked for; None: they are JSON
    tried_for_s         how long each call asks brokers that do not answer again; None: for a minute
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        time_of: TimeOf | None = None,
        *,
        outliers: int = OUTLIERS,
        max_future_skew_ms: int = UNLIMITED_MS,
        as_json: Callable[[pa.Array], pa.Array] | None = None,
        tried_for_s: float | None = None,
    ) -> None:
        self._outliers = outliers
        self._skew_ms = max_future_skew_ms
        self._topic = topic
        self._time_of = time_of or TimeOf()
        self._as_json = as_json
        self._tried_for_s = tried_for_s
        self._kafka = dict(kafka)
        self._trouble: KafkaError | None = None
        self._admin = client.admin(kafka, self._on_error)
        self._points = PointReader(topic, kafka)
        self._partitions: int | None = None
        self._whole: dict[int, LeaderPosition] = {}  # the positions asked about last, and not truncated

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def outliers(self) -> int:
        return self._outliers

    def topic_id(self) -> str:
        return str(self._describe().topic_id)

    def partition_count(self) -> int:
        """Asks each time; the other calls use the last count."""
        return self.described()[1]

    def described(self) -> tuple[str, int]:
        """Returns `topic_id` and `partition_count`, from one request."""
        description = self._describe()
        self._partitions = len(description.partitions)
        return str(description.topic_id), self._partitions

    def config(self) -> dict[str, str]:
        """Returns the topic's configuration, including the broker's defaults."""

        def ask() -> dict[str, str]:
            future = client.topic_configs(self._admin, [self._topic], _ANSWERED_WITHIN_S)[self._topic]
            return {name: entry.value for name, entry in self._result(future).items()}

        return self._retried(ask)

    def ends(self) -> dict[int, Ends]:
        return self._ends_of(self)[self.topic]

    def ends_with(self, other: BrokerLog) -> tuple[dict[int, Ends], dict[int, Ends]]:
        """Takes as many requests as for the ends of one topic; `other` is a topic of the same brokers."""
        ends = self._ends_of(self, other)
        return ends[self.topic], ends[other.topic]

    def truncated(self, positions: Mapping[int, LeaderPosition]) -> set[int]:
        asked = {p: position for p, position in positions.items() if self._whole.get(p) != position}
        partitions = client.retried(lambda: truncated(self._topic, asked, self._kafka), self._kafka) if asked else set()
        self._whole.update({p: position for p, position in asked.items() if p not in partitions})
        return partitions

    def highs(self, *others: BrokerLog) -> dict[str, dict[int, int]]:
        """Returns the high watermark of every partition of this topic and of others of the same brokers, by topic.

        One request is the cheapest way to see whether anything new has come.
        """
        ends = self._of_all((self, *others), OffsetSpec.latest())
        return {topic: {p: high.offset for p, high in by_partition.items()} for topic, by_partition in ends.items()}

    def estimate(self, times_ms: Mapping[int, int]) -> dict[int, int]:
        """Estimates as in the Protocol; `BEYOND_THE_LOG` if no record reaches the time."""
        if not self._time_of.in_payload:
            return {p: _or_beyond(entry.offset) for p, entry in self._index(times_ms).items()}
        ends = self.ends()
        queries = {p: TimeQuery(at, ends[p].start, ends[p].stable) for p, at in times_ms.items()}
        answers = self._search(queries, LATEST_MS, outliers=0)
        return {p: answer.offset if answer.reached else BEYOND_THE_LOG for p, answer in answers.items()}

    def first_at_or_after(
        self, queries: Mapping[int, TimeQuery], ceiling_ms: int, *, sure: bool = False
    ) -> dict[int, TimeAnswer]:
        answers = {} if self._time_of.in_payload else self._by_index(queries, ceiling_ms)
        if sure:
            answers = {p: answer for p, answer in answers.items() if answer.reached or queries[p].lo == 0}
        rest = {p: query for p, query in queries.items() if p not in answers}
        return answers | self._search(rest, ceiling_ms, self._outliers)

    def valid_times(self, spans: Mapping[int, tuple[int, int]], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        times_of: dict[int, list[Timed]] = {p: [] for p in spans}
        rest, at_once = dict(spans), count
        while rest:
            records = self._points.take(rest, at_once)
            for record, at in self._valid(chain.from_iterable(records.values()), ceiling_ms):
                if len(times := times_of[record.partition]) < count:
                    times.append((record.offset, at))
            rest = {
                p: (some[-1].offset + 1, rest[p][1])
                for p, some in records.items()
                if len(times_of[p]) < count and len(some) == at_once
            }
            at_once = min(at_once * _TAKE_MORE, _TAKE_AT_MOST)
        return times_of

    def readable(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, bool]:
        return {p: bool(records) for p, records in self._points.take(spans).items()}

    def last_times(self, ends: Mapping[int, int], ceiling_ms: int, count: int) -> dict[int, list[Timed]]:
        starts = {p: at.offset for p, at in self._all(ends, OffsetSpec.earliest()).items()}
        times_of: dict[int, list[Timed]] = {p: [] for p in ends}
        back = count + 1  # the last offset is often a transaction marker
        spans = {p: (max(end - back, starts[p]), end) for p, end in ends.items() if end > starts[p]}
        while spans:
            records = self._points.take(spans, back)
            read: dict[int, list[Timed]] = {p: [] for p in spans}
            for record, at in self._valid(chain.from_iterable(records.values()), ceiling_ms):
                read[record.partition].append((record.offset, at))
            for p, some in read.items():
                times_of[p] = some + times_of[p]
            back = min(back * _GO_BACK_MORE, _TAKE_AT_MOST)
            spans = {
                p: (max(start - back, starts[p]), start)
                for p, (start, _) in spans.items()
                if len(times_of[p]) < count and start > starts[p]
            }
        return {p: times[-count:] for p, times in times_of.items()}

    def newest(self, ends: Mapping[int, int], ceiling_ms: int) -> dict[int, int | None]:
        blocks = self.last_times(ends, ceiling_ms, block_size(self._outliers))
        return {p: typical([at for _, at in block]) if block else None for p, block in blocks.items()}

    def close(self) -> None:
        """Closes the clients."""
        self._points.close()

    def _ends_of(self, *logs: BrokerLog) -> dict[str, dict[int, Ends]]:
        """Returns the ends of topics of the same brokers, by topic."""
        # The log grows between the calls. In this order, a record that is written meanwhile does not look like one that
        # an open transaction hides: such a partition would prove nothing about what comes later.
        starts = self._of_all(logs, OffsetSpec.earliest())
        highs = self._of_all(logs, OffsetSpec.latest())
        stables = self._of_all(logs, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return {
            topic: {
                p: Ends(
                    start=min(starts[topic][p].offset, stable.offset),
                    stable=stable.offset,
                    high=max(highs[topic][p].offset, stable.offset),
                    epoch=stable.leader_epoch,
                )
                for p, stable in by_partition.items()
            }
            for topic, by_partition in stables.items()
        }

    def _by_index(self, queries: Mapping[int, TimeQuery], ceiling_ms: int) -> dict[int, TimeAnswer]:
        """Returns those answers of the index that hold; partitions for which it may be wrong are left out."""
        offsets = {
            p: _or_beyond(at.offset) for p, at in self._index({p: q.time_ms for p, q in queries.items()}).items()
        }
        none = {p: TimeAnswer(q.hi, q.time_ms, False) for p, q in queries.items() if offsets[p] >= q.hi}
        spans = {p: (offsets[p], q.hi) for p, q in queries.items() if q.lo <= offsets[p] < q.hi}
        blocks = self.valid_times(spans, ceiling_ms, block_size(self._outliers))
        begins = {p: borne_out(block, queries[p].time_ms) for p, block in blocks.items()}
        return none | {p: TimeAnswer(at, queries[p].time_ms, True) for p, at in begins.items() if at is not None}

    def _search(self, queries: Mapping[int, TimeQuery], ceiling_ms: int, outliers: int) -> dict[int, TimeAnswer]:
        """Runs all searches in lockstep: each round reads one block of every partition that is still being searched."""
        starts = self._all(queries, OffsetSpec.earliest())
        searches = {
            p: search(replace(query, lo=min(max(query.lo, starts[p].offset), query.hi)), outliers)
            for p, query in queries.items()
        }
        size = block_size(outliers)

        def blocks(probes: Mapping[int, BlockQuery]) -> dict[int, list[Timed]]:
            onward = {p: (probe.start, probe.end) for p, probe in probes.items() if probe.start is not None}
            last = {p: probe.end for p, probe in probes.items() if probe.start is None}
            times = self.valid_times(onward, ceiling_ms, size) if onward else {}
            return times | (self.last_times(last, ceiling_ms, size) if last else {})

        return run_in_rounds(searches, blocks)

    def _valid(self, given: Iterable[Record], ceiling_ms: int) -> list[tuple[Record, int]]:
        """Returns the records with a valid time, each with its time."""
        records = list(given)
        stamps = pa.array([record.timestamp_ms for record in records], pa.int64())
        types = pa.array([record.timestamp_type for record in records], pa.int8())
        values = pa.array([record.value for record in records], pa.binary())
        headers = pa.array([record.headers or None for record in records], HEADERS)
        times = event_times(self._time_of, stamps, values if self._as_json is None else self._as_json(values), headers)
        counts = valid(times, ceilings(stamps, types, ceiling_ms, self._skew_ms))
        both = zip(records, times.to_pylist(), counts.to_pylist(), strict=True)
        return [(record, at) for record, at, counts_ in both if counts_]

    def _index(self, times_ms: Mapping[int, int]) -> dict[int, Any]:
        return self._offsets({p: OffsetSpec.for_timestamp(max(at, 0)) for p, at in times_ms.items()})

    def _all(self, partitions: Iterable[int], spec: Any) -> dict[int, Any]:
        return self._offsets(dict.fromkeys(partitions, spec))

    def _of_all(
        self, logs: Iterable[BrokerLog], spec: Any, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[str, dict[int, Any]]:
        """Asks the same of every partition of these topics, in one call. Returns the answers by topic."""
        partitions_of = {log.topic: log._known() for log in logs}
        asked = {TopicPartition(topic, p): spec for topic, partitions in partitions_of.items() for p in partitions}
        offsets = self._listed(asked, isolation)
        return {topic: {p: offsets[topic, p] for p in partitions} for topic, partitions in partitions_of.items()}

    def _offsets(self, specs: Mapping[int, Any]) -> dict[int, Any]:
        """Returns what the broker reports for each partition (`offset`, `timestamp`, `leader_epoch`), in one call."""
        asked = {TopicPartition(self._topic, p): spec for p, spec in specs.items()}
        offsets = self._listed(asked, IsolationLevel.READ_UNCOMMITTED)
        return {p: answer for (_, p), answer in offsets.items()}

    def _listed(self, specs: Mapping[TopicPartition, Any], isolation: IsolationLevel) -> dict[tuple[str, int], Any]:
        """Returns the same as `_offsets`, by topic and partition."""
        if not specs:
            return {}

        def ask() -> dict[tuple[str, int], Any]:
            futures = self._admin.list_offsets(
                dict(specs), isolation_level=isolation, request_timeout=_ANSWERED_WITHIN_S
            )
            results = {(at.topic, at.partition): self._result(future, at) for at, future in futures.items()}
            missing = [f"{topic}-{p}" for (topic, p), answer in results.items() if answer.offset == OFFSET_INVALID]
            if missing:  # neither an error nor an answer
                raise KafkaUnavailable(f"look-up of {', '.join(missing)} got no answer")
            return results

        return self._retried(ask, {at.topic for at in specs})

    def _known(self) -> range:
        """Returns the partitions, by the last reported count."""
        return range(self._partitions if self._partitions is not None else self.partition_count())

    def _describe(self) -> Any:
        def ask() -> Any:
            futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_ANSWERED_WITHIN_S)
            return self._result(futures[self._topic])

        return self._retried(ask)

    def _retried(self, ask: Callable[[], T], topics: Iterable[str] = ()) -> T:
        """Retries a call. Before, the client refreshes its brokers and leaders, of this topic unless others are given.

        For minutes after a broker was restarted, librdkafka by itself asks with an old leader epoch, and waits for a
        controller that it does not know. A client that has asked for other partitions of a topic does not see one that
        was added since, even if another client was told of it.
        """

        def asked() -> T:
            try:
                return ask()
            except (KafkaUnavailable, TopicMissing):
                for topic in topics or (self._topic,):
                    client.learn(self._admin, topic, client.LEARN_TIMEOUT_S)
                raise

        return client.retried(asked, self._kafka, self._tried_for_s)

    def _result(self, future: Any, at: TopicPartition | None = None) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            self._admin.poll(0)
            topic, partition = (self._topic, None) if at is None else (at.topic, at.partition)
            raise client.translate(error.args[0], "look-up", topic, partition, self._trouble) from error

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error


def stable_ends(logs: Iterable[BrokerLog]) -> dict[str, dict[int, int]]:
    """Returns the last stable offset of every partition of topics of the same brokers, by topic, in one call."""
    asked = list(logs)
    ends = asked[0]._of_all(asked, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED) if asked else {}
    return {topic: {p: end.offset for p, end in by_partition.items()} for topic, by_partition in ends.items()}


def _or_beyond(offset: int) -> int:
    return offset if offset >= 0 else BEYOND_THE_LOG
