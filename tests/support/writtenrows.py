"""Columns of records as Python values: an oracle for what C hands to librdkafka, and what simulated producers take."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import polars as pl
import pyarrow as pa

from teacup.kafka.write.templates import MadeHeaders, MadeTexts


def plain(column: Any, default: Any, count: int) -> Iterable[Any]:
    """Returns the column as Python values, with the default in place of nulls."""
    if column is None:
        return repeat(default, count)
    if isinstance(column, MadeTexts | MadeHeaders | pl.Series):
        column = column.to_list()
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        values: list[Any] = column
        return values if default is None else [default if value is None else value for value in values]
    filled = column if default is None or not column.null_count else column.fill_null(default)
    listed: list[Any] = filled.to_pylist()
    return listed


def header_lists(column: Any, count: int) -> Iterable[Any]:
    """Returns headers as lists of (key, value); None where a record has none."""
    if isinstance(column, pa.ChunkedArray):
        return [headers for chunk in column.chunks for headers in header_lists(chunk, len(chunk))]
    if not isinstance(column, pa.Array):
        return plain(column, None, count)
    if column.null_count == count:
        return repeat(None, count)
    entries = column.values
    pairs = list(zip(entries.field(0).to_pylist(), entries.field(1).to_pylist(), strict=True))
    bounds = column.offsets.to_pylist()
    present = column.is_valid().to_pylist()
    return [pairs[start:end] if there else None for start, end, there in zip(bounds, bounds[1:], present, strict=False)]
