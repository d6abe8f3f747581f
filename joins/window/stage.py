"""What a task does with tickets: it fetches their records and joins them, in the same Python process."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from joins.batch.ticket import Ticket
from joins.items import Begin, End, Item, Rows, Stage
from joins.plan.log_checks import planned_records
from joins.read.batch_reader import OpenRange
from joins.read.deserialize import SideReader, expect_schemas
from joins.read.facts_files import bucket_folder, own_folder
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec
from joins.window.backup import CheckpointedStore
from joins.window.bolt import JoinBolt
from joins.window.restore import SliceStore
from joins.window.slice_files import FileStore, forget_other_generations
from teacup.base.process import PerProcess
from teacup.kafka.read.range_reader import open_reader


def join_stage(spec: JoinSpec, windows: Path | None = None, copies: str | None = None) -> Stage[BucketSummary]:
    """Returns the stage that makes items of tickets.

    windows   the folder on each machine where slices are kept; None: a folder of the user's in the temporary folder
    copies    the folder or URL, reached by all machines, to which they are copied; None: they are not
    """

    def items(tickets: Iterable[str]) -> Iterator[Item[BucketSummary]]:
        read = [Ticket.from_json(json.loads(text)) for text in tickets]
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
    with planned_records(spec):
        yield from map(Rows, bolt.join(ticket, summaries.append, opened))
    (summary,) = summaries
    yield End(summary)


def _bolt(spec: JoinSpec, generation: str, windows: Path, copies: str | None) -> JoinBolt:
    forget_other_generations(windows, spec.name, generation)
    readers = {side: SideReader(spec.side(side), spec.kafka, spec.registry) for side in ("left", "right")}

    def read(side: str, partition: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
        return readers[side].read(partition, start, end)

    def store_of(generation: str, bucket: str) -> SliceStore:
        files = FileStore(bucket_folder(windows, spec.name, generation, bucket))
        return files if copies is None else CheckpointedStore(files, copies)

    give_back = readers["left"].give_back
    return JoinBolt(spec, read, store_of, give_back=give_back, clock=time.perf_counter)


_bolts: PerProcess[tuple[str, str, Path], JoinBolt] = PerProcess(4, lambda bolt: None)
"""This process's bolt of each checkpoint of a join."""


def _prefetch(spec: JoinSpec, tickets: Iterable[Ticket]) -> None:
    """Fetches all ranges in the background: left arrives while right is indexed."""
    starts: dict[str, dict[int, int]] = {spec.right.topic: {}, spec.left.topic: {}}
    for ticket in tickets:
        for topic, ranges in ((spec.right.topic, ticket.bucket.right), (spec.left.topic, ticket.bucket.left)):
            starts[topic] |= {p: of_partition.start for p, of_partition in ranges.items() if of_partition.records}
    for topic, from_offsets in starts.items():
        open_reader(topic, spec.kafka).prepare(from_offsets)
