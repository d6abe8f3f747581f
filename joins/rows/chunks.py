"""Rows in chunks of bounded bytes, so that a task's memory does not depend on the size of its records. Pure.

A right record of 100 KB that 4,000 left records match takes 100 KB here, because columns share their bytes, but 400 MB
in anything built from the rows. So a row counts with all its keys, values and headers, and rows are cut into chunks
before anything is built from them. A chunk holds at least one row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 50_000
ROW_OVERHEAD = 200
"""About what the other columns of a row take in anything built from it."""

I64 = npt.NDArray[np.int64]


def column_bytes(column: pl.Series) -> I64:
    """The bytes of each value: text, binary, or headers (`records.HEADERS`); 0 for a null."""
    return _bytes_of([column])


def row_bytes(rows: pl.DataFrame) -> I64:
    """The bytes of each row's keys, values and headers."""
    counted = [one for one in rows.get_columns() if one.dtype == pl.Binary or isinstance(one.dtype, pl.List)]
    return _bytes_of(counted) if counted else np.zeros(len(rows), np.int64)


def _bytes_of(columns: list[pl.Series]) -> I64:
    """Of all columns together, in one pass: for small batches each call of polars costs more than the sums."""
    sized = [one for one in columns if one.null_count() < len(one)]
    if not sized:
        return np.zeros(len(columns[0]), np.int64)
    frame = pl.DataFrame([one.alias(str(number)) for number, one in enumerate(sized)])
    sizes = [_size(pl.col(name), dtype).fill_null(0).cast(pl.Int64) for name, dtype in frame.schema.items()]
    return frame.select(pl.sum_horizontal(sizes)).to_series().to_numpy()


def _size(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype == pl.String:
        return column.str.len_bytes()
    if dtype == pl.Binary:
        return column.bin.size()
    pair = pl.element().struct
    of_pair = pair.field("key").str.len_bytes().fill_null(0) + pair.field("value").bin.size().fill_null(0)
    return column.list.eval(of_pair).list.sum()


def cuts(sizes: I64, most_bytes: int = CHUNK_BYTES, most_rows: int = CHUNK_ROWS) -> Iterator[tuple[int, int]]:
    """The chunks [start, end) of rows of these sizes, in order, each as long as allowed."""
    total = np.cumsum(sizes + ROW_OVERHEAD)
    start, before = 0, 0
    while start < len(sizes):
        fitting = int(np.searchsorted(total, before + most_bytes, side="right"))
        end = min(max(fitting, start + 1), start + most_rows, len(sizes))
        yield start, end
        start, before = end, int(total[end - 1])


def in_chunks(rows: pl.DataFrame, most_bytes: int = CHUNK_BYTES, most_rows: int = CHUNK_ROWS) -> Iterator[pl.DataFrame]:
    """The rows in frames of bounded bytes."""
    for start, end in cuts(row_bytes(rows), most_bytes, most_rows):
        yield rows[start:end]
