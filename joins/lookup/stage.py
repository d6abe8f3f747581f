"""The Spark edge of the look-up: tickets -> fetch left, look up, match -> rows, in one Python task.

The rows are those of `joins.window.stage`, between a ticket row and a summary row, so that delivery is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from joins.admission.factsfolder import FactsFolder
from joins.admission.folders import bucket_folder
from joins.admission.ticket import Ticket
from joins.lookup.batch import RECORDS_AT_ONCE, LookupBatch, StoredRight
from joins.lookup.source import storage_client
from joins.lookup.spec import LookupSpec
from joins.lookup.stored import RightStore
from joins.rows.chunks import in_chunks
from joins.window.batch import Newest
from joins.window.stage import Batches, summary_row, ticket_row
from kafkaio.perprocess import PerProcess
from kafkaio.rangereader import open_reader

_stores: PerProcess[Any, RightStore] = PerProcess(4, lambda store: store.close())
_newest: PerProcess[tuple[str, str], Newest] = PerProcess(8, lambda newest: None)


def lookup_stage(spec: LookupSpec, windows: Path | None = None) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Batches with a column `ticket` -> batches in `records.ROW` (Arrow view types).

    windows   the folder on each machine where the facts of batches are kept; None: the user's own
    """

    def carry_out(tickets: Iterable[pa.RecordBatch]) -> Batches:
        for batch in tickets:
            for text in batch.column("ticket").to_pylist():
                yield from _rows_of(spec, windows, json.loads(text))

    return carry_out


def store_of(spec: LookupSpec) -> RightStore:
    """This process's connection to a join's store."""
    return _stores.get((spec.name, spec.storage), lambda: RightStore(spec, storage_client(spec)))


def _rows_of(spec: LookupSpec, windows: Path | None, given: dict[str, Any]) -> Batches:
    ticket = Ticket.from_json(given)
    reader = open_reader(spec.left.topic, spec.kafka)
    for p, reading in ticket.bucket.left.items():
        if reading.records:
            reader.prepare(p, reading.start)
    yield from ticket_row(ticket, spec).to_arrow().to_batches()
    generations = (given["store"], *spec.accepted_generations)

    def look_up(keys: pl.Series) -> StoredRight:
        return store_of(spec).look_up(keys, generations)

    ahead = ThreadPoolExecutor(1, thread_name_prefix="look-ahead")

    def read(partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return reader.read(partition, start, end, RECORDS_AT_ONCE)

    def begin(one: Callable[[], StoredRight]) -> Callable[[], StoredRight]:
        return ahead.submit(one).result

    newest = _newest.get((spec.name, ticket.generation), dict)
    batch = LookupBatch(spec, ticket, read, look_up, newest, begin, reader.give_back)
    try:
        for rows in batch.rows():
            for part in in_chunks(rows):
                yield from part.to_arrow().to_batches()
    finally:
        ahead.shutdown(wait=False, cancel_futures=True)  # a failed task does not wait for look-ups
    folder = bucket_folder(windows, spec.name, ticket.generation, ticket.bucket.number)
    FactsFolder(folder).save(ticket.number, ticket.digest, batch.facts)
    yield from summary_row(batch.summary).to_arrow().to_batches()
