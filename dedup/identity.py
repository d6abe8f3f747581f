"""What identifies a result: the positions of its records, or a header; and within which scope. Pure.

    positions   `partition:offset|partition:offset` of the left and the right record, from the headers `teacup.left` and
                `teacup.right`; nothing after the bar if there is no right record
    left        `partition:offset` of the left record alone (the header `teacup.left`): if a left record has one result,
                that is the same result whichever right record the replay finds
    a header    its value
    the key     of the record; a null key is not an id

    within      anywhere; one generation of one job, or one batch of it: then the header `teacup.batch`
                (`dedup.batchtag`), or its origin, precedes the id

A record without these headers is not one of our results: its id is null. Anything else that identifies a result (an
expression) is written as a header by the job that makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dedup.batchtag import BatchTag
from dedup.errors import DedupConfigInvalid
from kafkaio.eventtime import text_of
from kafkaio.fieldtypes import Text, coerce_fields
from kafkaio.headers import BATCH, LEFT, RIGHT


class Within(StrEnum):
    """The scope within which an id means a single result."""

    ANYWHERE = "anywhere"
    GENERATION = "generation"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Identity:
    """header   its value is the id; None: the positions of both records; `LEFT`: that of the left one

    key      the record's key is the id
    within   the scope in which the id identifies a result
    """

    header: Text | None = None
    key: bool = False
    within: Within = Within.ANYWHERE

    def __post_init__(self) -> None:
        coerce_fields(self, DedupConfigInvalid)

    def of_records(self, records: pa.RecordBatch, since: BatchTag | None = None) -> pl.Series:
        """The id of each record (`kafkaio.messages.SCHEMA`); null if it has none.

        since   only results of this batch, and of later ones of its generation, have an id; None: all have
        """
        headers = records.column("headers")
        ids = records.column("key") if self.key else self._plain(headers)
        if since is None and self.within is Within.ANYWHERE:
            return _series(ids)
        tags = _header(headers, BATCH).dictionary_encode()
        scopes = pa.array([self._scope(tag, since) for tag in tags.dictionary.to_pylist()], pa.binary())
        scope = scopes.take(tags.indices)
        if self.within is Within.ANYWHERE:
            return _series(pc.if_else(scope.is_valid(), ids, None))
        return _series(_scoped(scope, ids))

    def of_headers(self, headers: pa.Array) -> pl.Series:
        """The id of each record (binary) from its headers (list<struct<key, value>>), without the scope; null if it has
        none."""
        return _series(self._plain(headers))

    @property
    def by_position(self) -> bool:
        return not self.key and self.header in (None, LEFT)

    def of_positions(self, rows: pl.DataFrame) -> pl.Series:
        """The same ids, if they are `by_position`, from columns {left,right}_{partition,offset}."""
        left = pl.format("{}:{}", "left_partition", "left_offset")
        if self.header is not None:
            return rows.select(left=left)["left"].cast(pl.Binary)
        return _paired(rows.select(left=left, right=pl.format("{}:{}", "right_partition", "right_offset")))

    def in_batch(self, ids: pl.Series, batch: BatchTag) -> pl.Series:
        """The ids of rows that this batch is about to write, as `of_records` will give them."""
        if self.within is Within.ANYWHERE:
            return ids
        scope = pa.scalar(self._scope(str(batch).encode(), None), pa.binary())
        return _series(_scoped(scope, ids.to_arrow().cast(pa.binary())))

    def _plain(self, headers: pa.Array) -> pa.Array:
        if self.header is not None:
            return _header(headers, self.header)
        pair = {side: _series(text_of(_header(headers, name))) for side, name in (("left", LEFT), ("right", RIGHT))}
        return _paired(pl.DataFrame(pair)).to_arrow().cast(pa.binary())

    def _scope(self, value: bytes | None, since: BatchTag | None) -> bytes | None:
        tag = BatchTag.parse(value)
        if tag is None or (since is not None and not since.covers(tag)):
            return None
        return tag.origin.encode() if self.within is Within.GENERATION else str(tag).encode()


def _paired(pair: pl.DataFrame) -> pl.Series:
    ids = pair.select(id=pl.format("{}|{}", "left", pl.col("right").fill_null("")))["id"]
    return ids.cast(pl.Binary)


def _scoped(scope: pa.Array | pa.Scalar, ids: pa.Array) -> pa.Array:
    """Null if either is null. A scope contains no bar, so two results are equal only if both parts are."""
    return pc.binary_join_element_wise(scope, ids, pa.scalar(b"|", pa.binary()))


def _series(values: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(values))


def _header(headers: pa.Array, name: str) -> pa.Array:
    """The value of a header in each record, the last one if it occurs twice; null if it is missing."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.binary())
    bounds = headers.offsets.to_numpy()
    entries = headers.values.slice(bounds[0], bounds[-1] - bounds[0])
    named = np.flatnonzero(pc.equal(entries.field("key"), name).to_numpy(zero_copy_only=False))
    of_record = np.searchsorted(bounds - bounds[0], named, side="right") - 1
    at = np.full(len(headers), -1, np.int64)
    at[of_record] = named
    return entries.field("value").cast(pa.binary()).take(pa.array(at, mask=at < 0))
