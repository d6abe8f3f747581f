"""What identifies a result: the positions of its records, a header, or its key; and within which scope. Pure.

    positions   `partition:offset|partition:offset` of the left and the right record, from the headers `teacup.left` and
                `teacup.right`; nothing after the bar if there is no right record
    left        `partition:offset` of the left record alone (the header `teacup.left`): if a left record has one result,
                that is the same result whichever right record the replay finds
    a header    its value
    a key       of the record: Kafka's, a field of its JSON value, headers, or several of these
                (`teacup.kafka.records.record`); a record that lacks one of them, or whose value is not JSON, has no id

    within      anywhere; one generation of one job, or one batch of it: then the header `teacup.batch`, or its origin,
                precedes the id

A record without these headers is not one of our results: its id is null. Anything else that identifies a result (an
expression) is written as a header by the job that makes it.

A position identifies a result's record only within one generation of one job: recreated topics count from 0 again, a
backfill reads the same offsets, two jobs read different topics. So each row says in `teacup.batch` which batch of which
job wrote it (`BatchTag`):

    tag     origin:number, `3f9a0c5d71be42a8:17`
    origin  from the job's name and the generation of its checkpoint; every new checkpoint has a new generation

Within a generation every left record belongs to one batch, and Spark reruns the batch that was not committed. So a row
can only duplicate what an earlier try *of its own batch* has written, and the tag is part of its id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dedup.errors import DedupConfigInvalid
from teacup.base.fields import Text, coerce_fields
from teacup.kafka.headers import BATCH, LEFT, RIGHT
from teacup.kafka.records.json_fields import json_fields, text_of
from teacup.kafka.records.record import KeyOf, last_header

_ORIGIN_DIGITS = 16  # 64 bits: there are few generations to distinguish


class Within(StrEnum):
    """The scope within which an id means a single result."""

    ANYWHERE = "anywhere"
    GENERATION = "generation"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a result.

    header   its value is the id; None: the positions of both records; `LEFT`: that of the left one
    key      the record's key is the id; None: it is not
    within   the scope in which the id identifies a result
    """

    header: Text | None = None
    key: KeyOf | None = None
    within: Within = Within.ANYWHERE

    def __post_init__(self) -> None:
        coerce_fields(self, DedupConfigInvalid)

    def of_records(self, records: pa.RecordBatch, since: BatchTag | None = None) -> pl.Series:
        """Returns the id of each record (`teacup.kafka.read.fetch.SCHEMA`); null if it has none.

        since   only results of this batch, and of later ones of its generation, have an id; None: all have
        """
        headers = records.column("headers")
        ids = self._plain(headers) if self.key is None else _keys(self.key, records)
        if since is None and self.within is Within.ANYWHERE:
            return _series(ids)
        tags = last_header(headers, BATCH).dictionary_encode()
        scopes = pa.array([self._scope(tag, since) for tag in tags.dictionary.to_pylist()], pa.binary())
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
        return self.key is None and self.header in (None, LEFT)

    def of_positions(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the same ids, if they are `by_position`, from columns {left,right}_{partition,offset}."""
        left = pl.format("{}:{}", "left_partition", "left_offset")
        if self.header is not None:
            return rows.select(left=left)["left"].cast(pl.Binary)
        return _paired(rows.select(left=left, right=pl.format("{}:{}", "right_partition", "right_offset")))

    def in_batch(self, ids: pl.Series, batch: BatchTag) -> pl.Series:
        """Returns the ids of rows that this batch is about to write, as `of_records` will give them."""
        if self.within is Within.ANYWHERE:
            return ids
        scope = pa.scalar(self._scope(str(batch).encode(), None), pa.binary())
        return _series(_scoped(scope, ids.to_arrow().cast(pa.binary())))

    def _plain(self, headers: pa.Array) -> pa.Array:
        if self.header is not None:
            return last_header(headers, self.header)
        pair = {side: _series(text_of(last_header(headers, name))) for side, name in (("left", LEFT), ("right", RIGHT))}
        return _paired(pl.DataFrame(pair)).to_arrow().cast(pa.binary())

    def _scope(self, value: bytes | None, since: BatchTag | None) -> bytes | None:
        tag = BatchTag.parse(value)
        if tag is None or (since is not None and not since.covers(tag)):
            return None
        return tag.origin.encode() if self.within is Within.GENERATION else str(tag).encode()


@dataclass(frozen=True, slots=True)
class BatchTag:
    """The batch of a job.

    origin  made from the job's name and the generation of its checkpoint
    number  of the batch, as the job counts
    """

    origin: str
    number: int

    @classmethod
    def of(cls, job: str, generation: str, number: int) -> BatchTag:
        """Returns the tag of batch `number` of a job whose checkpoint has this generation."""
        digest = hashlib.sha256(f"{len(job)}:{job}{generation}".encode()).hexdigest()
        return cls(digest[:_ORIGIN_DIGITS], number)

    @classmethod
    def parse(cls, value: bytes | None) -> BatchTag | None:
        """Reads a header's value; None if it is not a tag, because another writer wrote it."""
        origin, colon, number = (value or b"").partition(b":")
        if not (colon and origin.isalnum() and number.isdigit()):
            return None
        return cls(origin.decode(), int(number))

    def covers(self, other: BatchTag | None) -> bool:
        """Returns whether the other is this batch, or a later one of the same generation."""
        return other is not None and other.origin == self.origin and other.number >= self.number

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"


def _keys(key_of: KeyOf, records: pa.RecordBatch) -> pa.Array:
    fields = json_fields(records.column("value"), None, key_of.paths).keys if key_of.paths else ()
    return key_of.keys(records.column("key"), records.column("headers"), fields)


def _paired(pair: pl.DataFrame) -> pl.Series:
    ids = pair.select(id=pl.format("{}|{}", "left", pl.col("right").fill_null("")))["id"]
    return ids.cast(pl.Binary)


def _scoped(scope: pa.Array | pa.Scalar, ids: pa.Array) -> pa.Array:
    """Joins scope and id; null if either is. A scope contains no bar, so equal results have both parts equal."""
    return pc.binary_join_element_wise(scope, ids, pa.scalar(b"|", pa.binary()))


def _series(values: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(values))
