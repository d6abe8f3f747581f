"""One slice of unjoined right records as a Spark batch job: an anti-join of a part of right with headers of the output.

    pieces of the output  -> right positions in their headers    one Spark task per piece
    by right partition    -> one bit per right record            a shuffle of positions, not of records
    range of right        -> records without a bit, delivered    one Spark task per right partition, in offset order

The scan is not the audit's (`deploy.inspection.audit.scan`), which works in one process, keeps no record that could be
delivered, counts another program's rows where this job must end, and makes more of each row than its right position
(400 ns with digests of its columns, 2,900 ns with its envelope, in place of 280 ns; CPU time).

Delivery is that of the join (`deploy.output.stage`): transactions with a receipt, one bucket per right partition, under
names of its own, so that the job may run beside the join. A slice that runs again delivers only what is not yet in its
topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from deploy.errors import ForeignRow
from deploy.jobfile.job import JoinJob
from deploy.jobs.failures import reported
from deploy.output.accounts import DeliveredBatch
from deploy.output.stage import deliver_stage
from joins.errors import NO_RETRY_HELPS
from joins.items import Batches, Begin, End, Item, Rows
from joins.lookup.unjoined.expired import WAY_OUT, RightSlice, Verdicts, losses_of
from joins.lookup.unjoined.verdicts import JoinedOffsets, PartitionVerdicts, SliceSummary
from joins.read.deserialize import SideReader
from joins.right_source import Log
from joins.spec import JoinSpec
from teacup.base.fields import plain
from teacup.kafka.client import committed_only
from teacup.kafka.delivery.provenance import positions_in, provenance_of
from teacup.kafka.delivery.receipt import digest_of
from teacup.kafka.headers import PROVENANCE
from teacup.kafka.read.range_reader import open_reader
from teacup.spark.jvm_errors import SUMMARY_SCHEMA, summary_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Piece = tuple[int, int, int]
PIECE = 2_000_000
POSITION = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])


def verdicts_name(spec: JoinSpec) -> str:
    """Returns the name under which the verdicts of a join are delivered, beside the join itself."""
    return f"{spec.name}.unjoined"


@dataclass(frozen=True, slots=True)
class Work:
    """All that a task needs. `kafka` reads committed records, whatever the join's own properties say."""

    spec: JoinSpec
    job: JoinJob
    right_slice: RightSlice
    generation: str
    begin_ms: int

    @classmethod
    def of(cls, job: JoinJob, state: Verdicts) -> Work:
        """Returns the work for the slice that the state has under way."""
        assert state.under_way is not None
        spec, right = job.spec, replace(job.spec.right, source=Log())
        spec = replace(spec, name=verdicts_name(spec), right=right, kafka=committed_only(spec.kafka))
        return cls(spec, job, state.under_way, state.generation, state.begin_ms)


def deliver_slice(spark: SparkSession, work: Work) -> list[DeliveredBatch[SliceSummary]]:
    """Delivers all right partitions; returns what became of each. Raises `TaskEnded`."""
    right_slice = work.right_slice
    pieces = pieces_of(right_slice.output)
    partitions = sorted(right_slice.right)
    tasks = len(pieces) + 1

    def positions(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number == len(pieces):  # one row per range, so that each has a task
                    yield pa.record_batch([pa.array(partitions, pa.int32()), [-1] * len(partitions)], schema=POSITION)
                else:
                    yield from joined_positions(work, pieces[number])

    def judge(batches: Iterable[pa.RecordBatch]) -> Batches:
        for partition, joined in _by_partition(right_slice, batches).items():
            yield from summary_rows(judged(work, partition, joined), *NO_RETRY_HELPS)

    delivered = spark.range(0, tasks, 1, tasks).mapInArrow(positions, "partition int, offset bigint")
    rows = delivered.repartitionById(len(partitions), "partition").mapInArrow(judge, SUMMARY_SCHEMA).collect()
    reports = [(row.summary, row.failure) for row in rows]
    return reported(reports, len(partitions), DeliveredBatch[SliceSummary])


def pieces_of(output: Mapping[int, tuple[int, int]]) -> list[Piece]:
    """Returns the ranges of the output, cut so that each fits a task."""
    return [
        (p, at, min(at + PIECE, end)) for p, (start, end) in sorted(output.items()) for at in range(start, end, PIECE)
    ]


def joined_positions(work: Work, piece: Piece) -> Batches:
    """Yields the right positions in a piece of the output that lie in the slice."""
    topic, (partition, start, end) = work.job.output.topic, piece
    reader = open_reader(topic, work.spec.kafka)
    inside = pl.lit(value=False)
    for p, range_ in work.right_slice.right.items():
        inside = inside | ((pl.col("partition") == p) & pl.col("offset").is_between(range_.start, range_.end - 1))
    with losses_of(work.spec).of_planned(WAY_OUT):
        for batch in reader.read(partition, start, end):
            positions = right_positions(batch, topic)
            yield from positions.filter(inside).to_arrow().cast(POSITION).to_batches()


def right_positions(batch: pa.RecordBatch, topic: str) -> pl.DataFrame:
    """Returns right positions in headers of output rows. Raises `ForeignRow` if another program wrote a row."""
    written = provenance_of(batch.column("headers"))
    foreign = written["left"].is_null()
    if foreign.any():
        row = int(foreign.arg_max() or 0)
        raise ForeignRow(
            f"the record at {topic}-{batch.column('partition')[row]} offset {batch.column('offset')[row]} lacks the "
            f"header {PROVENANCE!r} of a row of this join: another program writes to the output, so it is not known "
            "which records were joined. Give the join an output topic of its own"
        )
    return positions_in(written["right"]).drop_nulls()


def judged(work: Work, partition: int, joined: JoinedOffsets) -> Iterator[DeliveredBatch[SliceSummary]]:
    """Judges one range of right and delivers its unjoined records."""
    topic = work.job.output.unjoined
    assert topic is not None
    output = replace(work.job.output, topic=topic, select=None, exactly_once=True, deduplicate=None)
    output = replace(output, dead_letter=None, late=None, unmatched=None)  # nothing goes there
    return deliver_stage(work.spec, output)(_items(work, partition, joined))


def _items(work: Work, partition: int, joined: JoinedOffsets) -> Iterator[Item[SliceSummary]]:
    range_ = work.right_slice.right[partition]
    digest = digest_of({"begin_ms": work.begin_ms, "join": work.spec.identity(), "slice": plain(work.right_slice)})
    yield Begin(partition, range_.number, work.generation, digest)
    verdicts = PartitionVerdicts(work.spec, work.right_slice, partition, work.begin_ms, joined)
    reader = SideReader(work.spec.right, work.spec.kafka, work.spec.registry)
    with losses_of(work.spec).of_planned(WAY_OUT):
        yield from map(Rows, verdicts.rows(reader.read(partition, range_.start, range_.end)))
    yield End(verdicts.summary)


def _by_partition(right_slice: RightSlice, batches: Iterable[pa.RecordBatch]) -> dict[int, JoinedOffsets]:
    """Returns one bit per offset of the ranges that came to this task."""
    by_partition: dict[int, JoinedOffsets] = {}
    for batch in batches:
        partitions, offsets = (batch.column(i).to_numpy() for i in (0, 1))
        for p in np.unique(partitions).tolist():
            range_ = right_slice.right[p]
            by_partition.setdefault(p, JoinedOffsets(range_.start, range_.end)).add(offsets[partitions == p])
    return dict(sorted(by_partition.items()))
