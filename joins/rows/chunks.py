"""Cuts rows into chunks of bounded bytes, so that a task's memory does not depend on the size of its records. Pure.

A right record of 100 KB that 4,000 left records match takes 100 KB here, because columns share their bytes, but 400 MB
in anything built from the rows. So a row counts with all its keys, values and headers, and rows are cut into chunks
before anything is built from them. A chunk holds at least one row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 50_000
ROW_OVERHEAD = 200
"""About what the other columns of a row take in anything built from it."""

I64 = npt.NDArray[np.int64]


def column_bytes(column: pl.Series) -> I64:
    """Returns the bytes of each value: text, binary, or headers (`records.HEADERS`); 0 for a null."""
    if column.null_count() == len(column):
        return np.zeros(len(column), np.int64)
    return _sizes(column.to_arrow(compat_level=pl.CompatLevel.newest()))


def row_bytes(rows: pl.DataFrame) -> I64:
    """Returns the bytes of each row's keys, values and headers."""
    total = np.zeros(len(rows), np.int64)
    for column in rows.get_columns():
        if column.dtype == pl.Binary or isinstance(column.dtype, pl.List):
            total += column_bytes(column)
    return total


def _sizes(column: pa.Array) -> I64:
    """Returns the same of an Arrow column, by its lengths: for a small one polars takes ten times as long."""
    if pa.types.is_struct(column.type):
        of_struct: I64 = np.sum([_sizes(field) for field in column.flatten()], axis=0, dtype=np.int64)
        return of_struct
    if pa.types.is_large_list(column.type):
        bounds = column.offsets.to_numpy()
        until = np.concatenate([[0], np.cumsum(_sizes(column.values))])
        sizes: I64 = until[bounds[1:]] - until[bounds[:-1]]
    else:  # a view is 16 bytes, of which the first four are the length
        views = np.frombuffer(column.buffers()[1], np.int32)[::4]
        sizes = views[column.offset : column.offset + len(column)].astype(np.int64)
    if column.null_count:
        sizes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return sizes


def cuts(sizes: I64, most_bytes: int = CHUNK_BYTES, most_rows: int = CHUNK_ROWS) -> Iterator[tuple[int, int]]:
    """Yields the chunks [start, end) of rows of these sizes, in order, each as long as allowed."""
    total = np.cumsum(sizes + ROW_OVERHEAD)
    start, before = 0, 0
    while start < len(sizes):
        fitting = int(np.searchsorted(total, before + most_bytes, side="right"))
        end = min(max(fitting, start + 1), start + most_rows, len(sizes))
        yield start, end
        start, before = end, int(total[end - 1])


def in_chunks(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yields the rows in frames of bounded bytes; no frame if there are none."""
    if rows.is_empty():
        return
    for start, end in cuts(row_bytes(rows)):
        yield rows[start:end]
