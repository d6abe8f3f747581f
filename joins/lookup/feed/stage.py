"""The feeder's task: writes a range of right to the storage API as items, in parallel requests of bounded size.

The next records are fetched while the requests of the previous ones are in flight. The summary is returned only once
every item is acknowledged (`ok`, or `conflict`: a newer one is kept), what cannot be stored is safe in the dead-letter
topic, and the namespace still has the pinned generation. If compaction has removed versions of a table that changes,
the task tells the namespace from which time on every version is known. Each request names that generation, so no other
store, and none that has lost data, can acknowledge it.

A record without a key is counted but is no dead letter, because it can match nothing. A record that has expired when it
is read is counted and sent like any other, because the store's clock decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec
import polars as pl
import pyarrow as pa

from datadelay.watermark import UNKNOWN
from joins.errors import NO_RETRY_HELPS, DataLoss, NoDeadLetterTopic, StoreUnreachable, StoreWiped
from joins.lookup.feed.spec import WAY_OUT, Compaction, FeedSpec, FeedStorage
from joins.lookup.key_lookup import REFUSED, refused, storage_client
from joins.lookup.right_items import to_items
from joins.outcome import Outcome
from joins.read.deserialize import SideReader
from joins.read.parse import locate, parse
from joins.read.range_gate import lags_of
from joins.rows.frames import RECORD, rows_about
from joins.rows.outgoing import and_more, copies_of, position_of
from teacup.base.now import wall_ms
from teacup.base.process import PerProcess
from teacup.base.stage_times import StageTimes
from teacup.base.times import iso
from teacup.kafka.delivery.failpoints import failpoint
from teacup.kafka.errors import KafkaIOError, OffsetOutOfRange
from teacup.kafka.headers import REJECTED
from teacup.kafka.write.topic_limits import forget_limits, limits_of, within_limits
from teacup.kafka.write.writer import discard_writer, open_writer
from teacup.spark.jvm_errors import FIRST_TRY, TaskRun, summary_rows
from teacup.spark.worker import this_task
from teacup.storage.client import StorageClient
from teacup.storage.errors import GenerationChanged, ItemsUnsettled, RateLimited, ServerUnavailable
from teacup.storage.model import Status

UNREACHABLE = (ItemsUnsettled, RateLimited, ServerUnavailable)
_PENDING = pl.Schema({**RECORD, "late": pl.Boolean(), "deleted": pl.Boolean()})


@dataclass(frozen=True, slots=True)
class FeedTicket:
    """A task's input: one of the batch's `parts` ranges, and what was known when it was planned."""

    partition: int
    start: int
    end: int
    newest_ms: int | None
    number: int
    parts: int
    ceiling_ms: int
    retention_ms: int
    store_generation: str
    compaction: Compaction | None = None
    unread: int = 0


@dataclass(slots=True)
class FeedSummary:
    """Counts of one task's records: read = stored + conflict + null_key + skipped + dead (including rejected items).

    unread          offsets of the partition behind these, when the batch was planned
    known_from_ms   compaction has removed some of the offsets: from this time on no version is missing
    """

    partition: int
    number: int
    parts: int
    end: int
    read: int = 0
    stored: int = 0
    conflict: int = 0
    null_key: int = 0
    expired: int = 0
    late: int = 0
    skipped: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    unread: int = 0
    known_from_ms: int | None = None
    newest_ms: int | None = None
    disorder_ms: int = 0
    seconds: dict[str, float] = field(default_factory=dict, compare=False)
    task: TaskRun = FIRST_TRY


class FeedTask:
    """Carries out one ticket."""

    def __init__(self, spec: FeedSpec, ticket: FeedTicket) -> None:
        self._spec, self._ticket = spec, ticket
        self._summary = FeedSummary(
            ticket.partition, ticket.number, ticket.parts, ticket.end, newest_ms=ticket.newest_ms, unread=ticket.unread
        )
        self._store = store_of(spec)
        self._times = StageTimes(time.perf_counter)
        self._before_ms: int | None = None  # the time of the record before the next batch
        self._summary.task = this_task()

    def run(self) -> FeedSummary:
        """Feeds the range. Raises `StoreUnreachable` and the errors in `NO_RETRY_HELPS`."""
        spec, ticket, summary = self._spec, self._ticket, self._summary
        reader = SideReader(spec.right, spec.kafka, spec.registry)
        under_way: list[tuple[pl.DataFrame, Future[pa.Table]]] = []
        self._before_ms = self._time_before(reader)
        failpoint("before_produce")
        try:
            with spec.losses.of_planned(WAY_OUT):
                for batch in self._times.over("fetch", reader.read(ticket.partition, ticket.start, ticket.end)):
                    records = self._parsed(batch)
                    self._settle(under_way)
                    under_way = self._send(records)
                    failpoint("producing")
            self._settle(under_way)
        finally:
            for _, future in under_way:
                future.cancel()
        self._flush_dead_letters()
        self._account_for_compaction()
        failpoint("after_commit")
        with self._times.within("commit"):
            self._store.check_generation(ticket.store_generation)
        summary.seconds = self._times.seconds
        return summary

    def _time_before(self, reader: SideReader) -> int | None:
        """Returns the time of the record before the range, which a delete without a time of its own takes.

        If that record is gone, it is a time that no timely record is below.
        """
        spec, ticket = self._spec, self._ticket
        if not (spec.of_versions and spec.right.payload_time) or ticket.newest_ms is None:
            return None
        with suppress(OffsetOutOfRange):
            for batch in reader.read(ticket.partition, ticket.start - 1, ticket.start):
                if len(times := locate(spec.right, batch).times.drop_null()):
                    return int(times[-1].as_py())
        return ticket.newest_ms - spec.right.disorder_ms

    def _account_for_compaction(self) -> None:
        """Raises the namespace's `retained_from` if offsets are missing. Raises `DataLoss` if deletes may be."""
        spec, ticket, now_ms = self._spec, self._ticket, wall_ms()
        missing = ticket.end - ticket.start - self._summary.read
        if ticket.compaction is None or not missing:
            return
        if ticket.compaction.has_lost_deletes(now_ms) and spec.on_data_loss == "stop":
            raise DataLoss(
                f"{missing} of the offsets {ticket.start} to {ticket.end} of {spec.right.topic}-{ticket.partition} are "
                f"missing, and the topic was last read to its end at {iso(ticket.compaction.whole_ms)}, longer ago "
                "than its delete.retention.ms: deletes may be among them, and deleted keys would stay. Raise it, and "
                "feed a namespace of another name; or go on (`on_data_loss: continue`), if none can be"
            )
        skew_ms = spec.max_future_skew_ms if spec.right.payload_time else 0
        self._summary.known_from_ms = ticket.compaction.known_from(now_ms, skew_ms)
        self._store.raise_retained_from(self._summary.known_from_ms)

    def _parsed(self, batch: pa.RecordBatch) -> pl.DataFrame:
        """Returns the storable records with a column `late`. Counts the others and writes dead letters."""
        spec, summary = self._spec, self._summary
        newest_ms = summary.newest_ms
        summary.read += batch.num_rows
        skew_ms = spec.max_future_skew_ms
        ceiling_ms = self._ticket.ceiling_ms - skew_ms
        taken = parse("right", spec.right, batch, ceiling_ms, skew_ms, UNKNOWN, self._before_ms)
        if len(taken.records):
            self._before_ms = int(taken.records["time"][-1])
        if len(taken.dead):
            skipped = taken.dead["outcome"] == Outcome.SKIPPED
            summary.skipped += int(skipped.sum())
            if not skipped.all():
                self._write_dead_letters(taken.dead.filter(~skipped))
        times = taken.records["time"].to_numpy()
        lags_ms, summary.newest_ms = lags_of(times, newest_ms)
        summary.disorder_ms = max(summary.disorder_ms, int(lags_ms.max(initial=0)))
        records = taken.records.with_columns(late=pl.Series(lags_ms > spec.right.disorder_ms), deleted=taken.deleted)
        summary.null_key += records["key"].null_count()
        if records["key"].null_count():
            records = records.filter(pl.col("key").is_not_null())
        now_ms = wall_ms()
        summary.late += int(records["late"].sum())
        summary.expired += int((records["time"] + self._ticket.retention_ms <= now_ms).sum())
        return records.cast(_PENDING)

    def _send(self, records: pl.DataFrame) -> list[tuple[pl.DataFrame, Future[pa.Table]]]:
        parts = records.iter_slices(self._spec.storage.items_per_request) if len(records) else ()
        ticket = self._ticket
        return [(part, self._store.write(part, ticket.retention_ms, ticket.store_generation)) for part in parts]

    def _settle(self, under_way: list[tuple[pl.DataFrame, Future[pa.Table]]]) -> None:
        """Waits until every item of these requests is acknowledged. Rejected items go to the dead-letter topic."""
        for part, future in under_way:
            with self._times.within("store"):
                refused = pl.DataFrame(pl.from_arrow(future.result()))
            rejected = refused.filter(pl.col("status") == Status.REJECTED.value)
            conflicts = len(refused) - len(rejected)
            self._summary.conflict += conflicts
            self._summary.stored += len(part) - len(refused)
            if len(rejected):
                records = part[rejected["index"].to_list()]
                reasons = pl.select(f"{REJECTED}: " + pl.lit(rejected["reason"])).to_series()
                self._write_dead_letters(rows_about("right", records, Outcome.DEAD_LETTER, reasons, late=False))

    def _write_dead_letters(self, rows: pl.DataFrame) -> None:
        """Writes copies of the right records in `rows` (`joins.rows.frames.ROW`). Only the flush makes them safe."""
        spec, topic = self._spec, self._spec.right.topic
        if spec.dead_letter is None:
            raise NoDeadLetterTopic(
                f"right {position_of(topic, 'right', rows, 0)}{and_more(rows)} cannot be stored "
                f"({rows['reason'][0]}): name a dead-letter topic (`topics.dead_letter`), fix the "
                "producer, or raise the namespace's limits"
            )
        for reason in rows["reason"]:
            kind = reason.partition(":")[0]
            self._summary.dead[kind] = self._summary.dead.get(kind, 0) + 1
        limits = limits_of(spec.kafka, [spec.dead_letter])[spec.dead_letter]
        copies = copies_of(topic, "right", rows).restamped(limits, wall_ms())
        copies = copies.shortened(limits, lambda i: f"the dead letter of {position_of(topic, 'right', rows, i)}")
        kafka = self._producer_properties()
        try:
            open_writer(kafka).write(spec.dead_letter, copies.keys, copies.values, copies.headers, copies.times)
        except KafkaIOError:
            discard_writer(kafka)
            raise

    def _producer_properties(self) -> dict[str, str]:
        """Returns the properties of the dead-letter producer."""
        spec = self._spec
        return within_limits(spec.kafka, limits_of(spec.kafka, [spec.dead_letter]))

    def _flush_dead_letters(self) -> None:
        if not self._summary.dead:
            return
        kafka = self._producer_properties()
        try:
            open_writer(kafka).flush()
        except KafkaIOError:
            discard_writer(kafka)
            forget_limits(self._spec.kafka, limits_of(self._spec.kafka, [self._spec.dead_letter]))
            raise


class FeedStore:
    """One process's access to the namespace: a client, and one thread per concurrent request."""

    def __init__(self, spec: FeedSpec) -> None:
        self._spec = spec
        self._client = feed_client(spec)
        self._pool = ThreadPoolExecutor(spec.storage.requests_at_once, thread_name_prefix="feed")

    def write(self, records: pl.DataFrame, retention_ms: int, generation: str) -> Future[pa.Table]:
        """Sends records to a store of this generation. The result lists items that were not kept (`write_table`)."""

        def send() -> pa.Table:
            deleted = records["deleted"] if self._spec.of_versions else None
            items = to_items(records.drop("late", "deleted"), records["late"], retention_ms, deleted, wall_ms())
            with self._asking():
                return self._client.write_table(self._spec.storage.namespace, items, generation)

        return self._pool.submit(send)

    def raise_retained_from(self, time_ms: int) -> None:
        """Records that versions before this time may be missing. Raises `StoreUnreachable` and `CallRefused`."""
        with self._asking():
            self._client.raise_retained_from(self._spec.storage.namespace, time_ms)

    def check_generation(self, fed: str) -> None:
        """Raises `StoreWiped` if the namespace has another generation; also `StoreUnreachable` and `CallRefused`."""
        with self._asking():
            now = self._client.namespace(self._spec.storage.namespace).generation
            if now != fed:
                raise GenerationChanged(f"its generation is {now}, not {fed}")

    def close(self) -> None:
        """Cancels pending requests and closes the client."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        at = self._spec.storage
        try:
            yield
        except UNREACHABLE as error:
            raise StoreUnreachable(
                f"namespace {at.namespace!r} of {at.url} accepted nothing for {at.unreachable_for_s:g} s "
                f"({error}); start the storage API: the feeder then continues from its checkpoint"
            ) from error
        except GenerationChanged as error:
            raise StoreWiped(
                f"namespace {at.namespace!r} became another one while it was fed ({error}): the store was wiped or "
                "replaced; feed again with a new checkpoint"
            ) from error
        except REFUSED as error:
            raise refused(self._spec.name, error) from error


def feed_client(spec: FeedSpec, give_up_after_s: float | None = None) -> StorageClient:
    """Returns a client that retries for as long as the feeder is configured to, and logs what it waits for."""
    patience_s = spec.storage.unreachable_for_s if give_up_after_s is None else give_up_after_s
    return storage_client(spec.storage, attempts=1_000_000, give_up_after_s=patience_s)


_stores: PerProcess[tuple[str, FeedStorage], FeedStore] = PerProcess(2, FeedStore.close)


def store_of(spec: FeedSpec) -> FeedStore:
    """Returns this process's store, kept open between tasks."""
    return _stores.get((spec.name, spec.storage), lambda: FeedStore(spec))


def feed(spec: FeedSpec, tickets: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Carries out the tickets (JSON objects); yields one row per ticket, its `FeedSummary`."""
    summaries = (FeedTask(spec, msgspec.json.decode(ticket, type=FeedTicket)).run() for ticket in tickets)
    return summary_rows(summaries, *NO_RETRY_HELPS)
