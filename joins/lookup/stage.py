"""The tasks of a lookup join: look up the left records of tickets or, without a plan, the rows of any DataFrame.

    lookup_stage   Turns tickets into items: fetches left, looks up its keys, and matches it. Right is already stored:
                   the batch plan has waited for that.
    lookup_frame   Adds right's columns and the outcome to a DataFrame, batch or streaming. Here each Arrow batch
                   waits before its first request, until `consumed_until` is beyond its largest time plus `after`.

Both match by the policies of the in-memory join (`joins.lookup.batch`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pyarrow as pa

from joins.batch.rules import latest_right
from joins.batch.ticket import Ticket
from joins.errors import DelayUnreachable, SpecError, planned_records
from joins.items import ARROW_TYPES, SPARK_TYPES, Begin, End, Item, Rows, Stage
from joins.lookup.batch import RECORDS_AT_ONCE, StoredRight, StoreProvider, offer, wanted
from joins.lookup.gate import admission
from joins.lookup.key_lookup import BothApis, NotKnown, RightStore, lookup_client
from joins.read.batch_reader import BatchReader, from_log
from joins.read.deserialize import SideReader
from joins.read.facts_files import bucket_folder, save_facts
from joins.read.summary import BucketSummary, Newest
from joins.rows.frames import RECORD, SIDE_COLUMNS
from joins.spec import JoinSpec
from joins.window.bolt import BatchJoin
from teacup.base.now import Every, wall_ms
from teacup.base.process import PerProcess
from teacup.base.stage_times import StageTimes
from teacup.base.times import EARLIEST_MS, iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("teacup.joins.lookup.stage")

_stores: PerProcess[Any, RightStore] = PerProcess(4, lambda store: store.close())
_newest: PerProcess[tuple[str, str], Newest] = PerProcess(8)


def lookup_stage(spec: JoinSpec, windows: Path | None = None, copies: None = None) -> Stage[BucketSummary]:
    """Returns the stage that turns tickets into items.

    windows   the folder on each machine for the facts of batches; None: the user's own
    copies    unused: this join has no windows
    """

    def items(tickets: Iterable[str]) -> Iterator[Item[BucketSummary]]:
        for ticket in tickets:
            yield from _items(spec, windows, *msgspec.json.decode(ticket, type=tuple[str, Ticket]))

    return items


def store_of(spec: JoinSpec) -> RightStore:
    """Returns this process's connection to a join's store."""
    return _stores.get((spec.name, spec.right.store.storage), lambda: RightStore(spec, lookup_client(spec)))


def _items(spec: JoinSpec, windows: Path | None, store: str, ticket: Ticket) -> Iterator[Item[BucketSummary]]:
    reader = SideReader(spec.left, spec.kafka, spec.registry)
    reader.prepare({p: (r.start, r.end) for p, r in ticket.bucket.left.items() if r.records})
    yield Begin.of(ticket, spec)
    generations = (store, *spec.right.store.accepted_generations)

    def look_up(asked: pl.DataFrame) -> StoredRight:
        return store_of(spec).look_up(asked, generations)

    times, ahead = StageTimes(time.perf_counter), ThreadPoolExecutor(1, thread_name_prefix="look-ahead")

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return times.over("fetch", reader.read(partition, start, end, RECORDS_AT_ONCE))

    def begin(work: Callable[[], StoredRight]) -> Callable[[], StoredRight]:
        return ahead.submit(work).result

    newest = _newest.get((spec.name, ticket.generation), dict)
    left = BatchReader(spec, ticket, from_log(spec, ticket, read, reader.give_back))
    batch = BatchJoin(ticket, StoreProvider(spec, look_up, begin, times), left, newest, times)
    try:
        with planned_records(spec.on_data_loss):
            yield from map(Rows, batch.rows())
    finally:
        ahead.shutdown(wait=False, cancel_futures=True)  # a failed task does not wait for its look-ups
    folder = bucket_folder(windows, spec.name, ticket.generation, ticket.name_of_part)
    save_facts(folder, ticket.number, ticket.digest, batch.facts)
    yield End(batch.summary)


SAY_EVERY_S = 10.0
POLL_EVERY_S = 0.2
ADDED = {**{f"right_{name}": RECORD[name] for name in SIDE_COLUMNS}, "outcome": pl.String(), "reason": pl.String()}

_apis: PerProcess[Any, BothApis] = PerProcess(4, lambda apis: apis.close())


def lookup_frame(df: DataFrame, spec: JoinSpec, *, wait_at_most_s: float | None = None) -> DataFrame:
    """Adds right's columns, `outcome` and `reason`. Policy `all` gives one row per pair, others one per input row.

    df              needs the columns `key` (binary or string; null matches nothing) and `time` (bigint: milliseconds)
    wait_at_most_s  how long a batch waits for right before it raises `DelayUnreachable`; None: forever, logging why

    Raises SpecError if a column is missing or has another type.
    """
    types = dict(df.dtypes)
    for name, allowed in (("key", ("binary", "string")), ("time", ("bigint",))):
        if types.get(name) not in allowed:
            raise SpecError(f"column {name}: {types.get(name, 'missing')} is not allowed; give {' or '.join(allowed)}")
    taken = sorted(set(ADDED) & set(types))
    if taken:
        raise SpecError(f"columns {taken} are added by the look-up; rename those of the DataFrame")

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from _looked_up(spec, batch, wait_at_most_s)

    mine = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema.fields)
    added = ", ".join(f"{name} {SPARK_TYPES[dtype]}" for name, dtype in ADDED.items())
    return df.mapInArrow(rows, f"{mine}, {added}")


def _looked_up(spec: JoinSpec, batch: pa.RecordBatch, wait_at_most_s: float | None) -> Iterator[pa.RecordBatch]:
    frame = pl.DataFrame(pl.from_arrow(batch.select(["key", "time"])))
    if frame["time"].null_count():
        raise SpecError("column time: null is not allowed; filter such rows out before the look-up")
    left = frame.select(
        partition=pl.lit(0, pl.Int32),
        offset=pl.int_range(len(frame), dtype=pl.Int64),
        time="time",
        key=pl.col("key").cast(pl.Binary),
        value=pl.lit(None, RECORD["value"]),
        headers=pl.lit(None, RECORD["headers"]),
    )
    largest_ms: Any = frame["time"].max()
    generation = _wait(spec, latest_right(spec.right, largest_ms), wait_at_most_s)
    stored = store_of(spec).look_up(wanted(spec, left), (generation, *spec.right.store.accepted_generations))
    on_time = pl.repeat(False, len(left), dtype=pl.Boolean, eager=True)
    for out in offer(spec, left, on_time, stored).rows(EARLIEST_MS):
        columns = pa.Table.from_batches([batch]).take(out["left_offset"].to_arrow())
        for name, dtype in ADDED.items():
            columns = columns.append_column(name, out[name].to_arrow().cast(ARROW_TYPES[dtype]))
        yield from columns.combine_chunks().to_batches()


def _wait(spec: JoinSpec, until_ms: int, at_most_s: float | None) -> str:
    """Waits until every right record up to `until_ms` is stored, and returns the store's generation."""
    apis = _apis.get((spec.name, spec.right.store.delay, spec.right.store.storage), lambda: BothApis.connected(spec))
    began_s, report = time.monotonic(), Every(SAY_EVERY_S, at_once=True)
    while True:
        try:
            delay, store = apis.ask()
            verdict = admission(delay, store, {}, spec.right.store.accepted_generations, wall_ms())
            reason = verdict.waits_for or f"right is stored up to {iso(verdict.watermark_ms)}"
            if not verdict.shut and verdict.watermark_ms > until_ms:
                return store
        except NotKnown as error:
            reason = str(error)
        waited_s = time.monotonic() - began_s
        line = f"{spec.name} waits until right is stored beyond {iso(until_ms)}: {reason} (for {waited_s:.0f} s now)"
        if at_most_s is not None and waited_s > at_most_s:
            raise DelayUnreachable(f"{line}; the limit was {at_most_s:g} s")
        if report.due():
            log.warning("%s", line)
        time.sleep(POLL_EVERY_S)
