"""The frames that the window works on: right and left records, and rows to write. Times are int64 ms UTC. Pure."""

from __future__ import annotations

import polars as pl

from joins.rows.frames import constant, frame_of
from joins.sides import OTHER

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
"""One record of either side, in offset order within its partition; `key` is the join key."""

OWN_KEY = "own_key"
"""One more column (binary) where a side's join key is not Kafka's key: the record's own key."""

SIDE_COLUMNS = ("key", "time", "value", "headers", "partition", "offset")

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
outcome  matched | unmatched (left without right) | unjoined (right that appears in no output row and never will)
         | dead_letter (a record of either side that cannot take part) | late (a copy of a late right record)
reason   of unmatched, unjoined and dead_letter rows: one of `kafkaio.reasons`
late     the row's record came later than its disorder allows
"""


_NO_ROWS = pl.DataFrame(schema=ROW)


def empty_rows() -> pl.DataFrame:
    """Returns no rows, with the columns of `ROW`. Made once: that takes as long as joining hundreds of records."""
    return _NO_ROWS.clone()


def side_columns(records: pl.DataFrame) -> dict[str, str]:
    """Returns for each of `SIDE_COLUMNS` the column of records (`RECORD`) that it is."""
    own = OWN_KEY if OWN_KEY in records.columns else "key"
    return {name: own if name == "key" else name for name in SIDE_COLUMNS}


def rows_about(
    side: str, records: pl.DataFrame, outcome: str, reason: str | pl.Series | None, late: pl.Series | bool
) -> pl.DataFrame:
    """Makes rows that carry records of one side only; the other side's columns are null."""
    count = len(records)
    columns = {"key": records["key"], "outcome": constant(outcome, pl.String, count)}
    columns |= {f"{side}_{name}": records[column] for name, column in side_columns(records).items()}
    columns |= {f"{OTHER[side]}_{name}": constant(None, RECORD[name], count) for name in SIDE_COLUMNS}
    columns["reason"] = reason if isinstance(reason, pl.Series) else constant(reason, pl.String, count)
    columns["late"] = late if isinstance(late, pl.Series) else constant(late, pl.Boolean, count)
    return frame_of({name: columns[name] for name in ROW})
