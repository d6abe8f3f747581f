"""The frames that both joins work on: their columns, and work on them column by column. Pure.

A live batch has a few hundred rows per bucket. For these a polars expression takes ten times as long as the same work
on a column, and handing a whole frame to other threads takes as long as the work itself. On large frames the CPU time
is the same.

Rows are cut into chunks of bounded bytes, so that a task's memory does not depend on the size of its records. A right
record of 100 KB that 4,000 left records match takes 100 KB here, because columns share their bytes, but 400 MB in
anything built from the rows. So a row counts with all its keys, values and headers, and rows are cut before anything is
built from them. A chunk holds at least one row. Times are int64 ms UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from joins.outcome import Outcome
from joins.spec import OTHER

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def frame_of(columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Makes a frame of columns of one length, under these names."""
    return pl.DataFrame([column.alias(name) for name, column in columns.items()])


def positions(rows: I64, missing: Bools | None = None) -> pl.Series:
    """Returns row numbers as polars takes them to select rows (`column[positions]`); null where there is none."""
    return pl.Series(pa.array(rows.astype(np.uint32), mask=missing))


def rows_at(frame: pl.DataFrame, rows: I64 | pl.Series) -> pl.DataFrame:
    """Returns the rows with these numbers, or `positions`, in their order."""
    at = rows if isinstance(rows, pl.Series) else positions(rows)
    return pl.DataFrame([column[at] for column in frame.get_columns()])


def rows_where(frame: pl.DataFrame, mask: Bools | pl.Series) -> pl.DataFrame:
    """Returns the rows that the mask selects."""
    selected = mask if isinstance(mask, pl.Series) else pl.Series(mask)
    return pl.DataFrame([column.filter(selected) for column in frame.get_columns()])


def is_null(column: pl.Series) -> Bools:
    """Returns which of its values are null."""
    if column.null_count() == 0:
        return np.zeros(len(column), np.bool_)
    if column.null_count() == len(column):
        return np.ones(len(column), np.bool_)
    nulls: Bools = column.to_arrow(compat_level=pl.CompatLevel.newest()).is_null().to_numpy(zero_copy_only=False)
    return nulls


def constant(value: Any, dtype: pl.DataType | type[pl.DataType], count: int) -> pl.Series:
    """Makes a column with one value, or null, in every row."""
    return pl.Series([value], dtype=dtype).new_from_index(0, count)


HEADERS = pl.List(pl.Struct({"key": pl.String, "value": pl.Binary}))

RECORD = pl.Schema(
    {
        "partition": pl.Int32(),
        "offset": pl.Int64(),
        "time": pl.Int64(),
        "key": pl.Binary(),
        "value": pl.Binary(),
        "headers": HEADERS,
    }
)
"""A record of either side, in offset order within its partition; `key` is the join key."""

OWN_KEY = "own_key"
"""An extra column (binary) if a side's join key is not Kafka's key: the record's own key."""

SIDE_COLUMNS = ("key", "time", "value", "headers", "partition", "offset")

MISMATCH = "_mismatch"
"""Ends the name of an extra column (boolean) for each side with a schema: whether the value is not of it."""

ROW = pl.Schema(
    {
        "key": pl.Binary(),
        **{f"left_{name}": RECORD[name] for name in SIDE_COLUMNS},
        **{f"right_{name}": RECORD[name] for name in SIDE_COLUMNS},
        "outcome": pl.String(),
        "reason": pl.String(),
        "late": pl.Boolean(),
    }
)
"""One row to write; the columns of a side without a record are null.

key      the join key; left_key and right_key are the records' own
outcome  one of `joins.outcome.Outcome`
reason   of unmatched, unjoined, dead_letter and skipped rows: one of `teacup.kafka.headers`
late     the row's record came later than its disorder allows
"""


_NO_ROWS = pl.DataFrame(schema=ROW)


def empty_rows() -> pl.DataFrame:
    """Returns an empty frame with the columns of `ROW`, made once: it costs as much as joining hundreds of records."""
    return _NO_ROWS.clone()


def side_columns(records: pl.DataFrame) -> dict[str, str]:
    """Maps each of `SIDE_COLUMNS` to the column of records (`RECORD`) that it holds."""
    own = OWN_KEY if OWN_KEY in records.columns else "key"
    return {name: own if name == "key" else name for name in SIDE_COLUMNS}


def rows_about(
    side: str, records: pl.DataFrame, outcome: Outcome, reason: str | pl.Series | None, late: pl.Series | bool
) -> pl.DataFrame:
    """Makes rows that carry records of one side only; the other side's columns are null."""
    count = len(records)
    columns = {"key": records["key"], "outcome": constant(outcome, pl.String, count)}
    columns |= {f"{side}_{name}": records[column] for name, column in side_columns(records).items()}
    columns |= {f"{OTHER[side]}_{name}": constant(None, RECORD[name], count) for name in SIDE_COLUMNS}
    columns["reason"] = reason if isinstance(reason, pl.Series) else constant(reason, pl.String, count)
    columns["late"] = late if isinstance(late, pl.Series) else constant(late, pl.Boolean, count)
    return frame_of({name: columns[name] for name in ROW})


CHUNK_BYTES = 16 << 20
CHUNK_ROWS = 50_000
ROW_OVERHEAD = 200
"""About how many bytes the other columns of a row take in anything built from it."""


def column_bytes(column: pl.Series) -> I64:
    """Returns the bytes of each value: text, binary, or headers (`frames.HEADERS`); 0 for a null."""
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
    """Does the same for an Arrow column; for a small one polars takes ten times as long."""
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
