"""Fields of the values as columns of their own types: `left.order_id`, `right.amount`.

A side with a schema (`Side.value_schema`, Spark's DDL) has its value parsed by Spark's `from_json`, once per row,
however many fields are used, where the row is in the JVM anyway: for `output.select`, and for programs.

    left, right                    structs of the schema; null where the row has no record, or its value is null
    left_mismatch, right_mismatch  whether the value does not fit the schema: not an object, or a field of another type

With the schema "registry" the fields are those of the newest schema of the topic's values (`TOPIC-value`) when the
query starts; a record of an older one lacks some of them.

A field that is missing, or of another type, is null; the others keep their values. Any value becomes text where the
schema says STRING; a text becomes a number only where it says DECIMAL, and a time or date only in ISO 8601, with its
date; without a zone, in that of the side (`time_zone`), or else of the session. A number where the schema says
TIMESTAMP counts seconds, as in Spark. Outside the years 1 to 9999 there is no time and no date. A number beyond FLOAT
or DOUBLE does not fit. An array or a map with a value that does not fit is null as a whole. A null value is no
mismatch, nor is a missing field. If a field occurs twice, the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, cast

from joins.errors import SpecError
from joins.outcome import Outcome
from joins.rows.frames import MISMATCH
from joins.spec import REGISTRY, JoinSpec, Side
from teacup.kafka.headers import SCHEMA_MISMATCH
from teacup.kafka.records.json_fields import first_name
from teacup.spark.analysis import in_one_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_REST = "teacup_mismatch"
"""The field in which Spark leaves a value that does not fit."""
_OPTIONS = {
    "columnNameOfCorruptRecord": _REST,
    "allowNonNumericNumbers": "false",  # the texts NaN and Infinity
    "locale": "de-CH",  # with that of the US a comma in a decimal is left out: "12,50" would be 1250
    # as Spark's own, but for years alone, and times of day, which it takes as today's
    "timestampFormat": "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.SSSSSSSSS]][XXX][XX][X]]",
    "timestampNTZFormat": "yyyy-MM-dd[['T'][' ']HH:mm[:ss[.SSSSSSSSS]]]",
    "dateFormat": "yyyy-MM-dd",
    "enableDateTimeParsingFallback": "false",
}
_TIMES = "_times"
_LONG = r'"-?[0-9]{14,}"(?!:)'
"""Matches JSON with a string of so many digits that is not a name."""
_YEARS = "0001-01-01T00:00:00Z", "+10000-01-01T00:00:00Z"
_TYPES = {
    "string", "boolean", "short", "integer", "long", "float", "double", "decimal", "date", "timestamp", "timestamp_ntz",
    "binary",
}  # fmt: skip
"""The scalar types, as PySpark names them. Spark reads 200 as a TINYINT of -56."""


class SchemaRefused(SpecError):
    """Schemas that Spark refuses; each of `problems` is a line, `where: what`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def with_fields(rows: DataFrame, spec: JoinSpec) -> DataFrame:
    """Returns rows of a join (`joins.rows.frames.ROW`) with the columns of each side that has a schema.

    Raises `SchemaRefused`, naming every schema that is wrong, and where.
    """
    return fields_of(spec)(rows)


def fields_of(spec: JoinSpec) -> Callable[[DataFrame], DataFrame]:
    """Returns `with_fields` of a join, for many frames: with the schemas as they are now. Raises `SchemaRefused`."""
    return partial(_with_fields, spec, dict(_schemas(spec)))


def _with_fields(spec: JoinSpec, kinds: Mapping[str, StructType], rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    for name, kind in kinds.items():
        value = f.when(rows.outcome != Outcome.DEAD_LETTER, rows[f"{name}_value"].cast("string"))
        zone = spec.side(name).time_zone
        options = _OPTIONS if zone is None else {**_OPTIONS, "timeZone": zone}
        parsed = f.from_json(value, StructType([*kind, StructField(_REST, StringType())]), options)
        rows = rows.withColumn(name, parsed)
        if isinstance(times := _times_of(kind), StructType):
            # Spark counts microseconds in 64 bits: from 14 digits on, seconds may come out as any time.
            long = f.from_json(f.when(value.rlike("[^.0-9][0-9]{14}"), value), times)
            rows = rows.withColumn(f"{name}{_TIMES}", long)
    for name, kind in kinds.items():
        misfit, value = f.col(f"{name}.{_REST}").isNotNull(), f.col(name).dropFields(_REST)
        for path, inner in _fields_in(kind):
            field = f.col(f"{name}.{path}")
            if (beyond := _beyond(field, inner)) is None:
                continue
            if _times_of(inner) is not None:
                beyond |= f.to_json(f.struct(f.col(f"{name}{_TIMES}.{path}"))).rlike(_LONG)
            misfit, value = misfit | beyond, value.withField(path, f.when(beyond, None).otherwise(field))
        misfit = f.coalesce(misfit, f.lit(False))
        rows = rows.withColumns({f"{name}{MISMATCH}": misfit, name: value}).drop(f"{name}{_TIMES}")
    return rows


def _fields_in(kind: StructType, inside: str = "") -> Iterator[tuple[str, DataType]]:
    """Yields the path and type of each field that is not a struct, inside structs only."""
    from pyspark.sql.types import StructType

    for field in kind:
        path = inside + "`" + field.name.replace("`", "``") + "`"
        if isinstance(field.dataType, StructType):
            yield from _fields_in(field.dataType, f"{path}.")
        else:
            yield path, field.dataType


def _beyond(value: Column, kind: DataType) -> Column | None:
    """Returns whether Spark made a value from something not of the type; None: it never does."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import (
        ArrayType,
        DateType,
        DoubleType,
        FloatType,
        MapType,
        StructType,
        TimestampNTZType,
        TimestampType,
    )

    match kind:
        case DateType() | TimestampType() | TimestampNTZType():
            first, end = (f.lit(year).cast(kind) for year in _YEARS)
            return (value < first) | (value >= end)
        case FloatType() | DoubleType():
            return f.abs(value) == float("inf")
        case StructType():
            inside = [path for at in kind if (path := _beyond(value[at.name], at.dataType)) is not None]
            return reduce(or_, inside) if inside else None
        case ArrayType() | MapType():
            values, of = (
                (value, kind.elementType) if isinstance(kind, ArrayType) else (f.map_values(value), kind.valueType)
            )
            if _beyond(values, of) is not None:
                return f.exists(values, lambda one: cast("Column", _beyond(one, of)))
    return None


def _times_of(kind: DataType) -> DataType | None:
    """Returns only the timestamps of the type, each as text; None: it has none."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType, TimestampType

    match kind:
        case TimestampType():
            return StringType()
        case StructType():
            times = [StructField(at.name, inner) for at in kind if (inner := _times_of(at.dataType)) is not None]
            return StructType(times) if times else None
        case ArrayType():
            return None if (inner := _times_of(kind.elementType)) is None else ArrayType(inner)
        case MapType():
            return None if (inner := _times_of(kind.valueType)) is None else MapType(kind.keyType, inner)
    return None


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
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise ValueError(in_one_line(error)) from error
    if not isinstance(schema, StructType) or not schema.names:
        raise ValueError("give fields with their types, as `order_id STRING, amount DOUBLE`")
    _check(schema)
    if '"nullable":false' in schema.json():
        raise ValueError("NOT NULL has no effect, as any field may be missing; leave it out")
    kept = None if side.kept is None else side.kept.paths
    if kept is not None:
        outside = [name for name in schema.names if name not in map(first_name, kept)]
        if outside:
            raise ValueError(f"the field {outside[0]} is not kept (`keep`: {', '.join(kept) or 'no field'})")
    return schema


def _check(kind: DataType) -> None:
    """Raises `ValueError` for a type that Spark reads wrongly, or not at all, and for a duplicate field."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    match kind:
        case StructType():
            names = [name.lower() for name in kind.names]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"the field {twice[0]} is there twice (upper and lower case are the same)")
            for at in kind:
                _check(at.dataType)
        case ArrayType():
            _check(kind.elementType)
        case MapType() if isinstance(kind.keyType, StringType):
            _check(kind.valueType)
        case _ if kind.typeName() not in _TYPES:
            raise ValueError(
                f"{kind.simpleString().upper()} is not supported; give STRING, BOOLEAN, SMALLINT, INT, BIGINT, FLOAT, "
                "DOUBLE, DECIMAL, DATE, TIMESTAMP, TIMESTAMP_NTZ, BINARY, or ARRAY, MAP<STRING, ...>, STRUCT of these"
            )
