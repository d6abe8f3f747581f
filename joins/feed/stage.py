"""A feeder's task: a range of right -> items -> storage API, in parallel requests of bounded size.

The next records are fetched while the requests of the previous ones are in flight. The summary goes back only after
every item is acknowledged (`ok`, or `conflict`: a newer one is kept), what cannot be stored is safe in the dead-letter
topic, and the namespace still has the pinned generation, so no acknowledgement comes from a store that is gone.

A record without a key is counted but is not a dead letter: it can match nothing. One that has expired when it is read
is counted and sent like any other, because the store's clock decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from datadelay.progress import UNKNOWN
from joins.admission.passage import lags_of
from joins.errors import NoDeadLetterTopic, StoreUnreachable, StoreWiped
from joins.feed.feed import FeedSpec, FeedStorage
from joins.feed.rightrow import to_items
from joins.lookup.refusal import REFUSED, refused
from joins.rows.intake import take_in
from joins.rows.records import RECORD, side_columns
from kafkaio.delivery import failpoint
from kafkaio.errors import KafkaIOError, RecordTooLarge
from kafkaio.headers import OUTCOME, REASON, RIGHT, TOPIC
from kafkaio.now import wall_ms
from kafkaio.perprocess import PerProcess
from kafkaio.producible import restamped, shortened
from kafkaio.rangereader import open_reader
from kafkaio.topiclimits import forget_limits, limits_of, within_limits
from kafkaio.writer import discard_writer, open_writer
from sparkio.summaries import summary_rows
from storage.client import StorageClient
from storage.errors import ItemsUnsettled, RateLimited, ServerUnavailable
from storage.model import Status

UNREACHABLE = (ItemsUnsettled, RateLimited, ServerUnavailable)
_PENDING = pl.Schema({**RECORD, "late": pl.Boolean()})


@dataclass(frozen=True, slots=True)
class FeedTicket:
    """A task's input: the range, one of `parts` of its batch, and what was known when it was admitted."""

    partition: int
    start: int
    end: int
    newest_ms: int | None
    number: int
    parts: int
    ceiling_ms: int
    retention_ms: int
    store_generation: str


@dataclass(slots=True)
class FeedSummary:
    """Counts of one task's records. read = stored + conflict + null_key + dead (rejected ones are dead)."""

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
    dead: dict[str, int] = field(default_factory=dict)
    newest_ms: int | None = None
    disorder_ms: int = 0


class FeedTask:
    """Carries out one ticket."""

    def __init__(self, spec: FeedSpec, ticket: FeedTicket) -> None:
        self._spec, self._ticket = spec, ticket
        self._summary = FeedSummary(
            ticket.partition, ticket.number, ticket.parts, ticket.end, newest_ms=ticket.newest_ms
        )
        self._store = store_of(spec)

    def carry_out(self) -> FeedSummary:
        spec, ticket, summary = self._spec, self._ticket, self._summary
        reader = open_reader(spec.right.topic, spec.kafka)
        under_way: list[tuple[pl.DataFrame, Future[pa.Table]]] = []
        failpoint.reach("before_produce")
        try:
            for batch in reader.read(ticket.partition, ticket.start, ticket.end):
                records = self._taken_in(batch)
                self._settle(under_way)
                under_way = self._send(records)
                failpoint.reach("producing")
            self._settle(under_way)
        finally:
            for _, future in under_way:
                future.cancel()
        self._flush_aside()
        failpoint.reach("after_commit")
        generation = self._store.generation()
        if generation != ticket.store_generation:
            raise StoreWiped(
                f"namespace {spec.storage.namespace!r} became generation {generation} while it was fed as "
                f"{ticket.store_generation}: the store was wiped or replaced; feed again with a new checkpoint"
            )
        return summary

    def _taken_in(self, batch: pa.RecordBatch) -> pl.DataFrame:
        """The records that can be stored, with `late`; the others are counted and sent to the dead-letter topic."""
        spec, summary = self._spec, self._summary
        known = summary.newest_ms
        summary.read += batch.num_rows
        skew_ms = spec.max_future_skew_ms
        taken = take_in("right", spec.right, batch, self._ticket.ceiling_ms - skew_ms, skew_ms, UNKNOWN)
        if len(taken.dead):
            dead = taken.dead.select("reason", **{name: f"right_{name}" for name in RECORD})
            self._put_aside(dead, dead["reason"])
        times = taken.records["time"].to_numpy()
        lags_ms, summary.newest_ms = lags_of(times, known)
        summary.disorder_ms = max(summary.disorder_ms, int(lags_ms.max(initial=0)))
        records = taken.records.with_columns(late=pl.Series(lags_ms > spec.right.disorder_ms))
        summary.null_key += records["key"].null_count()
        if records["key"].null_count():
            records = records.filter(pl.col("key").is_not_null())
        now_ms = wall_ms()
        summary.late += int(records["late"].sum())
        summary.expired += int((records["time"] + self._ticket.retention_ms <= now_ms).sum())
        return records.cast(_PENDING)

    def _send(self, records: pl.DataFrame) -> list[tuple[pl.DataFrame, Future[pa.Table]]]:
        parts = records.iter_slices(self._spec.storage.items_per_request) if len(records) else ()
        return [(part, self._store.write(part, self._ticket.retention_ms)) for part in parts]

    def _settle(self, under_way: list[tuple[pl.DataFrame, Future[pa.Table]]]) -> None:
        """Wait until every item of these requests is acknowledged; rejected ones go to the dead-letter topic."""
        for part, future in under_way:
            refused = pl.DataFrame(pl.from_arrow(future.result()))
            rejected = refused.filter(pl.col("status") == Status.REJECTED.value)
            conflicts = len(refused) - len(rejected)
            self._summary.conflict += conflicts
            self._summary.stored += len(part) - len(refused)
            if len(rejected):
                records = part[rejected["index"].to_list()]
                self._put_aside(records, pl.select("rejected: " + pl.lit(rejected["reason"])).to_series())

    def _put_aside(self, records: pl.DataFrame, reasons: pl.Series) -> None:
        spec, first = self._spec, records.row(0, named=True)
        topic = spec.right.topic
        if spec.dead_letter is None:
            raise NoDeadLetterTopic(
                f"right {topic}-{first['partition']} offset {first['offset']}"
                f"{f' (and {len(records) - 1} more)' if len(records) > 1 else ''} cannot be stored "
                f"({reasons[0]}): name a dead-letter topic (`topics.dead_letter`), fix the "
                "producer, or raise the namespace's limits"
            )
        for reason in reasons:
            kind = reason.partition(":")[0]
            self._summary.dead[kind] = self._summary.dead.get(kind, 0) + 1
        headers = [
            [
                *((one["key"], one["value"]) for one in own or ()),
                (TOPIC, topic),
                (RIGHT, f"{partition}:{offset}"),
                (OUTCOME, "dead_letter"),
                (REASON, reason),
            ]
            for own, partition, offset, reason in zip(
                *(records[name].to_list() for name in ("headers", "partition", "offset")), reasons, strict=True
            )
        ]
        limits = limits_of(spec.kafka, [spec.dead_letter])[spec.dead_letter]
        times, annotated = restamped(records["time"].to_list(), headers, limits, wall_ms())
        copies = [
            shortened(key, value, own or [], limits, f"the dead letter of {topic}-{partition} offset {offset}")
            for key, value, own, partition, offset in zip(
                records[side_columns(records)["key"]],
                records["value"],
                annotated,
                records["partition"],
                records["offset"],
                strict=True,
            )
        ]
        keys, values, own_headers = (list(column) for column in zip(*copies, strict=True))
        kafka = self._aside()
        try:
            open_writer(kafka).write(spec.dead_letter, keys, values, own_headers, times)
        except KafkaIOError:
            discard_writer(kafka)
            raise

    def _aside(self) -> dict[str, str]:
        """The properties of the producer for dead letters."""
        spec = self._spec
        return within_limits(spec.kafka, limits_of(spec.kafka, [spec.dead_letter]))

    def _flush_aside(self) -> None:
        if not self._summary.dead:
            return
        kafka = self._aside()
        try:
            open_writer(kafka).flush()
        except KafkaIOError:
            discard_writer(kafka)
            forget_limits(self._spec.kafka, limits_of(self._spec.kafka, [self._spec.dead_letter]))
            raise


class FeedStore:
    """One process's access to the namespace: a client, and as many threads as concurrent requests are allowed."""

    def __init__(self, spec: FeedSpec) -> None:
        self._spec = spec
        self._client = feed_client(spec)
        self._pool = ThreadPoolExecutor(spec.storage.requests_at_once, thread_name_prefix="feed")

    def write(self, records: pl.DataFrame, retention_ms: int) -> Future[pa.Table]:
        """The items that are not kept, as `StorageClient.write_table` returns them."""

        def send() -> pa.Table:
            items = to_items(records.drop("late"), records["late"], retention_ms)
            try:
                return self._client.write_table(self._spec.storage.namespace, items)
            except UNREACHABLE as error:
                raise self._away(error) from error
            except REFUSED as error:
                raise refused(self._spec.name, error) from error

        return self._pool.submit(send)

    def generation(self) -> str:
        try:
            return self._client.namespace(self._spec.storage.namespace).generation
        except UNREACHABLE as error:
            raise self._away(error) from error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _away(self, error: Exception) -> StoreUnreachable:
        at = self._spec.storage
        return StoreUnreachable(
            f"namespace {at.namespace!r} of {at.url} accepted nothing for {at.unreachable_for_s:g} s "
            f"({error}); start the storage API: the feeder then continues from its checkpoint"
        )


def feed_client(spec: FeedSpec, give_up_after_s: float | None = None) -> StorageClient:
    """A client as patient as the feeder's configuration says; each wait is logged."""
    at = spec.storage
    return StorageClient(
        at.url,
        at.token,
        connect_timeout_s=at.connect_timeout_s,
        read_timeout_s=at.read_timeout_s,
        attempts=1_000_000,
        give_up_after_s=at.unreachable_for_s if give_up_after_s is None else give_up_after_s,
    )


_stores: PerProcess[tuple[str, FeedStorage], FeedStore] = PerProcess(2, FeedStore.close)


def store_of(spec: FeedSpec) -> FeedStore:
    """This process's store, kept open between tasks."""
    return _stores.get((spec.name, spec.storage), lambda: FeedStore(spec))


def feed(spec: FeedSpec, tickets: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Tickets as JSON objects -> one `FeedSummary` each, as a row."""
    summaries = (FeedTask(spec, FeedTicket(**ticket)).carry_out() for ticket in tickets)
    return summary_rows(summaries, NoDeadLetterTopic, RecordTooLarge)
