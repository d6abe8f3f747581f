"""Which values are Avro records: a schema compiled into a program that skips a record's fields. Pure.

For the schemas that polars decodes (`teacup.kafka.records.avro_schemas`), it refuses exactly what polars refuses:

    boolean, fixed, float, double    their number of bytes, whatever these hold
    int, long                        at most ten bytes; an int has 32 bits
    enum                             the lower 32 bits are the number of a symbol
    bytes, string                    a non-negative length; a string is UTF-8
    decimal of bytes                 at most 16 of them
    array                            blocks of items; the size in bytes after a negative count does not matter
    [null, type]                     0 is null, any other number the type

C runs a schema's program (`program_of`, `teacup.kafka.native.columns`) over a whole column, in a small part of the time
that decoding takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from teacup.kafka.records.avro_schemas import DECIMAL_BYTES

_FIXED, _INT, _LONG, _BYTES, _STRING, _ENUM, _NULLABLE, _ARRAY = range(8)
"""Operations of a program, as in avro.c."""

SIZES = {"boolean": 1, "float": 4, "double": 8}


def program_of(schema: Any) -> NDArray[np.int64]:
    """Returns operations, each followed by its operands (avro.c).

    schema   inlined, and of a type that polars decodes
    """
    return np.array(_program(schema), np.int64)


def _program(schema: Any) -> list[int]:
    if isinstance(schema, list):
        inner = _program(schema[1])
        return [_NULLABLE, len(inner), *inner]
    kind, more = (schema, {}) if isinstance(schema, str) else (schema["type"], schema)
    match kind:
        case "record":
            return [cell for field in more["fields"] for cell in _program(field["type"])]
        case "array":
            item = _program(more["items"])
            return [_ARRAY, len(item), *item]
        case "enum":
            return [_ENUM, len(more["symbols"])]
        case "int":
            return [_INT]
        case "long":
            return [_LONG]
        case "string":
            return [_STRING]
        case "bytes":
            return [_BYTES, DECIMAL_BYTES if more.get("logicalType") == "decimal" else -1]
    return [_FIXED, more["size"] if kind == "fixed" else SIZES[kind]]
