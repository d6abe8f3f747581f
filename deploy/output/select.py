"""The user's expressions (`output.select`), evaluated so that a failure affects only its own row.

An expression becomes a column of structs with one field, `v`. The struct is null if the expression failed, and holds a
null if its value is null. Only results are evaluated; for other rows, such as dead letters, it is null.

Spark's SQL has "null if this fails" only for some functions (`try_divide`); the expression behind them, `TryEval`,
takes any expression. A condition is put around it, because Spark would otherwise evaluate a part shared by several
expressions once, outside every try. Spark does not say which error it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from deploy.jobfile.job import JoinJob, Select
from joins.fields import fields_of
from joins.items import SPARK_TYPES, C, Item, Rows
from joins.outcome import RESULTS
from joins.rows.frames import MISMATCH, ROW, in_chunks
from joins.spec import OTHER, JoinSpec
from teacup.kafka.headers import ID
from teacup.spark.analysis import why_refused
from teacup.spark.errors import SessionRefused

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession

PARTS = ("key", "value", "headers")

_TO_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # Spark's own cuts off microseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class SelectRefused(SessionRefused):
    """Expressions that Spark refuses; each of `problems` is a line, `where: what`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def with_selected(
    frame: DataFrame, select: Select, added: Mapping[str, str], results: tuple[str, ...] = RESULTS
) -> DataFrame:
    """Returns the rows with `out_key`, `out_value` and `out_headers`.

    added     more headers
    results   the outcomes of results

    Raises `SelectRefused`, naming each expression that Spark refuses, or whose values are neither binary nor strings.
    """
    from pyspark.errors import PySparkException

    if problems := [*_problems(frame, select, added)]:
        raise SelectRefused(problems)
    try:
        return _added(_columns(frame.sparkSession, select, added, results), frame)
    except PySparkException as error:  # what Spark takes alone, but not in a condition: a generator such as `explode`
        raise SelectRefused([f"output.select: {why_refused(error, frame)}"]) from error


def _added(columns: Sequence[Column], frame: DataFrame) -> DataFrame:
    return frame.select("*", *columns).drop(*OTHER)  # the fields of values are not needed any more


def _columns(spark: SparkSession, select: Select, added: Mapping[str, str], results: Sequence[str]) -> list[Column]:
    headers = ", ".join(
        f"named_struct('key', {_literal(name)}, 'value', cast({expression} as binary))"
        for name, expression in {**select.headers, **added}.items()
    )
    none = "cast(null as array<struct<key:string,value:binary>>)"
    expressions = {
        "key": f"cast({select.key} as binary)",
        "value": f"cast({_value(select)} as binary)",
        "headers": f"array({headers})" if headers else none,
    }
    tried = partial(_tried, spark, f"outcome in {tuple(map(str, results))}")
    return [tried(expressions[part]).alias(f"out_{part}") for part in PARTS]


def selected_rows(frame: DataFrame, job: JoinJob) -> DataFrame:
    """Returns a join's rows with what the job's `output.select` makes of them. Raises `SelectRefused`, or
    `SchemaRefused`.
    """
    return _selected(frame, job, fields_of(job.spec))


def selection_of(spark: SparkSession, job: JoinJob) -> Callable[[DataFrame], DataFrame]:
    """Returns `selected_rows` of a job, for many frames: schemas and expressions are looked at only here.

    Raises `SelectRefused`, or `SchemaRefused`.
    """
    fields, select = fields_of(job.spec), job.output.select
    assert select is not None
    _selected(empty_rows(spark), job, fields)
    columns = _columns(spark, select, _ids(job), job.spec.right.type.results)
    return lambda frame: _added(columns, fields(frame))


def _selected(frame: DataFrame, job: JoinJob, fields: Callable[[DataFrame], DataFrame]) -> DataFrame:
    assert job.output.select is not None
    return with_selected(fields(frame), job.output.select, _ids(job), job.spec.right.type.results)


def _ids(job: JoinJob) -> Mapping[str, str]:
    """Returns the header that identifies a result for a deduplicator, with its expression, if it has one."""
    again = job.output.deduplicate
    return {} if again is None or again.expression is None else {ID: again.expression}


def empty_rows(spark: SparkSession) -> DataFrame:
    """Returns a frame without rows that has the columns of a join's, to analyse expressions over them."""
    return spark.range(0).selectExpr(*(f"cast(null as {SPARK_TYPES[kind]}) as {name}" for name, kind in ROW.items()))


def _value(select: Select) -> str:
    """Returns the expression of the value: of fields, a JSON object, with null where a field has no value."""
    if isinstance(select.value, str):
        return select.value
    fields = ", ".join(f"{_literal(name)}, ({expression})" for name, expression in select.value.items())
    options = ", ".join(f"{_literal(name)}, {_literal(value)}" for name, value in _TO_JSON.items())
    return f"to_json(named_struct({fields}), map({options}))"


def _problems(frame: DataFrame, select: Select, added: Mapping[str, str]) -> Iterator[str]:
    """Yields what is wrong with each expression.

    Other types are refused: Spark casts some to binary, depending on its settings, and a number to four bytes.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import BinaryType, CharType, NullType, StringType, VarcharType

    fields = select.value if isinstance(select.value, Mapping) else {}
    named = {"output.select.key": select.key}
    named |= {f"output.select, field {name}": expression for name, expression in fields.items()}
    if isinstance(select.value, str):
        named["output.select.value"] = select.value
    named |= {f"output.select.headers.{name}": expression for name, expression in select.headers.items()}
    named |= {f"the expression of header {name!r}": expression for name, expression in added.items()}
    for where, expression in named.items():
        try:
            kind = frame.selectExpr("*", expression).schema[-1].dataType
        except PySparkException as error:
            why = _without_schema(error, frame) or why_refused(error, frame)
            yield f"{where}: {expression!r} is not allowed: {why}"
            continue
        if where.startswith("output.select, field"):
            if isinstance(kind, BinaryType):
                yield (
                    f"{where}: {expression!r} is binary, which JSON does not have: write for text "
                    f"`cast({expression} as string)`, otherwise `base64({expression})`"
                )
        elif not isinstance(kind, BinaryType | StringType | CharType | VarcharType | NullType):
            yield (
                f"{where}: {expression!r} is of type {kind.simpleString()}, and records hold bytes: make it a string, "
                f"as in `cast({expression} as string)` (a struct, map or array by `to_json`), or binary"
            )


def _without_schema(error: PySparkException, frame: DataFrame) -> str:
    """Returns why `left.price` is refused if left has no schema; otherwise nothing."""
    side, dot, _ = (error.getMessageParameters() or {}).get("objectName", "").replace("`", "").partition(".")
    lacks = dot and side in OTHER and side not in frame.columns
    return f"to use fields of {side}, give `{side}.schema`, as `order_id STRING, amount DOUBLE`" if lacks else ""


def selected(items: Iterable[Item[C]], spec: JoinSpec) -> Iterator[Item[C]]:
    """Yields items whose rows have passed the `select`, in bounded chunks."""
    for item in items:
        if isinstance(item, Rows):
            yield from map(Rows, in_chunks(flattened(item.frame, spec)))
        else:
            yield item


def flattened(rows: pl.DataFrame, spec: JoinSpec) -> pl.DataFrame:
    """Returns the plain values, and what `failed`: an expression, or a value's schema; it counts for results only."""
    columns = {part: pl.col(f"out_{part}") for part in PARTS}
    result = pl.col("outcome").is_in(spec.right.type.results)
    misfits = {side: result & pl.col(f"{side}{MISMATCH}") for side in spec.typed}
    refused = [
        *(pl.when(misfits[side]).then(pl.lit(f"{side}.schema")) for side in misfits if spec.side(side).on_mismatch),
        *(pl.when(result & column.is_null()).then(pl.lit(part)) for part, column in columns.items()),
    ]
    return rows.with_columns(
        failed=pl.coalesce(*refused),
        **{f"{side}{MISMATCH}": misfit for side, misfit in misfits.items()},
        **{f"out_{part}": column.struct.field("v") for part, column in columns.items()},
    )


def _tried(spark: SparkSession, result: str, expression: str) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column

    jvm = spark.sparkContext._jvm
    assert jvm is not None
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    value = functions.expr(f"case when {result} then named_struct('v', {expression}) end")
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(value._jc))
    return Column(utils.column(tried))


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
