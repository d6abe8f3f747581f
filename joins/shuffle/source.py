"""The Spark edge of fetching: a task for each partition with something to read, and one for the tickets."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from joins.admission.control import JoinControl
from joins.admission.guard import planned_records
from joins.admission.source import TicketReader, ticket_source
from joins.admission.state import Admission
from joins.admission.ticket import Ticket
from joins.decoded import SideReader, expect_schemas
from joins.errors import NO_RETRY_HELPS
from joins.shuffle.partfetch import Fetch
from joins.shuffle.pieces import Piece, failure_pieces, ticket_pieces
from joins.spec import JoinSpec
from sparkio.reader import StreamReader
from sparkio.source import rows_of

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
        admission = Admission.from_json(end)
        admission.check_belongs_to(self._spec)
        (ticket,) = Ticket.all_of(admission)
        fetches = [{"fetch": fetch.to_json()} for fetch in Fetch.all_of(self._spec, ticket)]
        return [json.dumps(task) for task in ({"ticket": ticket.to_json()}, *fetches)]


def shuffled(
    spark: SparkSession, spec: JoinSpec, control: JoinControl, reader: Callable[..., StreamReader]
) -> DataFrame:
    """Returns the streaming DataFrame of pieces, those of a part in the same Spark partition; reader: `FetchReader`."""
    assert spec.buckets is not None, "joins.pathchoice sets it"
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
                schemas = (number for number, _ in fetch.range.reading.schemas)
                expect_schemas(spec.side(fetch.side), spec.registry, schemas)
                yield from fetch.pieces(spec, read)
        except NO_RETRY_HELPS as error:
            yield from failure_pieces(error, fetch.parts)

    def rows(tasks: Iterable[str]) -> Iterator[pa.RecordBatch]:
        for piece in chain.from_iterable(pieces(json.loads(task)) for task in tasks):
            yield pa.record_batch({name: [getattr(piece, name)] for name in PIECE.names}, schema=PIECE)

    return rows
