"""What a task does with tickets: it fetches their left records, looks up their keys and matches them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from joins.batch.ticket import Ticket
from joins.items import Begin, End, Item, Rows, Stage
from joins.lookup.batch import RECORDS_AT_ONCE, LookupBatch, StoredRight
from joins.lookup.key_lookup import RightStore
from joins.lookup.source import lookup_client
from joins.lookup.spec import LookupSpec
from joins.plan.log_checks import planned_records
from joins.read.deserialize import SideReader
from joins.read.facts_files import FactsFolder, bucket_folder
from joins.read.summary import BucketSummary, Newest
from joins.rows.frames import in_chunks
from teacup.base.process import PerProcess

_stores: PerProcess[Any, RightStore] = PerProcess(4, lambda store: store.close())
_newest: PerProcess[tuple[str, str], Newest] = PerProcess(8, lambda newest: None)


def lookup_stage(spec: LookupSpec, windows: Path | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of tickets.

    windows   the folder on each machine where the facts of batches are kept; None: the user's own
    """

    def items(tickets: Iterable[str]) -> Iterator[Item[BucketSummary]]:
        for ticket in tickets:
            yield from _items(spec, windows, json.loads(ticket))

    return items


def store_of(spec: LookupSpec) -> RightStore:
    """Returns this process's connection to a join's store."""
    return _stores.get((spec.name, spec.storage), lambda: RightStore(spec, lookup_client(spec)))


def _items(spec: LookupSpec, windows: Path | None, given: dict[str, Any]) -> Iterator[Item[BucketSummary]]:
    ticket = Ticket.from_json(given)
    reader = SideReader(spec.left, spec.kafka, spec.registry)
    for p, partition_range in ticket.bucket.left.items():
        if partition_range.records:
            reader.prepare(p, partition_range.start)
    yield Begin.of(ticket, spec)
    generations = (given["store"], *spec.accepted_generations)

    def look_up(keys: pl.Series) -> StoredRight:
        return store_of(spec).look_up(keys, generations)

    ahead = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")

    def read(partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return reader.read(partition, start, end, RECORDS_AT_ONCE)

    def begin(work: Callable[[], StoredRight]) -> Callable[[], StoredRight]:
        return ahead.submit(work).result

    newest = _newest.get((spec.name, ticket.generation), dict)
    batch = LookupBatch(spec, ticket, read, look_up, newest, begin, reader.give_back)
    try:
        with planned_records(spec):
            for rows in batch.rows():
                yield from map(Rows, in_chunks(rows))
    finally:
        ahead.shutdown(wait=False, cancel_futures=True)  # a failed task does not wait for look-ups
    folder = bucket_folder(windows, spec.name, ticket.generation, ticket.name_of_part)
    FactsFolder(folder).save(ticket.number, ticket.digest, batch.facts)
    yield End(batch.summary)
