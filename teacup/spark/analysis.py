"""What Spark's analyser refuses, in one line: the name, its types, and the nearest name that there is.

Spark's own messages name a column of the plan, an error class and an SQL state, and go on with the plan.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from teacup.base.config.keys import instead

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession


def analyse_quietly() -> None:
    """Keeps PySpark from logging each refusal as well, with Java's stack."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def why_refused(error: PySparkException, frame: DataFrame) -> str:
    """Returns why Spark refuses an expression over a frame."""
    given = {name: str(value).replace("`", "") for name, value in (error.getMessageParameters() or {}).items()}
    match (error.getCondition() or "").partition(".")[0]:
        case "UNRESOLVED_COLUMN":
            name = given["objectName"]
            return f"there is no column {name}; {instead(name, [*names_of(frame)])}"
        case "FIELD_NOT_FOUND":
            name = given["fieldName"]
            return f"there is no field {name}; {instead(name, given['fields'].split(', '))}"
        case "UNRESOLVED_ROUTINE":
            name = given["routineName"]
            close = instead(name, functions_of(frame.sparkSession))
            return (
                f"there is no function {name}; {close if close.startswith('did') else 'see the SQL functions of Spark'}"
            )
    return in_one_line(error)


def in_one_line(error: PySparkException) -> str:
    """Returns Spark's own words, without class, state and plan; with the position, if it names one."""
    text = str(error).strip()
    words = re.sub(r"^\[\S+\] ", "", text.partition("\n")[0]).partition(" SQLSTATE:")[0]
    at = re.search(r"\(?line \d+, pos(ition)? \d+\)?", text)
    return f"{words} ({at[0].strip('()')})" if at else words


def names_of(frame: DataFrame) -> Iterator[str]:
    """Yields the names that an expression may use: columns, and the fields of structs as `left.price`."""
    from pyspark.sql.types import StructType

    for column in frame.schema:
        yield column.name
        if isinstance(column.dataType, StructType):
            yield from (f"{column.name}.{field.name}" for field in column.dataType)


def functions_of(spark: SparkSession) -> list[str]:
    """Returns the names of all functions."""
    return [row.function for row in spark.sql("SHOW FUNCTIONS").collect()]
