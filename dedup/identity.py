"""What identifies a result: the positions of its records, a header, or its key; and within which scope. Pure.

    positions   `partition:offset|partition:offset` of the left and the right record, from the header `teacup` of a
                join's rows (`teacup.kafka.delivery.provenance`); nothing on a side without a record
    left        `partition:offset` of the left record alone: if a left record has one result, that is the same result
                whichever right record the replay finds
    a header    its value
    a key       of the record: Kafka's, a field of its JSON value, headers, or several of these
                (`teacup.kafka.records.record`); a record that lacks one of them, or whose value is not JSON, has no id

    within      anywhere; one generation of one job, or one batch of it: then the batch that `teacup` names, or its
                origin, precedes the id

A record without these headers is not one of our results: its id is null. Anything else that identifies a result (an
expression) is written as a header by the job that makes it.

Within a generation every left record belongs to one batch, and Spark reruns the batch that was not committed. So a row
can only duplicate what an earlier try *of its own batch* has written, and the batch is part of its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dedup.errors import DedupConfigInvalid
from teacup.base.fields import Text, coerce_fields
from teacup.kafka.delivery.provenance import BatchTag, provenance_of
from teacup.kafka.records.json_fields import json_fields
from teacup.kafka.records.record import KeyOf, last_header


class Within(StrEnum):
    """The scope within which an id means a single result."""

    ANYWHERE = "anywhere"
    GENERATION = "generation"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a result.

    header   its value is the id; None: the positions of both records are the id
    left     without a header: the position of the left record alone is the id
    key      the record's key is the id; None: it is not
    within   the scope in which the id identifies a result
    """

    header: Text | None = None
    left: bool = False
    key: KeyOf | None = None
    within: Within = Within.ANYWHERE

    def __post_init__(self) -> None:
        coerce_fields(self, DedupConfigInvalid)

    def of_records(self, records: pa.RecordBatch, since: BatchTag | None = None) -> pl.Series:
        """Returns the id of each record (`teacup.kafka.read.fetch.SCHEMA`); null if it has none.

        since   only results of this batch, and of later ones of its generation, have an id; None: all have
        """
        headers = records.column("headers")
        ids = _keys(self.key, records) if self.key is not None else self._plain(headers)
        if since is None and self.within is Within.ANYWHERE:
            return _series(ids)
        tags = provenance_of(headers)["batch"].to_arrow().dictionary_encode()
        scopes = pa.array([self._scope(BatchTag.parse(tag), since) for tag in tags.dictionary.to_pylist()], pa.binary())
        scope = scopes.take(tags.indices)
        if self.within is Within.ANYWHERE:
            return _series(pc.if_else(scope.is_valid(), ids, None))
        return _series(_scoped(scope, ids))

    def of_headers(self, headers: pa.Array) -> pl.Series:
        """Returns the id of each record (binary) from its headers (list<struct<key, value>>), without the scope.

        A record without an id has null.
        """
        return _series(self._plain(headers))

    @property
    def by_position(self) -> bool:
        """Whether ids are positions of a join's records: of both, or of left alone."""
        return self.key is None and self.header is None

    def of_positions(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the same ids, if they are `by_position`, from columns {left,right}_{partition,offset}."""
        positions = (
            pl.format("{}:{}", f"{side}_partition", f"{side}_offset").alias(side) for side in ("left", "right")
        )
        return self._by_position(rows.select(positions))

    def in_batch(self, ids: pl.Series, batch: BatchTag) -> pl.Series:
        """Returns the ids of rows that this batch is about to write, as `of_records` will give them."""
        if self.within is Within.ANYWHERE:
            return ids
        scope = pa.scalar(self._scope(batch, None), pa.binary())
        return _series(_scoped(scope, ids.to_arrow().cast(pa.binary())))

    def _plain(self, headers: pa.Array) -> pa.Array:
        if self.header is not None:
            return last_header(headers, self.header)
        return self._by_position(provenance_of(headers)).to_arrow().cast(pa.binary())

    def _by_position(self, texts: pl.DataFrame) -> pl.Series:
        if self.left:
            return texts["left"].cast(pl.Binary)
        both = pl.format("{}|{}", pl.col("left").fill_null(""), pl.col("right").fill_null(""))
        neither = pl.col("left").is_null() & pl.col("right").is_null()
        return texts.select(id=pl.when(~neither).then(both))["id"].cast(pl.Binary)

    def _scope(self, tag: BatchTag, since: BatchTag | None) -> bytes | None:
        if since is not None and not since.covers(tag):
            return None
        return tag.origin.encode() if self.within is Within.GENERATION else str(tag).encode()


def _keys(key_of: KeyOf, records: pa.RecordBatch) -> pa.Array:
    fields = json_fields(records.column("value"), None, key_of.paths).keys if key_of.paths else ()
    inside = json_fields(records.column("key"), None, key_of.inside).keys if key_of.inside else ()
    return key_of.keys(records.column("key"), records.column("headers"), fields, inside)


def _scoped(scope: pa.Array | pa.Scalar, ids: pa.Array) -> pa.Array:
    """Joins scope and id; null if either is. A scope contains no bar, so equal results have both parts equal."""
    return pc.binary_join_element_wise(scope, ids, pa.scalar(b"|", pa.binary()))


def _series(values: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(values))
