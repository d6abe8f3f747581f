"""The Spark edge of the window: a function for `mapInArrow` that carries out tickets on Arrow batches.

Records are fetched and joined in the same Python task; they enter the JVM only if the user wants a DataFrame.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa

from joins.admission.folders import bucket_folder, own_folder
from joins.admission.ticket import Ticket
from joins.rows.chunks import in_chunks
from joins.rows.records import HEADERS, ROW
from joins.spec import JoinSpec
from joins.window.batch import BucketSummary
from joins.window.bolt import JoinBolt
from joins.window.store import FileStore, forget_other_generations
from kafkaio.delivery.receipt import digest_of
from kafkaio.perprocess import PerProcess
from kafkaio.rangereader import open_reader

SUMMARY = "summary"
"""The outcome of the one row per ticket that reports on it: its reason holds the bucket's `BucketSummary` as JSON."""

TICKET = "ticket"
"""The outcome of the row before a ticket's rows: its reason holds as JSON what delivery needs of the ticket."""

Batches = Iterator[pa.RecordBatch]


def join_stage(spec: JoinSpec, windows: Path | None = None) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """Batches with a column `ticket` -> batches in `records.ROW` (Arrow view types).

    windows   the folder on each machine where slices are kept; None: a folder of the user's in the temporary folder

    The rows of each ticket come between a row with the outcome `TICKET` and one with the outcome `SUMMARY`.
    """

    def carry_out(tickets: Iterable[pa.RecordBatch]) -> Batches:
        for batch in tickets:
            for text in batch.column("ticket").to_pylist():
                yield from _rows_of(spec, windows, Ticket.from_json(json.loads(text)))

    return carry_out


def _rows_of(spec: JoinSpec, windows: Path | None, ticket: Ticket) -> Batches:
    _prefetch(spec, ticket)
    windows = windows or own_folder()
    summaries: list[BucketSummary] = []
    yield from ticket_row(ticket, spec).to_arrow().to_batches()
    bolt = _bolts.get((spec.name, ticket.generation, windows), lambda: _bolt(spec, ticket.generation, windows))
    for rows in bolt.carry_out(ticket, summaries.append):
        for part in in_chunks(rows):
            yield from part.to_arrow().to_batches()
    (summary,) = summaries
    yield from summary_row(summary).to_arrow().to_batches()


def ticket_digest(ticket: Ticket, spec: JoinSpec) -> str:
    """Covers everything that decides the ticket's rows: another batch with the same number has another digest."""
    return digest_of({"join": spec.identity(), "ticket": ticket.to_json()})


def ticket_row(ticket: Ticket, spec: JoinSpec) -> pl.DataFrame:
    about = {
        "bucket": ticket.bucket.number,
        "number": ticket.number,
        "generation": ticket.generation,
        "digest": ticket_digest(ticket, spec),
        "left_since_ms": ticket.left_since_ms,
    }
    return pl.DataFrame([{"outcome": TICKET, "reason": json.dumps(about), "late": False}], schema=ROW)


def summary_row(summary: BucketSummary) -> pl.DataFrame:
    values = {"outcome": SUMMARY, "reason": json.dumps(summary.to_json()), "late": False}
    return pl.DataFrame([values], schema=ROW)


def _bolt(spec: JoinSpec, generation: str, windows: Path) -> JoinBolt:
    forget_other_generations(windows, spec.name, generation)

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        topic = spec.side(side).topic
        return open_reader(topic, spec.kafka).read(partition, start, end)

    def store_of(generation: str, bucket: int) -> FileStore:
        return FileStore(bucket_folder(windows, spec.name, generation, bucket))

    def give_back(partition: int, records: list[pa.RecordBatch]) -> None:
        open_reader(spec.left.topic, spec.kafka).give_back(partition, records)

    return JoinBolt(spec, read, store_of, give_back=give_back)


_bolts: PerProcess[tuple[str, str, Path], JoinBolt] = PerProcess(4, lambda bolt: None)


def _prefetch(spec: JoinSpec, ticket: Ticket) -> None:
    """Fetch both ranges in the background: left arrives while right is indexed."""
    for topic, readings in ((spec.right.topic, ticket.bucket.right), (spec.left.topic, ticket.bucket.left)):
        for p, reading in readings.items():
            if reading.records:
                open_reader(topic, spec.kafka).prepare(p, reading.start)


SPARK_TYPES: Mapping[pl.DataType, str] = {
    pl.Binary(): "binary",
    pl.Int64(): "bigint",
    pl.Int32(): "int",
    pl.String(): "string",
    pl.Boolean(): "boolean",
    HEADERS: "array<struct<key:string,value:binary>>",
}

SPARK_SCHEMA = ", ".join(f"{name} {SPARK_TYPES[dtype]}" for name, dtype in ROW.items())

ARROW_TYPES: Mapping[pl.DataType, pa.DataType] = {
    pl.Binary(): pa.binary(),
    pl.Int64(): pa.int64(),
    pl.Int32(): pa.int32(),
    pl.String(): pa.string(),
    pl.Boolean(): pa.bool_(),
    HEADERS: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}

_FOR_SPARK = pa.schema([(name, ARROW_TYPES[dtype]) for name, dtype in ROW.items()])


def for_spark(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The same rows in the Arrow types that Spark takes."""
    for batch in batches:
        yield batch.cast(_FOR_SPARK)
