"""What the tasks of the in-memory join do, on either path.

direct     a task fetches the records of tickets and joins them, in the same Python process
shuffled   tasks fetch partitions, and one the tickets; behind the shuffle, each task joins its parts of the tickets
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa

from joins.batch.ticket import Ticket
from joins.errors import NO_RETRY_HELPS, JoinError, planned_records
from joins.items import Begin, End, Item, Rows, Stage
from joins.read.batch_reader import OpenRange, Read
from joins.read.deserialize import SideReader, expect_schemas
from joins.read.facts_files import bucket_folder, own_folder
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec
from joins.window.backup import CheckpointedStore
from joins.window.bolt import JoinBolt
from joins.window.restore import SliceStore
from joins.window.shuffle.pieces import (
    Fetch,
    FetchTask,
    Piece,
    ShuffledPart,
    failure_pieces,
    parts_of,
    ticket_pieces,
)
from joins.window.slice_files import FileStore, forget_other_generations
from teacup.base.process import PerProcess
from teacup.kafka.read.range_reader import Span

PIECE = pa.schema([("part", pa.int32()), ("piece", pa.binary())])
"""A row of the shuffle (`joins.window.shuffle.pieces.Piece.to_bytes`)."""


def join_stage(spec: JoinSpec, windows: Path | None = None, copies: str | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of tickets.

    windows   the folder on each machine where slices are kept; None: the user's own in the temporary folder
    copies    the folder or URL, reached by all machines, to which they are copied; None: none
    """

    def items(tickets: Iterable[str]) -> Iterator[Item[BucketSummary]]:
        read = [msgspec.json.decode(text, type=Ticket) for text in tickets]
        _prefetch(spec, read)
        for at, ticket in enumerate(read):
            ahead = read[1:] if at == 0 else ()
            yield from items_of(spec, windows, copies, ticket, ahead=ahead)

    return items


def items_of(
    spec: JoinSpec,
    windows: Path | None,
    copies: str | None,
    ticket: Ticket,
    opened: OpenRange | None = None,
    *,
    ahead: Iterable[Ticket] = (),
) -> Iterator[Item[BucketSummary]]:
    """Yields the items of a ticket; `opened` as in `JoinBolt.join`, `ahead` as in `Begin`, rest as in `join_stage`."""
    summaries: list[BucketSummary] = []
    yield Begin.of(ticket, spec, ahead)
    for side in ("left", "right"):
        expect_schemas(spec.side(side), spec.registry, ticket.bucket.schemas(side))
    folder, generation = windows or own_folder(), ticket.generation
    bolt = _bolts.get((spec.name, generation, folder), lambda: _bolt(spec, generation, folder, copies))
    with planned_records(spec.on_data_loss):
        yield from map(Rows, bolt.join(ticket, summaries.append, opened))
    (summary,) = summaries
    yield End(summary)


def _bolt(spec: JoinSpec, generation: str, windows: Path, copies: str | None) -> JoinBolt:
    forget_other_generations(windows, spec.name, generation)
    readers = _readers(spec)

    def store_of(generation: str, bucket: str) -> SliceStore:
        files = FileStore(bucket_folder(windows, spec.name, generation, bucket))
        return files if copies is None else CheckpointedStore(files, copies)

    give_back = readers["left"].give_back
    return JoinBolt(spec, _reading(readers), store_of, give_back=give_back, clock=time.perf_counter)


def _readers(spec: JoinSpec) -> dict[str, SideReader]:
    return {side: SideReader(spec.side(side), spec.kafka, spec.registry, side) for side in ("left", "right")}


def _reading(readers: Mapping[str, SideReader]) -> Read:
    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return readers[side].read(partition, start, end)

    return read


_bolts: PerProcess[tuple[str, str, Path], JoinBolt] = PerProcess(4)
"""This process's bolt of each checkpoint of a join."""


def _prefetch(spec: JoinSpec, tickets: Iterable[Ticket]) -> None:
    """Fetches all ranges in the background: left arrives while right is indexed."""
    wanted: dict[str, dict[int, Span]] = {"right": {}, "left": {}}
    for ticket in tickets:
        for side, spans in wanted.items():
            spans |= {p: (r.start, r.end) for p, r in ticket.bucket.side(side).items() if r.records}
    _prepare(spec, wanted)


def _prepare(spec: JoinSpec, wanted: Mapping[str, Mapping[int, Span]]) -> None:
    readers = _readers(spec)
    for side, spans in wanted.items():
        readers[side].prepare(spans)


def fetch_stage(spec: JoinSpec) -> Callable[[Iterable[str]], Iterator[pa.RecordBatch]]:
    """Returns the stage that turns the tasks of `FetchReader` into pieces, in batches of `PIECE`."""

    def rows(tasks: Iterable[str]) -> Iterator[pa.RecordBatch]:
        for piece in _pieces(spec, tasks):
            yield pa.record_batch([[piece.part], [piece.to_bytes()]], schema=PIECE)

    return rows


def _pieces(spec: JoinSpec, texts: Iterable[str]) -> Iterator[Piece]:
    """Yields the pieces of these tasks of `FetchReader`."""
    read = _reading(_readers(spec))

    def pieces(task: FetchTask) -> Iterator[Piece]:
        if task.ticket is not None:
            yield from ticket_pieces(task.ticket)
        if task.fetch is not None:
            yield from fetched(task.fetch)

    def fetched(fetch: Fetch) -> Iterator[Piece]:
        try:
            with planned_records(spec.on_data_loss):
                schemas = (number for number, _ in fetch.range.partition_range.schemas)
                expect_schemas(spec.side(fetch.side), spec.registry, schemas)
                yield from fetch.pieces(spec, read)
        except NO_RETRY_HELPS as error:
            yield from failure_pieces(error, fetch.parts)

    tasks = [msgspec.json.decode(text, type=FetchTask) for text in texts]
    wanted: dict[str, dict[int, Span]] = {"right": {}, "left": {}}
    for fetch in (task.fetch for task in tasks if task.fetch is not None):
        read_range = fetch.range.partition_range
        wanted[fetch.side][fetch.range.partition] = (read_range.start, read_range.end)
    _prepare(spec, wanted)
    yield from chain.from_iterable(map(pieces, tasks))


def shuffled_stage(spec: JoinSpec, windows: Path | None = None, copies: str | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of the parts of a ticket.

    `windows` and `copies` are as in `join_stage`.
    """

    def items(parts: Iterable[ShuffledPart]) -> Iterator[Item[BucketSummary]]:
        for part in parts:
            if part.ticket is None:
                raise JoinError("records came through the shuffle without their ticket: this is a defect")
            yield from items_of(spec, windows, copies, part.ticket, part.opened(spec))

    return items


def each_part(
    stage: Callable[[Iterable[ShuffledPart]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]:
    """Makes a stage of pieces, as they come through the shuffle, from a stage of parts.

    A task holds its pieces until the last one has come, as Spark gives them in any order.
    """

    def rows(pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        return stage(parts_of(map(Piece.from_bytes, pieces)))

    return rows


def in_one_task(
    spec: JoinSpec, stage: Callable[[Iterable[ShuffledPart]], Iterator[pa.RecordBatch]]
) -> Callable[[Iterable[str]], Iterator[pa.RecordBatch]]:
    """Makes a stage of all tasks of `FetchReader` from a stage of parts: nothing is shuffled."""

    def rows(tasks: Iterable[str]) -> Iterator[pa.RecordBatch]:
        return stage(parts_of(_pieces(spec, tasks)))

    return rows
