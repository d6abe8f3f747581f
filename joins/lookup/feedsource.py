"""The Spark edge of the feeder: a streaming source that feeds while reading; its offsets are batches (`feed.Fed`).

    latestOffset   the next batch: what Kafka holds, for the pinned store. Before the first one is logged, the store is
                   told from which time it is fed (`retained_from`)
    read           on an executor: the range goes to the store, one summary row comes back
    commit         the positions of a committed batch go to the consumer group that the collector watches

An unreachable broker or store holds the feeder, with a line in the log; so does a clock that is behind the records,
which would turn most of them into dead letters. After `unreachable_for` the feeder fails.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from datadelay.positions.group import note_of_store
from joins.errors import ClockBehind, NoRetention, StoreUnreachable
from joins.lookup.feed import Fed, FeedSpec, Span, never_fed_below, proven_by
from joins.lookup.feedstage import AWAY, SUMMARY_SCHEMA, FeedTicket, feed, feed_client
from joins.lookup.refusal import REFUSED, refused
from joins.window.clockcheck import look_at_clock
from joins.window.guard import LONGEST_DOWNTIME_MS, refuse_compaction
from joins.window.source import SAY_EVERY_S, Gate
from kafkaio.blocksearch import block_size
from kafkaio.brokerlog import BrokerLog
from kafkaio.clock import not_before
from kafkaio.errors import KafkaIOError, KafkaUnavailable
from kafkaio.eventtime import TimeOf
from kafkaio.groups import GroupOffsets
from kafkaio.now import wall_ms
from kafkaio.topiclog import Ends, TimeQuery, TopicLog
from storage.client import StorageClient
from storage.errors import AnswerNotUnderstood
from storage.wire import NamespaceBody

log = logging.getLogger("joins.lookup")

STORE_LOOK_EVERY_S = 1.0
ONE_TRY_S = 2.0


def feed_source(spec: FeedSpec, gate: Gate) -> type[DataSource]:
    """A data source class for one feeder. The spec travels in the class, so it appears in no plan or log."""

    class Feeder(DataSource):
        @classmethod
        def name(cls) -> str:
            return "teacup_feeder_" + "".join(c if c.isalnum() else "_" for c in spec.name).lower()

        def schema(self) -> str:
            return SUMMARY_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return FeedReader(spec, gate)

    return Feeder


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own beside the driver. Connects on first use, because it is also sent to executors."""

    def __init__(self, spec: FeedSpec, gate: Gate) -> None:
        self._spec, self._gate = spec, gate
        self._log: BrokerLog | None = None
        self._client: StorageClient | None = None
        self._store: NamespaceBody | None = None
        self._looked_at_s = 0.0
        self._said_at = 0.0
        self._until_now = False
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        away_since_s: float | None = None
        while self._gate.stop_file is None or not self._gate.stop_file.exists():
            try:
                planned = self._plan(start)
            except (
                KafkaUnavailable,
                ClockBehind,
                AnswerNotUnderstood,
                *AWAY,
            ) as error:  # a load balancer's page is not an answer either
                away_since_s = away_since_s or time.monotonic()
                waited_s = time.monotonic() - away_since_s
                gives_up_s = self._gate.unreachable_for_s
                if not isinstance(error, KafkaUnavailable | ClockBehind):
                    gives_up_s = self._spec.storage.unreachable_for_s
                if waited_s > gives_up_s:
                    if isinstance(error, KafkaUnavailable | ClockBehind):
                        raise
                    raise StoreUnreachable(f"the storage API was unreachable for {waited_s:.0f} s: {error}") from error
                self._say(f"holds: {error} (for {waited_s:.0f} s now; gives up after {gives_up_s:.0f} s)")
                if isinstance(error, KafkaUnavailable):
                    self._disconnect()  # the next attempt opens a new connection: librdkafka may never reconnect
                time.sleep(0.5)
                continue
            except REFUSED as error:
                raise refused(self._spec.name, error) from error
            return start if planned is None else planned.to_json()
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not end:
            return []
        fed = Fed.from_json(end)
        fed.check_belongs_to(self._spec)
        namespace = self._namespace_waited_for()
        fed.check_store(namespace.name, namespace.generation)
        spans = {p: span for p, span in sorted(fed.spans.items()) if span.records}
        tickets = [
            FeedTicket(
                partition=p,
                start=span.start,
                end=span.end,
                newest_ms=span.newest_ms,
                number=fed.number,
                parts=len(spans),
                ceiling_ms=fed.listed_ms + self._spec.max_future_skew_ms,
                retention_ms=_retention(namespace),
                store_generation=fed.store_generation,
            )
            for p, span in spans.items()
        ]
        return [InputPartition(json.dumps(asdict(ticket))) for ticket in tickets]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return feed(self._spec, [json.loads(partition.value)])

    def commit(self, end: dict[str, Any]) -> None:
        """Publish positions for the collector. The checkpoint is the source of truth; a failure here is only logged."""
        if self._gate.commit_group is None or not end:
            return
        try:
            commit_fed(self._spec, self._gate.commit_group, Fed.from_json(end))
        except KafkaIOError as error:
            log.warning("positions were not committed to group %r: %s", self._gate.commit_group, error)

    def stop(self) -> None:
        self._disconnect()
        if self._client is not None:
            self._client.close()

    def _disconnect(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _connected(self) -> BrokerLog:
        spec = self._spec
        if self._log is None:
            self._log = BrokerLog(spec.right.topic, spec.kafka, TimeOf(spec.right.time))
            if spec.on_data_loss == "stop":  # records that compaction removes unread would never be stored
                config, what = self._log.config(), "a day of downtime"
                refuse_compaction(spec.right.topic, config, LONGEST_DOWNTIME_MS, "the feeder", what)
        return self._log

    def _plan(self, start: Mapping[str, Any]) -> Fed | None:
        """The batch after `start`; None when there is nothing to do."""
        spec = self._spec
        right = self._connected()
        namespace = self._namespace()
        listed_ms = wall_ms()
        if not start:
            right.partition_count()
            ends = self._frozen(right.ends())
            begun = begin(spec, namespace.generation, ends, right, listed_ms)
            self._tell_the_start({p: span.end for p, span in begun.spans.items()}, ends, right, listed_ms)
            # Logged even with no record to read: `start: latest` must not move to a later end at each attempt.
            return begun
        state = Fed.from_json(start)
        state.check_belongs_to(spec)
        state.check_store(namespace.name, namespace.generation)
        state.check_topic(spec, right.topic_id())
        if (reason := not_before(listed_ms, state.listed_ms)) is not None:
            raise ClockBehind(reason)
        right.partition_count()
        ends = self._frozen(right.ends())
        after = state.after(spec, ends, listed_ms)
        if after is None:
            return None
        if after.skipped > state.skipped:
            lost = {p: span.start for p, span in after.spans.items() if span.start > _end_of(state, p)}
            self._tell_the_start(lost, ends, right, listed_ms)
        ceiling_ms = listed_ms + spec.max_future_skew_ms
        read = {p: (span.start, span.end) for p, span in after.spans.items() if span.records}
        look_at_clock(right, read, ceiling_ms, listed_ms)
        reads = {p: span.start for p, span in after.spans.items() if span.records and span.start}
        newest = right.newest(reads, ceiling_ms) if reads else {}
        spans = {p: replace(span, newest_ms=newest.get(p)) for p, span in after.spans.items()}
        return replace(after, spans=spans)

    def _tell_the_start(
        self, starts: Mapping[int, int], ends: Mapping[int, Ends], right: TopicLog, listed_ms: int
    ) -> None:
        """Right records before these offsets are not in the store: report that to whoever looks something up."""
        spec, ceiling_ms = self._spec, listed_ms + self._spec.max_future_skew_ms
        begun = {p: at for p, at in starts.items() if at > 0}
        if not begun:
            return
        block = block_size(right.outliers)
        before = right.last_times(begun, ceiling_ms, block)
        behind = right.valid_times({p: (at, ends[p].stable) for p, at in begun.items()}, ceiling_ms, block)
        newest = {p: max((at for _, at in some), default=None) for p, some in before.items()}
        first = {p: proven_by([at for _, at in some], block) for p, some in behind.items()}
        below_ms = never_fed_below(begun, newest, first, spec.right.disorder_ms, ceiling_ms)
        if below_ms is not None:
            assert self._client is not None
            self._client.raise_retained_from(spec.storage.namespace, below_ms)

    def _namespace(self) -> NamespaceBody:
        """The namespace as it was at most a second ago."""
        if self._client is None:
            self._client = feed_client(self._spec, ONE_TRY_S)  # `latestOffset` itself logs and limits the waiting
        if self._store is None or time.monotonic() - self._looked_at_s > STORE_LOOK_EVERY_S:
            self._store = self._client.namespace(self._spec.storage.namespace)
            self._looked_at_s = time.monotonic()
            _retention(self._store)
        return self._store

    def _namespace_waited_for(self) -> NamespaceBody:
        """At a restart Spark runs the last batch again without asking for a new one. Here too a store may be
        unreachable for a while, which the client logs."""
        if self._store is not None and time.monotonic() - self._looked_at_s <= STORE_LOOK_EVERY_S:
            return self._store
        try:
            with feed_client(self._spec) as patient:
                namespace = patient.namespace(self._spec.storage.namespace)
        except AWAY as error:
            raise StoreUnreachable(
                f"the storage API was unreachable for {self._spec.storage.unreachable_for_s:g} s: {error}"
            ) from error
        except REFUSED as error:
            raise refused(self._spec.name, error) from error
        _retention(namespace)
        return namespace

    def _frozen(self, ends: Mapping[int, Ends]) -> Mapping[int, Ends]:
        """Under `availableNow` the topic keeps its first listed ends."""
        if not self._until_now:
            return ends
        if self._target is None:
            self._target = {p: end.stable for p, end in ends.items()}
        target = self._target
        return {p: replace(end, stable=min(end.stable, target.get(p, 0))) for p, end in ends.items()}

    def _say(self, line: str) -> None:
        if time.monotonic() - self._said_at > SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.warning("%s %s", self._spec.name, line)


def begin(spec: FeedSpec, generation: str, ends: Mapping[int, Ends], right: TopicLog, listed_ms: int) -> Fed:
    """The batch before the first one: nothing read, all positions set."""
    if spec.start == "earliest":
        at = {p: end.start for p, end in ends.items()}
    elif spec.start == "latest":
        at = {p: end.stable for p, end in ends.items()}
    else:
        margin = spec.right.disorder_ms
        queries = {p: TimeQuery(int(spec.start), end.start, end.stable, margin) for p, end in ends.items()}
        found = right.first_at_or_after(queries, listed_ms + spec.max_future_skew_ms)
        at = {p: answer.offset for p, answer in found.items()}
    return Fed(
        number=0,
        listed_ms=listed_ms,
        identity=spec.identity(),
        topic_id=right.topic_id(),
        store_generation=generation,
        spans={p: Span(offset, offset) for p, offset in at.items()},
    )


def commit_fed(spec: FeedSpec, group: str, fed: Fed) -> None:
    """Commit a batch's positions, and the store that they apply to, to a group; raises `KafkaIOError`."""
    offsets = GroupOffsets(group, spec.kafka)
    try:
        positions = {(spec.right.topic, p): span.end for p, span in fed.spans.items()}
        offsets.commit(positions, note_of_store(fed.store_generation))
    finally:
        offsets.close()


def _end_of(fed: Fed, partition: int) -> int:
    return fed.spans[partition].end if partition in fed.spans else 0


def _retention(namespace: NamespaceBody) -> int:
    if namespace.retention_ms is None:
        raise NoRetention(
            f"namespace {namespace.name!r} has no retention_ms: how long right records live would be unknown to joins; "
            "configure one of another name with `retention_ms` at the storage API, and feed that"
        )
    return namespace.retention_ms
