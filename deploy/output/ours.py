"""Which rows and copies in a topic another job has written, by their headers. Pure.

Several jobs may write to one topic. A row or copy says in `teacup` which generation of which job wrote it
(`teacup.kafka.delivery.provenance`); an envelope names its left record's topic, a copy its record's topic. A position
alone says nothing, as every topic has an offset 0.

a generation of this checkpoint, or before it    ours
no generation                                    ours, or foreign: no other job of ours wrote it
another one, with an envelope                    ours if it is about our topic: an earlier checkpoint wrote it
another one: made by `output.select`, a copy     another job's
"""

from __future__ import annotations

import json
from collections.abc import Collection

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.batch.handover import Handover
from teacup.kafka.delivery.provenance import BatchTag, provenance_of, tags_in
from teacup.kafka.headers import TOPIC
from teacup.kafka.records.json_fields import text_of
from teacup.kafka.records.record import last_header


def added_to_copies(headers: pa.Array) -> pa.Array:
    """Returns the headers that we added to copies, from the last `teacup.topic` on: the copied record may be a row of
    another join with its own headers. Other records keep all of theirs.
    """
    offsets, entries = headers.offsets.to_numpy(), headers.values
    first = int(offsets[0])
    entries = entries.slice(first, int(offsets[-1]) - first)
    starts, ends = offsets[:-1] - first, offsets[1:] - first
    topics = np.flatnonzero(pc.equal(entries.field(0), TOPIC).to_numpy(zero_copy_only=False))
    if not len(topics):
        return headers
    last = topics[np.maximum(np.searchsorted(topics, ends) - 1, 0)]
    begins = np.where((last >= starts) & (last < ends), last, starts)
    added = np.arange(len(entries)) >= np.repeat(begins, ends - starts)
    counts = np.concatenate([[0], np.cumsum(ends - begins)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(counts), entries.filter(pa.array(added)), mask=headers.is_null())


def texts_in(headers: pa.Array, name: str) -> pl.Series:
    """Returns the value of a header in each record; null if it is missing, or not UTF-8."""
    return pl.Series(text_of(last_header(headers, name)))


def origins_of(name: str, generation: str, after: Handover | None) -> frozenset[str]:
    """Returns the origins of rows written by a checkpoint, and by those before it as far as it knows."""
    before = () if after is None else after.generations
    return frozenset(BatchTag.of(name, one, 0).origin for one in (generation, *before))


def rows_before(batch: pa.RecordBatch, origin: str) -> pa.Array:
    """Returns which rows name another generation than this one."""
    return _unknown(_provenance(batch), (origin,)).to_arrow()


def rows_by(batch: pa.RecordBatch, origins: Collection[str]) -> pa.Array:
    """Returns which rows or copies name one of these generations."""
    return _origins(_provenance(batch)).is_in([*origins]).fill_null(value=False).to_arrow()


def rows_of_others(batch: pa.RecordBatch, origins: Collection[str], topics: tuple[str, str] | None) -> pa.Array | None:
    """Returns which rows another job has written; None: none.

    topics   rows are envelopes, and ours are about left and right records of these; None: a `select` made them
    """
    written = _provenance(batch)
    others = _unknown(written, origins)
    if not others.any():
        return None
    if topics is None:
        return others.to_arrow()
    values = pl.Series(batch.column("value")).cast(pl.Binary)
    for side, topic, after in (("left", topics[0], "right"), ("right", topics[1], "outcome")):
        before = f'"position":{{"topic":{json.dumps(topic)},"partition":'
        position = written[side].str.replace(":", ',"offset":', literal=True)
        said = pl.select(pl.concat_str(pl.lit(before), position, pl.lit(f'}}}},"{after}":'))).to_series()
        about_ours = values.bin.contains(said.cast(pl.Binary)).fill_null(value=False)
        if side == "right":
            about_ours &= written["left"].is_null()
        others &= ~about_ours
    return others.to_arrow()


def copies_of_others(
    batch: pa.RecordBatch, origins: Collection[str] | None, topics: Collection[str]
) -> pa.Array | None:
    """Returns which copies another job has written, or are of records of other topics than these; None: none.

    origins   None: unknown, as for the unjoined records of a lookup join, which another job finds
    """
    named = pl.Series(last_header(batch.column("headers"), TOPIC))
    others = ~named.is_in([topic.encode() for topic in topics]).fill_null(value=True)
    if origins is not None:
        others |= _unknown(_provenance(batch), origins)
    return others.to_arrow() if others.any() else None


def _provenance(batch: pa.RecordBatch) -> pl.DataFrame:
    return provenance_of(batch.column("headers"))


def _origins(written: pl.DataFrame) -> pl.Series:
    return tags_in(written["batch"])["origin"]


def _unknown(written: pl.DataFrame, origins: Collection[str]) -> pl.Series:
    """Returns which rows have another origin than these."""
    return ~_origins(written).is_in([*origins]).fill_null(value=True)
