"""Fields of the values as columns of their own types: `left.order_id`, `right.amount`.

A side with a schema (`Side.value_schema`, Spark's DDL) has its value parsed by Spark's `from_json`, once per row,
however many fields are used, where the row is in the JVM anyway: for `output.select`, and for programs.

    left, right                    structs of the schema; null where the row has no record, or its value is null
    left_mismatch, right_mismatch  whether the value is not of the schema: no object, or a field of another type

With the schema "registry" the fields are those of the newest schema of the topic's values (`TOPIC-value`) when the
query starts; a record of an older one lacks some of them.

A field that is missing, or of another type, is null; the others keep their values. Any value becomes text where the
schema says STRING; a text becomes a number only where it says DECIMAL, and a time or date only in ISO 8601, with its
date. A number where the schema says TIMESTAMP counts seconds, as in Spark; beyond the year 9999 it is no time. A null
value is no mismatch, and neither is a missing field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from joins.errors import SpecError
from joins.outcome import Outcome
from joins.rows.frames import MISMATCH
from joins.spec import REGISTRY, JoinSpec, Side
from teacup.kafka.headers import SCHEMA_MISMATCH
from teacup.spark.analysis import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_REST = "teacup_mismatch"
"""The field in which Spark leaves a value that does not fit."""
_OPTIONS = {
    "columnNameOfCorruptRecord": _REST,
    "allowNonNumericNumbers": "false",  # the texts NaN and Infinity
    "locale": "de-CH",  # with that of the US a comma in a decimal is left out: "12,50" would be 1250
    # as Spark's own, but for years alone, and times of day, which it takes as today's
    "timestampFormat": "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.SSSSSSSSS]][XXX][XX]]",
    "dateFormat": "yyyy-MM-dd",
    "enableDateTimeParsingFallback": "false",
}
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


class SchemaRefused(SpecError):
    """Schemas that Spark refuses; each of `problems` is a line, `where: what`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def with_fields(rows: DataFrame, spec: JoinSpec) -> DataFrame:
    """Returns rows of a join (`joins.rows.frames.ROW`) with the columns of each side that has a schema.

    Raises `SchemaRefused`, naming every schema that is wrong, and where.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = dict(_schemas(spec))
    for name, kind in kinds.items():
        value = f.when(rows.outcome != Outcome.DEAD_LETTER, rows[f"{name}_value"].cast("string"))
        parsed = f.from_json(value, StructType([*kind, StructField(_REST, StringType())]), _OPTIONS)
        rows = rows.withColumn(name, parsed)
    for name, kind in kinds.items():
        misfit, value = f.col(f"{name}.{_REST}").isNotNull(), f.col(name).dropFields(_REST)
        for path in _times_in(kind):
            beyond = f.col(f"{name}.{path}") > f.lit(_LAST)
            misfit, value = misfit | beyond, value.withField(path, f.when(~beyond, f.col(f"{name}.{path}")))
        misfit = f.coalesce(misfit, f.lit(False))
        rows = rows.withColumns({f"{name}{MISMATCH}": misfit, name: value})
    return rows


def _times_in(kind: StructType, inside: str = "") -> Iterator[str]:
    """Returns the paths of a schema's timestamps, within structs alone."""
    from pyspark.sql.types import StructType, TimestampType

    for field in kind:
        path = inside + "`" + field.name.replace("`", "``") + "`"
        if isinstance(field.dataType, TimestampType):
            yield path
        elif isinstance(field.dataType, StructType):
            yield from _times_in(field.dataType, f"{path}.")


def judged(rows: DataFrame, spec: JoinSpec) -> DataFrame:
    """Returns rows (`with_fields`) in which those with a mismatch are dead letters, if their side says so."""
    from pyspark.sql import functions as f

    for name in spec.typed:
        if spec.side(name).on_mismatch is not None:
            misfit = f.col(f"{name}{MISMATCH}")
            rows = rows.withColumns(
                {
                    "outcome": f.when(misfit, str(Outcome.DEAD_LETTER)).otherwise(rows.outcome),
                    "reason": f.when(misfit, SCHEMA_MISMATCH).otherwise(rows.reason),
                }
            )
    return rows


def _schemas(spec: JoinSpec) -> Iterator[tuple[str, StructType]]:
    problems: list[str] = []
    for name in spec.typed:
        side = spec.side(name)
        try:
            yield name, _schema(side, spec.registry)
        except ValueError as refused:
            problems.append(f"{name}.schema: {side.value_schema!r} is not allowed: {refused}")
    if problems:
        raise SchemaRefused(problems)


def _newest(side: Side, registry: Mapping[str, str]) -> str:
    """Returns the fields of the newest schema of a side's topic. Raises `ValueError`, `RegistryUnreachable`."""
    from teacup.kafka.records.registry import open_registry

    return open_registry(registry, side.format).newest_ddl(f"{side.topic}-value")


def _schema(side: Side, registry: Mapping[str, str]) -> StructType:
    """Returns the fields of a side's schema. Raises `ValueError` with what is wrong."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    assert side.value_schema is not None
    text = _newest(side, registry) if side.value_schema == REGISTRY else side.value_schema
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        raise ValueError(in_one_line(error)) from error
    if not isinstance(found, StructType) or not found.names:
        raise ValueError("give fields with their types, as `order_id STRING, amount DOUBLE`")
    names = [name.lower() for name in found.names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the field {twice[0]} is there twice (upper and lower case are the same)")
    if '"nullable":false' in found.json():
        raise ValueError("NOT NULL has no effect, as any field may be missing; leave it out")
    kept = None if side.kept is None else side.kept.paths
    if kept is not None:
        outside = [name for name in found.names if not any(f"{path}.".startswith(f"$.{name}.") for path in kept)]
        if outside:
            raise ValueError(f"the field {outside[0]} is not kept (`keep`: {', '.join(kept) or 'no field'})")
    return found
