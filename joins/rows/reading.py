"""What a side finds in its records: event times, join keys, and why a value or a key cannot be used. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.spec import Format, Side
from kafkaio.eventtime import valid_or_null
from kafkaio.jsonfields import JsonFields, json_fields, text_of
from kafkaio.reasons import INVALID_JSON, INVALID_KEY, INVALID_TEXT

RAW, UNREADABLE = "raw", "unreadable"
"""Columns of a batch whose values became JSON when they were read: the bytes as they were, and why there is no JSON."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in one batch, as columns.

    times    int64 ms UTC; null if a record has none, or one before 1970
    keys     the join keys (binary), null where there is none; None: the records' own keys
    reasons  why a value or a key cannot be used; None if all can, which is the usual case
    kept     JSON objects of the fields that the side keeps; None: it keeps no fields, or the whole value
    """

    times: pa.Array
    keys: pa.Array | None
    reasons: pl.Series | None
    kept: pa.Array | None


def find(side: Side, batch: pa.RecordBatch) -> Found:
    """Reads a batch in the schema of `kafkaio.rangereader`, of which partition and offset are not needed."""
    key_of, values = side.key_of, batch.column("value")
    fields = None
    if side.has_json:
        keep = None if side.kept is None else side.kept.paths
        fields = json_fields(values, side.time if side.payload_time else None, key_of.paths, keep, side.time_unit)
    times = batch.column("timestamp") if fields is None or fields.time is None else fields.time
    keys = None
    if not key_of.is_kafkas:
        keys = key_of.keys(batch.column("key"), batch.column("headers"), () if fields is None else fields.keys)
    reasons = _reasons(values, fields) if fields is not None else None
    if UNREADABLE in batch.schema.names and (unread := batch.column(UNREADABLE)).null_count < len(batch):
        undecoded = pl.Series(pl.from_arrow(unread))
        reasons = undecoded if reasons is None else pl.select(pl.coalesce(undecoded, reasons)).to_series()
    if side.format is Format.TEXT:
        reasons = _worded({INVALID_TEXT: _not_text(values)})
    return Found(valid_or_null(times), keys, reasons, None if fields is None else fields.kept)


def _reasons(values: pa.Array, fields: JsonFields) -> pl.Series | None:
    if pc.all(fields.json).as_py() is not False and not pc.any(fields.odd).as_py():
        return None
    not_text = _not_text(values)
    return _worded({INVALID_TEXT: not_text, INVALID_JSON: pc.invert(fields.json), INVALID_KEY: fields.odd})


def _not_text(values: pa.Array) -> pa.Array:
    return pc.and_(text_of(values).is_null(), values.is_valid())


def _worded(masks: Mapping[str, pa.Array]) -> pl.Series | None:
    """Returns for each record the name of the first mask that holds; null if none does."""
    if not any(pc.any(mask).as_py() for mask in masks.values()):
        return None
    frame = pl.DataFrame({name: pl.Series(pl.from_arrow(mask)) for name, mask in masks.items()})
    return frame.select(reason=pl.coalesce(pl.when(pl.col(name)).then(pl.lit(name)) for name in masks))["reason"]
