"""Rows of a join as its stage yields them, for tests of what delivers them."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from joins.items import Begin, End, Item, Rows
from joins.read.summary import BucketSummary
from joins.rows import frames
from joins.rows.frames import RECORD, ROW


def rows_about(lefts: list[int], outcome: str = "unmatched") -> pl.DataFrame:
    """One row per left offset."""
    keys = [b"k"] * len(lefts)
    known = {"left_offset": lefts, "left_partition": [0] * len(lefts), "key": keys, "left_key": keys}
    frame = pl.DataFrame(known, schema={name: ROW[name] for name in known}).with_columns(
        left_time=pl.lit(1_700_000_000_000), left_value=pl.lit(b"v"), outcome=pl.lit(outcome), late=pl.lit(False)
    )
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in ROW.items() if name not in frame.columns}
    return frame.with_columns(**missing).select(*ROW)


def rows_of_right() -> pl.DataFrame:
    """Rows about two right records that are in no row, the second without a key."""
    right = pl.DataFrame(
        {"partition": [1, 1], "offset": [4, 5], "time": [70, 80], "key": [b"k", None], "value": [b"v", b"w"]},
        schema_overrides=dict(RECORD),
    ).with_columns(headers=pl.lit(None, RECORD["headers"]))
    return frames.rows_about("right", right, "unjoined", pl.Series(["expired", "null_key"]), late=False)


def ticket_with(
    rows: pl.DataFrame,
    read: int,
    joined: int,
    left_since_ms: int | None = None,
    *,
    generation: str = "g",
    number: int = 1,
    bucket: int = 0,
) -> Iterator[Item[BucketSummary]]:
    """What the join's stage yields for one ticket, with this summary."""
    yield Begin(bucket, number, generation, "d", left_since_ms)
    yield Rows(rows)
    yield End(BucketSummary(bucket, number, 1, read={"left": read, "right": 0}, rows={"unmatched": joined}))
