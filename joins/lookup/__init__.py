"""The join through external storage: right is stored by a feeder, left is held by its data delay and looked up.

spec.py    what a lookup join is
gate.py    what a published delay lets left do              (pure)
source.py  Spark: the ticket source of the in-memory join, with the Data Delay API as right's frontier
batch.py   one batch: take in, look up, match               (pure)
stored.py  look-ups: parallel requests, and patience with a store that fails
stage.py   Spark: tickets -> rows, in one Python task
frame.py   any DataFrame, looked up batch by batch
rightrow.py  a right record as an item of the store, and back (pure)

`joins.lookup(df, spec)` calls `frame.lookup`: the module itself can be called, as function and package share a name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from joins.lookup.spec import LookupSpec
    from joins.window.source import Gate
    from joins.window.stage import Batches


def tickets(spark: SparkSession, spec: LookupSpec, gate: Gate | None = None) -> DataFrame:
    """The streaming DataFrame of tickets (one column, `ticket`): what a stage is mapped over."""
    from joins.lookup.source import LookupReader
    from joins.window import load
    from joins.window.source import Gate, ticket_source

    return load(spark, ticket_source(spec, gate or Gate(), reader=LookupReader))


def carried_out(
    spark: SparkSession,
    spec: LookupSpec,
    stage: Callable[[Iterable[pa.RecordBatch]], Batches],
    schema: str,
    gate: Gate | None = None,
) -> DataFrame:
    """The streaming DataFrame of what `stage` makes of the tickets, within the source: rows of `schema`."""
    from joins.lookup.source import LookupReader
    from joins.window import load
    from joins.window.source import Gate, ticket_source

    return load(spark, ticket_source(spec, gate or Gate(), stage, schema, LookupReader))


def lookup_join(spark: SparkSession, spec: LookupSpec, *, gate: Gate | None = None) -> DataFrame:
    """The join as a streaming DataFrame: the columns of `joins.window_join`, one row a result.

    outcome is matched, unmatched (reason no_candidate, null_key, right_stalled or no_longer_stored) or dead_letter.
    Every left record leaves in exactly one outcome, once right is surely stored as far as it may match. Give the query
    a checkpoint location of its own.
    """
    from joins.window.stage import SPARK_SCHEMA, SUMMARY, TICKET

    joined = tickets(spark, spec, gate).mapInArrow(lookup_stage_rows(spec), SPARK_SCHEMA)
    return joined.where(~joined.outcome.isin([TICKET, SUMMARY]))


def lookup_stage_rows(spec: LookupSpec) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """For `mapInArrow`: tickets -> all rows, those of tickets and summaries among them, in Spark's types."""
    from joins.lookup.stage import lookup_stage
    from joins.window.stage import for_spark

    stage = lookup_stage(spec)

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        return for_spark(stage(batches))

    return rows


class _Lookup(ModuleType):
    def __call__(self, df: DataFrame, spec: LookupSpec, *, wait_at_most_s: float | None = None) -> DataFrame:
        """See `joins.lookup.frame.lookup`."""
        from joins.lookup.frame import lookup

        return lookup(df, spec, wait_at_most_s=wait_at_most_s)


sys.modules[__name__].__class__ = _Lookup
