"""Values that name their schema (magic byte 0, the schema's id in 4 bytes, big-endian, a record) as JSON text. Pure.

A batch may hold records of several schemas; those of one schema are decoded together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from teacup.kafka.headers import UNKNOWN_SCHEMA

HEAD = 5
NO_FRAME = "no frame"
I64 = np.typing.NDArray[np.int64]


@runtime_checkable
class Schema(Protocol):
    """Reads the values of one id."""

    def json_of(self, values: pa.Array, columns: Sequence[str] | None = None) -> pa.Array:
        """Returns each value (binary, without the frame) as JSON text; null if it does not fit the schema."""


SchemasOf = Callable[[Sequence[int]], Mapping[int, Schema | str]]
"""All ids of a batch -> their schemas, or why one cannot be used; ids without a schema are missing."""


def json_of(
    values: pa.Array, schemas_of: SchemasOf, invalid: str, columns: Sequence[str] | None = None
) -> tuple[pa.Array, pa.Array]:
    """Returns JSON text (binary) of each value (binary), and the reason if there is none; null values stay null.

    invalid   the reason for a value that cannot be read
    columns   the top-level fields that are needed; None: all
    """
    ids = schema_ids(values)
    parts: list[pa.Array] = []
    reasons: list[pa.Array] = []
    rows: list[I64] = []
    for schema, at in _groups(ids, schemas_of):
        texts, why = _of_schema(values.take(pa.array(at)), schema, invalid, columns)
        rows.append(at)
        parts.append(texts)
        reasons.append(why)
    if not rows:
        return pa.nulls(0, pa.binary()), pa.nulls(0, pa.string())
    back = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
    return pa.concat_arrays(parts).cast(pa.binary()).take(back), pa.concat_arrays(reasons).take(back)


def _groups(ids: I64, schemas_of: SchemasOf) -> Iterator[tuple[Schema | str | None, I64]]:
    """Yields the schema of each id, and the rows with that id.

    Rows with unknown ids come together, as there may be many.
    """
    numbers, number_at = np.unique(ids, return_inverse=True)
    schema_of = schemas_of([number for number in numbers.tolist() if number >= 0])
    schemas = [NO_FRAME if number < 0 else schema_of.get(number) for number in numbers.tolist()]
    unknown = np.array([schema is None for schema in schemas], np.bool_)[number_at]
    if unknown.any():
        yield None, np.flatnonzero(unknown)
    for at, schema in enumerate(schemas):
        if schema is not None:
            yield schema, np.flatnonzero(number_at == at)


def _of_schema(
    values: pa.Array, schema: Schema | str | None, invalid: str, columns: Sequence[str] | None
) -> tuple[pa.Array, pa.Array]:
    if not isinstance(schema, Schema):
        why = pa.scalar(UNKNOWN_SCHEMA if schema is None else invalid, pa.string())
        return pa.nulls(len(values), pa.string()), pc.if_else(values.is_valid(), why, pa.scalar(None, pa.string()))
    texts = schema.json_of(_sliced(values, HEAD), columns)
    return texts, pc.if_else(texts.is_null(), pa.scalar(invalid), pa.scalar(None, pa.string()))


def _sliced(values: pa.Array, start: int, length: int | None = None) -> pa.Array:
    """Returns a part of each value. (`pyarrow.compute.binary_slice` fails on some arrays: negative buffer resize.)"""
    return pl.Series(pl.from_arrow(values)).bin.slice(start, length).to_arrow().cast(pa.binary())


def schema_ids(values: pa.Array) -> I64:
    """Returns the id of the schema that each value (binary) names; -1 if it has no frame or is null."""
    heads = pc.fill_null(_sliced(values, 0, HEAD), b"")
    framed = pc.equal(pc.binary_length(heads), HEAD)
    fixed = pc.if_else(framed, heads, pa.scalar(b"\xff" * HEAD)).cast(pa.binary(HEAD))
    data = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * HEAD : (fixed.offset + len(fixed)) * HEAD]
    heads_ = data.reshape(len(fixed), HEAD)
    numbers = np.ascontiguousarray(heads_[:, 1:]).view(">u4").ravel().astype(np.int64)
    return np.where(heads_[:, 0] == 0, numbers, -1)
