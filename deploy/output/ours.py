"""Which records of an output topic another job has written: several jobs may write to one. Pure.

A row or copy says in `teacup.batch` which generation of which job wrote it. An envelope says of which topic its left
record is, a copy of which topic its record is. A position alone says nothing: every topic has an offset 0.

    a generation of this checkpoint, or before it    ours
    no generation                                    ours, or foreign: no other job of ours wrote it
    another one, with an envelope                    ours if it is about our left topic: an earlier checkpoint wrote it
    another one: made by `output.select`, a copy     another job's
"""

from __future__ import annotations

import json
from collections.abc import Collection

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from dedup.identity import BatchTag
from joins.plan.start.handover import Handover
from teacup.kafka.headers import BATCH, LEFT, TOPIC
from teacup.kafka.records.json_fields import text_of
from teacup.kafka.records.record import last_header


def origins_of(name: str, generation: str, after: Handover | None) -> frozenset[str]:
    """Returns the origins of rows that a checkpoint, and those before it as far as it knows, have written."""
    before = () if after is None else after.generations
    return frozenset(BatchTag.of(name, one, 0).origin for one in (generation, *before))


def rows_before(batch: pa.RecordBatch, origin: str) -> pa.Array:
    """Returns which rows say that another generation than this one has written them."""
    tags = last_header(batch.column("headers"), BATCH).dictionary_encode()
    return _where(_unknown(tags, (origin,)), tags)


def rows_by(batch: pa.RecordBatch, origins: Collection[str]) -> pa.Array:
    """Returns which rows or copies say that one of these generations has written them."""
    tags = last_header(batch.column("headers"), BATCH).dictionary_encode()
    return _where([(tag := BatchTag.parse(text)) is not None and tag.origin in origins for text in _texts(tags)], tags)


def rows_of_others(batch: pa.RecordBatch, origins: Collection[str], left_topic: str | None) -> pa.Array | None:
    """Returns which rows another job has written; None: none.

    left_topic   rows are envelopes, and ours are about this topic; None: a `select` made them
    """
    headers = batch.column("headers")
    tags = last_header(headers, BATCH).dictionary_encode()
    unknown = _unknown(tags, origins)
    if not any(unknown):
        return None
    others = _where(unknown, tags)
    if left_topic is None:
        return others
    before = f'"position":{{"topic":{json.dumps(left_topic)},"partition":'
    position = pl.Series(text_of(last_header(headers, LEFT))).str.replace(":", ',"offset":', literal=True)
    said = pl.select(pl.concat_str(pl.lit(before), position, pl.lit('}},"right":'))).to_series().cast(pl.Binary)
    about_ours = pl.Series(batch.column("value")).cast(pl.Binary).bin.contains(said).fill_null(value=False)
    return pc.and_(others, pc.invert(about_ours.to_arrow()))


def copies_of_others(
    batch: pa.RecordBatch, origins: Collection[str] | None, topics: Collection[str]
) -> pa.Array | None:
    """Returns which copies another job has written, or are of records of other topics than these; None: none.

    origins   None: not known, as of the unjoined records of a lookup join, which a job of their own finds
    """
    tags = last_header(batch.column("headers"), BATCH).dictionary_encode()
    named = last_header(batch.column("headers"), TOPIC).dictionary_encode()
    unknown = [] if origins is None else _unknown(tags, origins)
    elsewhere = [value is not None and value.decode(errors="replace") not in topics for value in _texts(named)]
    if not any(unknown) and not any(elsewhere):
        return None
    of_others = _where(elsewhere, named)
    return pc.or_(_where(unknown, tags), of_others) if any(unknown) else of_others


def _unknown(tags: pa.DictionaryArray, origins: Collection[str]) -> list[bool]:
    """Returns which tags are of another origin than these."""
    return [(tag := BatchTag.parse(value)) is not None and tag.origin not in origins for value in _texts(tags)]


def _where(holds: list[bool], encoded: pa.DictionaryArray) -> pa.Array:
    """Returns for which elements it holds, given for each text; for none that is null."""
    return pc.fill_null(pa.array(holds, pa.bool_()).take(encoded.indices), False)


def _texts(encoded: pa.DictionaryArray) -> list[bytes | None]:
    found: list[bytes | None] = encoded.dictionary.to_pylist()
    return found
