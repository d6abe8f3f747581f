"""Plans the batches of the shuffled path; for the library, it also shuffles what tasks have fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.plan.reader import SMALL_BATCH, JoinControl
from joins.plan.source import TicketReader, ticket_source
from joins.spec import JoinSpec
from joins.window.shuffle.pieces import Fetch, FetchTask
from joins.window.stage import fetch_stage
from teacup.spark.stream_reader import BatchWork, StreamReader
from teacup.spark.stream_source import rows_of

PIECE_SCHEMA = "part int, piece binary"


class FetchReader(TicketReader):
    """Plans as on the direct path, but its work is partitions instead of buckets."""

    def work(self, end: dict[str, Any]) -> BatchWork:
        """A task has all of a small batch: then nothing is shuffled on one machine. Of another it has fetches of some
        `SMALL_BATCH` records: with hundreds of partitions a task each would take longer than their records.
        """
        batch_plan = BatchPlan.from_json(end)
        batch_plan.check_belongs_to(self._spec)
        (ticket,) = Ticket.all_of(batch_plan)
        fetches = Fetch.all_of(self._spec, ticket)
        tasks = (FetchTask(ticket=ticket), *(FetchTask(fetch=fetch) for fetch in fetches))
        small = batch_plan.records < SMALL_BATCH
        return BatchWork(
            [msgspec.json.encode(task).decode() for task in tasks],
            ["ticket", *(f"{fetch.side} {fetch.range.partition}" for fetch in fetches)],
            len(tasks) if small else max(1, len(fetches) * SMALL_BATCH // batch_plan.records),
        )


def work_by_part(end: dict[str, Any]) -> BatchWork:
    """Returns the work behind the shuffle: the numbers of the batch's parts."""
    batch_plan = BatchPlan.from_json(end)
    parts = range(batch_plan.parts or 0)
    return BatchWork(parts, parts, max(1, len(parts)) if batch_plan.records < SMALL_BATCH else 1)


def shuffled(
    spark: SparkSession, spec: JoinSpec, control: JoinControl, reader: Callable[..., StreamReader]
) -> DataFrame:
    """Returns the streaming DataFrame of pieces, those of a part in the same Spark partition; reader: `FetchReader`."""
    assert spec.buckets is not None, "joins.plan.start.copartition sets it"
    source = ticket_source(spec, control, reader, fetch_stage(spec), PIECE_SCHEMA)
    return rows_of(spark, source).repartitionById(spec.buckets, "part").select("piece")
