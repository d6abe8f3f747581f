"""The Spark edge of the shuffled path: what fetches ranges, and what joins the parts that were shuffled.

There is a task for each partition with something to read, and one for the tickets; behind the shuffle, one for each
part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.errors import NO_RETRY_HELPS, JoinError
from joins.items import Item, Stage
from joins.plan.log_checks import planned_records
from joins.plan.reader import JoinControl
from joins.plan.source import TicketReader, ticket_source
from joins.read.deserialize import SideReader, expect_schemas
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec
from joins.window.shuffle.pieces import Content, Fetch, Piece, ShuffledPart, failure_pieces, parts_of, ticket_pieces
from joins.window.stage import items_of
from teacup.spark.stream_reader import StreamReader, rows_of

PIECE = pa.schema(
    [
        ("part", pa.int32()),
        ("content", pa.string()),
        ("side", pa.string()),
        ("partition", pa.int32()),
        ("number", pa.int32()),
        ("data", pa.binary()),
    ]
)
PIECE_SCHEMA = "part int, content string, side string, partition int, number int, data binary"


class FetchReader(TicketReader):
    """Admits as on the direct path, but has a task per partition instead of one per bucket."""

    def tasks(self, end: dict[str, Any]) -> list[str]:
        batch_plan = BatchPlan.from_json(end)
        batch_plan.check_belongs_to(self._spec)
        (ticket,) = Ticket.all_of(batch_plan)
        fetches = [{"fetch": fetch.to_json()} for fetch in Fetch.all_of(self._spec, ticket)]
        return [json.dumps(task) for task in ({"ticket": ticket.to_json()}, *fetches)]


def shuffled(
    spark: SparkSession, spec: JoinSpec, control: JoinControl, reader: Callable[..., StreamReader]
) -> DataFrame:
    """Returns the streaming DataFrame of pieces, those of a part in the same Spark partition; reader: `FetchReader`."""
    assert spec.buckets is not None, "joins.plan.start.copartition sets it"
    source = ticket_source(spec, control, reader, fetch_stage(spec), PIECE_SCHEMA)
    return rows_of(spark, source).repartitionById(spec.buckets, "part")


def fetch_stage(spec: JoinSpec) -> Callable[[Iterable[str]], Iterator[pa.RecordBatch]]:
    """Returns the stage that makes pieces of the tasks of `FetchReader`, in batches of `PIECE`."""
    readers = {side: SideReader(spec.side(side), spec.kafka, spec.registry) for side in ("left", "right")}

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return readers[side].read(partition, start, end)

    def pieces(task: Mapping[str, Any]) -> Iterator[Piece]:
        if "ticket" in task:
            return ticket_pieces(Ticket.from_json(task["ticket"]))
        return fetched(Fetch.from_json(task["fetch"]))

    def fetched(fetch: Fetch) -> Iterator[Piece]:
        try:
            with planned_records(spec):
                schemas = (number for number, _ in fetch.range.partition_range.schemas)
                expect_schemas(spec.side(fetch.side), spec.registry, schemas)
                yield from fetch.pieces(spec, read)
        except NO_RETRY_HELPS as error:
            yield from failure_pieces(error, fetch.parts)

    def rows(tasks: Iterable[str]) -> Iterator[pa.RecordBatch]:
        for piece in chain.from_iterable(pieces(json.loads(task)) for task in tasks):
            yield pa.record_batch({name: [getattr(piece, name)] for name in PIECE.names}, schema=PIECE)

    return rows


def shuffled_stage(spec: JoinSpec, windows: Path | None = None, copies: str | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of the parts of a ticket.

    `windows` and `copies` are as in `joins.window.stage.join_stage`.
    """

    def items(parts: Iterable[ShuffledPart]) -> Iterator[Item[BucketSummary]]:
        for part in parts:
            if part.ticket is None:
                raise JoinError("records came through the shuffle without their ticket: this is a defect")
            yield from items_of(spec, windows, copies, part.ticket, part.opened(spec))

    return items


def each_part(
    stage: Callable[[Iterable[ShuffledPart]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a stage of pieces (`joins.window.shuffle.source.PIECE`) from a stage of parts.

    A task holds its pieces until the last one has come, as Spark gives them in no order.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(parts_of(_pieces(batches)))

    return rows


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Piece(**{**row, "content": Content(row["content"])})
