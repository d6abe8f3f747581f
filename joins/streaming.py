"""The two joins as streaming DataFrames: `window_join`, `lookup_join`.

What differs between the join kinds is a value (`JoinKind`): how they plan, what carries a batch out, and what holds for
its rows. What needs Spark or Arrow is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from joins.outcome import Outcome
from joins.spec import JoinPath, JoinSpec, Policy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from joins.items import Stage
    from joins.plan.reader import JoinControl
    from joins.read.summary import BucketSummary
    from teacup.spark.batches.jobs import Stream, ThroughSpark
    from teacup.spark.stream_reader import StreamReader


def window_join(
    spark: SparkSession,
    spec: JoinSpec,
    *,
    unjoined: bool = False,
    windows: Path | None = None,
    window_backup: str | None = None,
) -> DataFrame:
    """The in-memory join, one row per result (`joins.rows.frames.ROW`):

    key                                     binary, the join key; null where left has none
    left_key, right_key                     binary, the records' own keys
    left_time, right_time                   bigint, event time in milliseconds UTC
    left_value, right_value                 binary
    left_headers, right_headers             array<struct<key string, value binary>>
    left_partition, left_offset, right_…    int, bigint: the positions, which are the id of a result
    outcome                                 matched | unmatched | dead_letter, with `unjoined=True` or the type `full`
                                            also unjoined
    reason                                  why unmatched, unjoined or dead_letter; null for matched
    late                                    the record came later than its disorder allows
    left, right                             of a side with a `value_schema`: a struct of its fields
    left_mismatch, right_mismatch           the same: boolean, whether the value is not of the schema; such a row is a
                                            dead letter (reason schema_mismatch) if the side's `on_mismatch` says so

    windows        the folder on each machine where slices are kept; None: the user's own in the temporary folder
    window_backup  a folder or URL for this query alone that all machines reach: slices are copied to it, and a machine
                   that lacks them fetches them; None: such a machine reads Kafka

    Every left record gets exactly one outcome, and so a row, unless its side skips it (`where`, `tombstones`). Give the
    query a checkpoint location of its own: it holds the positions and the spec. The caller writes the rows, with the
    guarantees of the Spark sink that is used.
    """
    from joins.fields import judged, with_fields
    from joins.plan.reader import JoinControl
    from joins.plan.start.copartition import with_path
    from teacup.spark.session import check_interpreter

    check_interpreter(spark)
    joined = result_frame(
        spark, with_path(spec), JoinControl(windows=windows, copied=window_backup is not None), windows, window_backup
    )
    shown = unjoined or Outcome.UNJOINED in spec.right.type.outcomes
    hidden = [Outcome.LATE, Outcome.SKIPPED, *spec.right.type.left_out, *(() if shown else (Outcome.UNJOINED,))]
    return judged(with_fields(joined.where(~joined.outcome.isin(hidden)), spec), spec)


def lookup_join(spark: SparkSession, spec: JoinSpec) -> DataFrame:
    """The lookup join: the columns of `window_join`, one row per result.

    outcome is matched, unmatched (reason no_candidate, null_key, right_stalled or no_longer_stored) or dead_letter.
    Every left record gets exactly one outcome, once every right record that it may match is known to be stored.
    Give the query a checkpoint location of its own.
    """
    from joins.fields import judged, with_fields
    from teacup.spark.session import check_interpreter

    check_interpreter(spark)
    assert spec.right.store, "raises SpecError for a join of another kind"
    rows = result_frame(spark, spec)
    return judged(with_fields(rows.where(~rows.outcome.isin(Outcome.SKIPPED, *spec.right.type.left_out)), spec), spec)


@dataclass(frozen=True, slots=True)
class JoinKind:
    """What differs between the join kinds.

    reader_at, stage_at   where reader and stage are; imported once they are needed
    inputs           the sides whose topics the join itself reads
    repeats_exactly  a batch that runs again gives the same rows, as only the topics decide
    shuffles         records go through a shuffle to the task that joins them
    """

    reader_at: str
    stage_at: str
    inputs: tuple[str, ...] = ("left", "right")
    repeats_exactly: bool = True
    shuffles: bool = False

    def reader(self, *args: Any) -> StreamReader:
        """Returns the Spark reader that plans the batches, from spec, control and stage."""
        made: StreamReader = resolve_name(self.reader_at)(*args)
        return made

    def stage(self, spec: JoinSpec, windows: Path | None, copies: str | None) -> Stage[BucketSummary]:
        """Returns what turns a ticket, or a part of one, into items; with the folders of windows and their copies."""
        made: Stage[BucketSummary] = resolve_name(self.stage_at)(spec, windows, copies)
        return made

    def repeats_in_order(self, spec: JoinSpec) -> bool:
        """Returns whether a batch that runs again has the same number of rows, about the same left records in order.

        With every policy but `all` a left record has one row, even if right records have reached a store meanwhile.
        """
        return self.repeats_exactly or spec.right.policy is not Policy.ALL


WINDOW = JoinKind("joins.plan.source:TicketReader", "joins.window.stage:join_stage")
SHUFFLED = JoinKind("joins.window.shuffle.source:FetchReader", "joins.window.stage:shuffled_stage", shuffles=True)
LOOKUP = JoinKind(
    *("joins.lookup.source:LookupReader", "joins.lookup.stage:lookup_stage"), inputs=("left",), repeats_exactly=False
)


def join_kind_of(spec: JoinSpec) -> JoinKind:
    """Returns the join kind that a specification asks for."""
    if spec.right.source.is_stored:
        return LOOKUP
    return SHUFFLED if spec.path is JoinPath.SHUFFLED else WINDOW


def job_stream(
    spec: JoinSpec,
    stage: Callable[[Iterable[Any]], Iterator[pa.RecordBatch]],
    control: JoinControl,
    through: ThroughSpark | None = None,
) -> Stream:
    """Returns how the batches of a join are carried out by a job of ours.

    stage     from tickets to reports or, with `through`, to rows that go on through it; on the shuffled path from
              parts of tickets, with their records
    """
    from teacup.spark.batches.jobs import Exchange, Stream
    from teacup.spark.stream_reader import pickled

    kind = join_kind_of(spec)
    if not kind.shuffles:
        return Stream(kind.reader(spec, control, pickled(stage)), through=through)
    from joins.window.shuffle.source import work_by_part
    from joins.window.stage import each_part, fetch_stage, in_one_task

    reader = kind.reader(spec, control, pickled(fetch_stage(spec)))
    exchange = Exchange(work_by_part, pickled(each_part(stage)), pickled(in_one_task(spec, stage)))
    return Stream(reader, exchange, through)


def stage_frame(
    spark: SparkSession,
    spec: JoinSpec,
    stage: Callable[[Iterable[Any]], Iterator[pa.RecordBatch]],
    schema: str,
    control: JoinControl | None,
) -> DataFrame:
    """Returns the streaming DataFrame of the rows of `schema` that `stage` makes from tickets (JSON texts).

    The stage runs inside the source: a `mapInArrow` over a DataFrame of tickets would need a second Python worker per
    task. On the shuffled path it runs behind the shuffle, on parts of tickets with their records
    (`joins.window.shuffle.pieces.ShuffledPart`).
    """
    from joins.plan.reader import JoinControl
    from joins.plan.source import ticket_source
    from teacup.spark.jvm_errors import crossing_rows
    from teacup.spark.stream_reader import payloads
    from teacup.spark.stream_source import rows_of

    if join_kind_of(spec).shuffles:
        from joins.window.shuffle.source import shuffled
        from joins.window.stage import each_part

        behind = each_part(stage)
        pieces = shuffled(spark, spec, control or JoinControl(), join_kind_of(spec).reader)
        return pieces.mapInArrow(crossing_rows(lambda batches: behind(payloads(batches))), schema)
    return rows_of(spark, ticket_source(spec, control or JoinControl(), join_kind_of(spec).reader, stage, schema))


def result_frame(
    spark: SparkSession,
    spec: JoinSpec,
    control: JoinControl | None = None,
    windows: Path | None = None,
    window_backup: str | None = None,
) -> DataFrame:
    """Returns the streaming DataFrame of all rows of a join."""
    from joins.items import ROW_SCHEMA, result_rows

    stage = join_kind_of(spec).stage(spec, windows, window_backup)
    return stage_frame(spark, spec, lambda tickets: result_rows(stage(tickets)), ROW_SCHEMA, control)
