"""The two flavours of the join as values: how one plans, what carries a batch out, and what holds for its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joins.lookup.spec import LookupSpec
from joins.spec import JoinSpec, Policy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader

    from joins.admission.control import JoinControl
    from joins.window.stage import Batches

    Stage = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True, slots=True)
class Flavour:
    """What one join has and the other has not.

    inputs           the sides whose topics the join itself reads
    repeats_exactly  a batch that runs again gives the same rows: nothing but the topics decides
    reader           plans the batches, as a Spark source; of spec, control and stage
    stage            carries out tickets; of spec and the folder of windows
    """

    inputs: tuple[str, ...]
    repeats_exactly: bool
    reader: Callable[..., DataSourceStreamReader]
    stage: Callable[[Any, Path | None], Stage]

    def repeats_in_order(self, spec: JoinSpec) -> bool:
        """Whether a batch that runs again always has the same number of rows, about the same left records in order.

        With every policy but `all` a left record has one row, even if right records have reached a store late
        meanwhile.
        """
        return self.repeats_exactly or spec.policy is not Policy.ALL


def _window_reader(*args: Any) -> DataSourceStreamReader:
    from joins.admission.source import TicketReader

    return TicketReader(*args)


def _window_stage(spec: JoinSpec, windows: Path | None) -> Stage:
    from joins.window.stage import join_stage

    return join_stage(spec, windows)


def _lookup_reader(*args: Any) -> DataSourceStreamReader:
    from joins.lookup.source import LookupReader

    return LookupReader(*args)


def _lookup_stage(spec: LookupSpec, windows: Path | None) -> Stage:
    from joins.lookup.stage import lookup_stage

    return lookup_stage(spec, windows)


WINDOW = Flavour(("left", "right"), repeats_exactly=True, reader=_window_reader, stage=_window_stage)
LOOKUP = Flavour(("left",), repeats_exactly=False, reader=_lookup_reader, stage=_lookup_stage)


def flavour_of(spec: JoinSpec) -> Flavour:
    """The flavour that a specification asks for."""
    return LOOKUP if isinstance(spec, LookupSpec) else WINDOW


def tickets(spark: SparkSession, spec: JoinSpec, control: JoinControl | None = None) -> DataFrame:
    """The streaming DataFrame of tickets (one column, `ticket`); a stage is mapped over it."""
    from joins.admission.control import JoinControl
    from joins.admission.source import ticket_source
    from sparkio.source import rows_of

    return rows_of(spark, ticket_source(spec, control or JoinControl(), flavour_of(spec).reader))


def carried_out(
    spark: SparkSession, spec: JoinSpec, stage: Stage, schema: str, control: JoinControl | None = None
) -> DataFrame:
    """The streaming DataFrame of the rows of `schema` that `stage` makes of the tickets, inside the source.

    The same as `tickets(…).mapInArrow(stage, schema)`, with one Python worker per task instead of two.
    """
    from joins.admission.control import JoinControl
    from joins.admission.source import ticket_source
    from sparkio.source import rows_of

    return rows_of(spark, ticket_source(spec, control or JoinControl(), flavour_of(spec).reader, stage, schema))
