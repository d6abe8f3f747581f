"""The Spark edge of the shuffled path: plans its batches, and shuffles what the tasks have fetched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.plan.reader import SMALL, JoinControl
from joins.plan.source import TicketReader, ticket_source
from joins.spec import JoinSpec
from joins.window.shuffle.pieces import Fetch, FetchTask
from joins.window.stage import fetch_stage
from teacup.spark.stream_reader import StreamReader, rows_of

PIECE_SCHEMA = "part int, piece binary"


class FetchReader(TicketReader):
    """Plans as on the direct path, but its work is partitions instead of buckets."""

    def tasks(self, end: dict[str, Any]) -> list[str]:
        batch_plan = BatchPlan.from_json(end)
        batch_plan.check_belongs_to(self._spec)
        (ticket,) = Ticket.all_of(batch_plan)
        fetches = (FetchTask(fetch=fetch) for fetch in Fetch.all_of(self._spec, ticket))
        return [msgspec.json.encode(task).decode() for task in (FetchTask(ticket=ticket), *fetches)]

    def together(self, end: dict[str, Any]) -> int:
        """Returns all of a small batch: then nothing has to be shuffled on one machine. Of others, some
        `SMALL` records: with hundreds of partitions a task each would take longer than their records.
        """
        batch_plan = BatchPlan.from_json(end)
        read = sum(
            r.records > 0
            for bucket in batch_plan.buckets.values()
            for r in (*bucket.left.values(), *bucket.right.values())
        )
        return sys.maxsize if batch_plan.records < SMALL else max(1, read * SMALL // batch_plan.records)

    def task_keys(self, end: dict[str, Any], tasks: int) -> list[str]:
        (ticket,) = Ticket.all_of(BatchPlan.from_json(end))
        return ["ticket", *(f"{fetch.side} {fetch.range.partition}" for fetch in Fetch.all_of(self._spec, ticket))]


def parts_of_batch(end: dict[str, Any]) -> tuple[int, int]:
    """Returns how many parts the batch that ends there has, and how many of them a Spark task gets at most."""
    batch_plan = BatchPlan.from_json(end)
    parts = batch_plan.parts or 0
    return parts, parts if batch_plan.records < SMALL else 1


def shuffled(
    spark: SparkSession, spec: JoinSpec, control: JoinControl, reader: Callable[..., StreamReader]
) -> DataFrame:
    """Returns the streaming DataFrame of pieces, those of a part in the same Spark partition; reader: `FetchReader`."""
    assert spec.buckets is not None, "joins.plan.start.copartition sets it"
    source = ticket_source(spec, control, reader, fetch_stage(spec), PIECE_SCHEMA)
    return rows_of(spark, source).repartitionById(spec.buckets, "part").select("piece")
