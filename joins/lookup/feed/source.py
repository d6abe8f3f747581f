"""Plans a feeder's batches (`FeedBatch`), whose tasks feed while they read.

    plan           the next batch from what Kafka holds, for the pinned store. Before the first batch is logged, the
                   store learns from which time on it is fed (`retained_from`)
    work           a ticket per partition: a task writes its range to the store (`joins.lookup.feed.stage`)
    group_offsets  what the collector finds in the consumer group that it watches

An unreachable broker or store holds the feeder (`teacup.spark.stream_reader`). So does a clock that has jumped or is
behind the records, because it would turn them into dead letters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from datadelay.positions.group import note_of_store
from joins.errors import CallRefused, ClockBehind, NoRetention, StoreUnreachable
from joins.lookup.feed.spec import Compaction, FedRange, FeedBatch, FeedSpec, check_table, never_fed_below, proven_by
from joins.lookup.feed.stage import UNREACHABLE, FeedTicket, feed, feed_client
from joins.lookup.key_lookup import REFUSED, refused
from joins.plan.clock_checks import WRONG_CLOCK, PlanClock, check_last_times
from joins.plan.log_checks import LONGEST_DOWNTIME_MS, is_compacted, refuse_compaction
from joins.read.side_log import side_log
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import Commit
from teacup.kafka.log.losses import epochs_of
from teacup.kafka.log.time_search import TimeFound, block_size, left_behind, look_back
from teacup.kafka.log.topic_log import Ends, TimeQuery, TopicLog
from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader, pickled
from teacup.storage.client import StorageClient
from teacup.storage.codecs.json import NamespaceBody
from teacup.storage.errors import AnswerNotUnderstood
from teacup.storage.model import Keep

log = logging.getLogger("teacup.joins.lookup.feed.source")

STORE_POLL_EVERY_S = 1.0
ONE_TRY_S = 2.0


class FeedReader(StreamReader):
    """Plans batches of right records for the pinned store."""

    def __init__(self, spec: FeedSpec, control: ReaderControl) -> None:
        super().__init__(spec.name, control, pickled(lambda tickets: feed(spec, tickets)))
        self._spec = spec
        self._clock = PlanClock(spec.name, control.anchor)
        self._log: BrokerLog | None = None
        self._client: StorageClient | None = None
        self._store: NamespaceBody | None = None
        self._config: Mapping[str, str] = {}
        self._nothing_unread_ms = 0  # when all was read, and there was nothing more
        self._unread: dict[int, int] = {}  # of the batch that was planned last
        self._polled_at_s = 0.0

    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        try:
            fed = self._next(start)
        except REFUSED as error:
            raise refused(self._spec.name, error) from error
        except (AnswerNotUnderstood, *UNREACHABLE) as error:  # a load balancer's error page counts as unreachable too
            raise StoreUnreachable(f"the storage API is unreachable: {error}") from error
        return None if fed is None else fed.to_json()

    def patience(self, error: Exception) -> tuple[str, float] | None:
        """Also waits for an unreachable store, and until a wrong clock is corrected."""
        if isinstance(error, StoreUnreachable):
            return "other", self._spec.storage.unreachable_for_s
        return WRONG_CLOCK if isinstance(error, ClockBehind) else super().patience(error)

    def work(self, end: dict[str, Any]) -> BatchWork:
        fed = FeedBatch.from_json(end)
        fed.check_belongs_to(self._spec)
        namespace = self._namespace_waited_for()
        fed.check_store(namespace.name, namespace.generation)
        spans = {p: span for p, span in sorted(fed.spans.items()) if span.records}
        compaction = None
        if self._spec.of_versions:
            self._connected()  # for its configuration
            if is_compacted(self._config):
                compaction = Compaction.of(self._config, fed.whole_before_ms)
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
                compaction=compaction,
                unread=self._unread.get(p, 0),
            )
            for p, span in spans.items()
        ]
        return BatchWork([msgspec.json.encode(ticket).decode() for ticket in tickets], list(spans))

    def disconnect(self) -> None:
        for connection in (self._log, self._client):
            if connection is not None:
                connection.close()
        self._log = self._client = None

    def _connected(self) -> BrokerLog:
        spec = self._spec
        if self._log is None:
            self._log = side_log(spec, spec.right)
            self._config = self._log.config()
            if spec.on_data_loss == "stop" and not spec.of_versions:
                what = "a day of downtime"  # compaction could remove records before they are stored
                refuse_compaction(spec.right.topic, self._config, LONGEST_DOWNTIME_MS, "the feeder", what)
        return self._log

    def _next(self, start: Mapping[str, Any]) -> FeedBatch | None:
        """Plans the batch after `start`, or returns None if there is nothing to do."""
        spec = self._spec
        right = self._connected()
        namespace = self._namespace()
        state = FeedBatch.from_json(start) if start else None
        listed_ms = self._clock.now_ms(None if state is None else state.listed_ms)
        if state is None:
            right.partition_count()
            ends = self.within_run(right.ends())
            if spec.of_versions:
                check_table(spec, self._config, ends)
            begun = begin(spec, namespace.generation, ends, right, listed_ms)
            self._tell_the_start({p: span.end for p, span in begun.spans.items()}, ends, right, listed_ms)
            # Logged even without a record to read: `start: latest` must not move to a later end with each attempt.
            return begun
        state.check_belongs_to(spec)
        state.check_store(namespace.name, namespace.generation)
        topic_id, _ = right.described()
        state.check_topic(spec, topic_id)
        ends = self.within_run(right.ends())
        state.check_leaders(spec, ends, right)
        after = state.after(spec, ends, listed_ms)
        if after is None:
            self._nothing_unread_ms = listed_ms
            return None
        self._unread = {p: max(ends[p].stable - span.end, 0) for p, span in after.spans.items() if p in ends}
        after = replace(after, whole_before_ms=max(state.whole_ms, self._nothing_unread_ms))
        if after.skipped > state.skipped:
            reached = {p: span.end for p, span in state.spans.items()}
            lost = {p: span.start for p, span in after.spans.items() if span.start > reached.get(p, 0)}
            self._tell_the_start(lost, ends, right, listed_ms)
        ceiling_ms = listed_ms + spec.max_future_skew_ms
        read = {p: (span.start, span.end) for p, span in after.spans.items() if span.records}
        check_last_times(right, read, ceiling_ms, listed_ms)
        reads = {p: span.start for p, span in after.spans.items() if span.records and span.start}
        newest = right.newest(reads, ceiling_ms) if reads else {}
        spans = {p: replace(span, newest_ms=newest.get(p)) for p, span in after.spans.items()}
        return replace(after, spans=spans)

    def _tell_the_start(
        self, starts: Mapping[int, int], ends: Mapping[int, Ends], right: TopicLog, listed_ms: int
    ) -> None:
        """Tells the store, and through it its readers, that right records before these offsets are missing."""
        spec, ceiling_ms = self._spec, listed_ms + self._spec.max_future_skew_ms
        begun = {p: at for p, at in starts.items() if at > 0}
        if not begun:
            return
        below = {p: (0, at) for p, at in begun.items()}
        check_last_times(right, below, ceiling_ms, listed_ms)  # with a clock that is behind, the time would be too low
        block = block_size(right.outliers)
        before = right.last_times(begun, ceiling_ms, block)
        behind = right.valid_times({p: (at, ends[p].stable) for p, at in begun.items()}, ceiling_ms, block)
        newest = {p: max((at for _, at in some), default=None) for p, some in before.items()}
        above = {p: TimeFound(begun[p], ends[p].start, at + 1) for p, at in newest.items() if at is not None}
        further = look_back(right, above, ceiling_ms)
        newest |= {p: answer.newest_ms for p, answer in further.items() if answer.whole_block}
        first = {p: proven_by([at for _, at in some], block) for p, some in behind.items()}
        below_ms = never_fed_below(begun, newest, first, spec.right.disorder_ms, ceiling_ms)
        if below_ms is not None:
            assert self._client is not None
            self._client.raise_retained_from(spec.storage.namespace, below_ms)

    def _namespace(self) -> NamespaceBody:
        """Returns the namespace, at most a second old."""
        if self._client is None:
            self._client = feed_client(self._spec, ONE_TRY_S)  # the reader itself logs and limits the wait
        if self._store is None or time.monotonic() - self._polled_at_s > STORE_POLL_EVERY_S:
            self._store = self._client.namespace(self._spec.storage.namespace)
            self._polled_at_s = time.monotonic()
            _retention(self._store)
            check_keep(self._spec, self._store)
        return self._store

    def _namespace_waited_for(self) -> NamespaceBody:
        """Returns the namespace, and waits while the store is unreachable; the client logs this.

        After a restart the last batch is run again without planning, where the wait would otherwise happen.
        """
        if self._store is not None and time.monotonic() - self._polled_at_s <= STORE_POLL_EVERY_S:
            return self._store
        try:
            with feed_client(self._spec) as patient:
                namespace = patient.namespace(self._spec.storage.namespace)
        except UNREACHABLE as error:
            raise StoreUnreachable(
                f"the storage API was unreachable for {self._spec.storage.unreachable_for_s:g} s: {error}"
            ) from error
        except REFUSED as error:
            raise refused(self._spec.name, error) from error
        _retention(namespace)
        check_keep(self._spec, namespace)
        return namespace


def check_keep(spec: FeedSpec, namespace: NamespaceBody) -> None:
    """Raises `CallRefused` if the namespace keeps versions and the feeder has no deletes, or the reverse."""
    if (namespace.keep is Keep.VERSIONS) == spec.of_versions:
        return
    if spec.of_versions:
        raise CallRefused(
            f"namespace {namespace.name!r} has `keep: {namespace.keep}`, and `right.tombstones: delete` deletes keys "
            "from some time on: feed a namespace with `keep: versions`"
        )
    raise CallRefused(
        f"namespace {namespace.name!r} keeps versions, and a record without a value is a delete there: set "
        "`right.tombstones: delete`; or feed a namespace with `keep: all`"
    )


def begin(spec: FeedSpec, generation: str, ends: Mapping[int, Ends], right: TopicLog, listed_ms: int) -> FeedBatch:
    """Returns the batch before the first one, with all positions set and nothing to read."""
    if spec.start == "earliest":
        at = {p: end.start for p, end in ends.items()}
    elif spec.start == "latest":
        at = {p: end.stable for p, end in ends.items()}
    else:
        margin = spec.right.disorder_ms
        queries = {p: TimeQuery(int(spec.start), end.start, end.stable, margin) for p, end in ends.items()}
        starts = right.first_at_or_after(queries, listed_ms + spec.max_future_skew_ms, sure=True)
        at = {p: answer.offset for p, answer in starts.items()}
        for text in left_behind(right, at, queries, listed_ms + spec.max_future_skew_ms):
            log.warning(
                "%s: %s: these are not fed. `right.disorder` (%s ms) is too small for them: raise it, and start a new "
                "checkpoint",
                spec.name,
                text,
                margin,
            )
    return FeedBatch(
        number=0,
        listed_ms=listed_ms,
        identity=spec.identity(),
        topic_id=right.topic_id(),
        store_generation=generation,
        spans={p: FedRange(offset, offset) for p, offset in at.items()},
        epochs=epochs_of(ends),
        whole_ms=listed_ms,
    )


def group_offsets(spec: FeedSpec, fed: FeedBatch) -> Commit:
    """Returns what the collector finds in the feeder's group: a batch's positions, and the store that they apply to."""
    return {(spec.right.topic, p): span.end for p, span in fed.spans.items()}, note_of_store(fed.store_generation)


def _retention(namespace: NamespaceBody) -> int:
    if namespace.retention_ms is None:
        raise NoRetention(
            f"namespace {namespace.name!r} has no retention: how long right records live would be unknown to joins; "
            "configure one of another name with `retention` at the storage API, and feed that"
        )
    return namespace.retention_ms
