"""What identifies a result: where its records stood, or a header. Pure.

    positions   `partition:offset|partition:offset` of the left and the right record, from the headers `teacup.left` and
                `teacup.right`; nothing after the bar where there is no right record
    left        `partition:offset` of the left record alone (the header `teacup.left`): where a left record has one
                result, it is the same one whatever right record the replay finds
    a header    its value
    the key     of the record; a null key is no id

A record without these headers is not a result of ours: its id is null. Whatever else may identify a result (an
expression) is written as a header by the job that makes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

LEFT, RIGHT, ID = "teacup.left", "teacup.right", "teacup.id"


@dataclass(frozen=True, slots=True)
class Identity:
    """header   whose value is the id; None: the positions of both records; `LEFT`: that of the left one

    key      the record's key is the id
    """

    header: str | None = None
    key: bool = False

    def of_records(self, records: pa.RecordBatch) -> pl.Series:
        """The id of each record (`kafkaio.rangereader.SCHEMA`), null where it has none."""
        return _series(records.column("key")) if self.key else self.of_headers(records.column("headers"))

    def of_headers(self, headers: pa.Array) -> pl.Series:
        """The id of each record (binary) from its headers (list<struct<key, value>>), null where it has none."""
        if self.header is not None:
            return _series(_header(headers, self.header))
        pair = pl.DataFrame({"left": _series(_header(headers, LEFT)), "right": _series(_header(headers, RIGHT))})
        return _paired(pair.select(pl.all().cast(pl.String)))

    @property
    def by_position(self) -> bool:
        return not self.key and self.header in (None, LEFT)

    def of_positions(self, rows: pl.DataFrame) -> pl.Series:
        """The same ids, where they are `by_position`, from columns {left,right}_{partition,offset}."""
        left = pl.format("{}:{}", "left_partition", "left_offset")
        if self.header is not None:
            return rows.select(left=left)["left"].cast(pl.Binary)
        return _paired(rows.select(left=left, right=pl.format("{}:{}", "right_partition", "right_offset")))


def _paired(pair: pl.DataFrame) -> pl.Series:
    ids = pair.select(id=pl.format("{}|{}", "left", pl.col("right").fill_null("")))["id"]
    return ids.cast(pl.Binary)


def _series(values: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(values))


def _header(headers: pa.Array, name: str) -> pa.Array:
    """The value of a header in each record, the last one where it stands twice; null where it is missing."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    bounds = headers.offsets.to_numpy()
    entries = headers.values.slice(bounds[0], bounds[-1] - bounds[0])
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    of_record = np.searchsorted(bounds - bounds[0], named, side="right") - 1
    at = np.full(len(headers), -1, np.int64)
    at[of_record] = named
    return entries.field("value").cast(pa.binary()).take(pa.array(at, mask=at < 0))
