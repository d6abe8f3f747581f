"""Which records take part, and which go to the dead-letter topic, and why. Pure.

`parse` finds each record's event time and join key, and why its value, time or key cannot be used (`locate`). A record
takes part if it has a time that is not from the future, and its value and key can be used.

Reading a record again must give the same result. Whether a value can be decoded also depends on which schemas the
registry had: if a record's schema came later, the record stays a dead letter (`as_first_read`). `SchemaOffsets` says
from which offset of a partition on each schema was known. It holds only schemas that exist, so it stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.errors import DataLoss
from joins.outcome import Outcome
from joins.rows.frames import I64, OWN_KEY, RECORD, Bools, constant, empty_rows, frame_of, rows_about
from joins.spec import Format, Side
from teacup.base.times import EARLIEST_MS, LATEST_MS, UNLIMITED_MS
from teacup.kafka.headers import (
    FUTURE_TIME,
    INVALID_JSON,
    INVALID_KEY,
    INVALID_TEXT,
    NO_TIME,
    NO_ZONE,
    TOMBSTONE,
    UNKNOWN_SCHEMA,
    WHERE,
)
from teacup.kafka.records.framed import schema_ids
from teacup.kafka.records.json_fields import JsonFields, json_fields, text_of
from teacup.kafka.records.limits import batch_bytes
from teacup.kafka.records.record import LOG_APPEND_TIME, ceilings, valid
from teacup.kafka.records.where import RecordFilter

RAW, UNREADABLE = "raw", "unreadable"
"""Extra columns of a batch with decoded values: the original bytes, and why there is no JSON."""
JSON_KEY = "json_key"
"""Another one, if the join key is inside Kafka's key: Kafka's key as JSON."""

WHATEVER_ITS_TIME = (TOMBSTONE, WHERE)
"""Reasons of records that take no part, whatever their time."""

CLOCKS_DIFFER_MS = 1_000
"""How far a producer's clock may be ahead of the broker's, or ours, for its records still to prove something."""

SchemaOffsets = Mapping[int, int]
"""Schema id -> the first offset whose record was decoded with it."""


@dataclass(frozen=True, slots=True)
class ParsedBatch:
    """One batch of one partition, checked and sorted.

    records    in the schema of `frames.RECORD`; late: one flag each
    proves     per record, whether it can have been appended at its time, allowing for clocks that differ a little
    dead       rows of dead letters and skipped records
    schemas    the schemas that values name and the registry had, each with its first offset
    appended   the event times are the broker's append times
    size       how many bytes of keys, values and headers were read; about as many after `split`
    deleted    of a table that changes: the keys that have no value from this record on, one flag each
    dead_proves   the same for `dead`: what `where` skips is as timely as the rest. None: none of it proves anything
    """

    side: str
    records: pl.DataFrame
    late: pl.Series
    proves: Bools
    dead: pl.DataFrame
    ceiling_ms: int
    schemas: SchemaOffsets = field(default_factory=dict)
    appended: bool = False
    size: int = 0
    deleted: pl.Series | None = None
    dead_proves: Bools | None = None

    @property
    def proving_ms(self) -> I64:
        """The times of all records that prove something, in offset order."""
        times = self.records["time"].to_numpy()[self.proves]
        if self.dead_proves is None or not self.dead_proves.any():
            return times
        offsets = self.records["offset"].to_numpy()[self.proves]
        others = self.dead[f"{self.side}_offset", f"{self.side}_time"].filter(self.dead_proves)
        offsets, times = np.append(offsets, others[:, 0].to_numpy()), np.append(times, others[:, 1].to_numpy())
        return times[np.argsort(offsets)]

    @property
    def future_ms(self) -> int:
        """The smallest time that the clock rejected, above those of all records; `LATEST_MS` if it rejected none."""
        if self.dead.is_empty():
            return LATEST_MS
        times = self.dead[f"{self.side}_time"].filter(self.dead["reason"] == FUTURE_TIME)
        beyond = times.filter(times > self.ceiling_ms)
        return LATEST_MS if beyond.is_empty() else int(beyond.min())  # type: ignore[arg-type]

    def split(self, offset: int) -> tuple[ParsedBatch, ParsedBatch]:
        """Returns the part below an offset, and the rest."""
        at = int(np.searchsorted(self.records["offset"].to_numpy(), offset))
        dead_at = int(np.searchsorted(self.dead[f"{self.side}_offset"].to_numpy(), offset))
        here, all_of_it = at + dead_at, len(self.records) + len(self.dead)
        size = self.size * here // max(all_of_it, 1)
        below = self._part(0, at, 0, dead_at, size=size)
        rest = self._part(at, len(self.records), dead_at, len(self.dead), size=self.size - size)
        return replace(below, schemas={n: first for n, first in self.schemas.items() if first < offset}), rest

    def _part(self, start: int, end: int, dead_start: int, dead_end: int, **changes: Any) -> ParsedBatch:
        if not self.dead.is_empty():
            changes["dead"] = self.dead[dead_start:dead_end]
        if self.dead_proves is not None:
            changes["dead_proves"] = self.dead_proves[dead_start:dead_end]
        if self.deleted is not None:
            changes["deleted"] = self.deleted[start:end]
        return replace(
            self,
            records=self.records.slice(start, end - start),
            late=self.late.slice(start, end - start),
            proves=self.proves[start:end],
            **changes,
        )


def parse(
    name: str,
    side: Side,
    batch: pa.RecordBatch,
    listed_ms: int,
    skew_ms: int,
    watermark_before_ms: int,
    before_ms: int | None = None,
) -> ParsedBatch:
    """Separates good records from dead letters in one batch of one partition (schema of `teacup.kafka.read.fetch`).

    Good records are reduced to what the side keeps; dead letters stay as they were read.

    name       "left" or "right"
    listed_ms  the wall clock when the batch was planned; times above it by more than `skew_ms` are from the future
    watermark_before_ms   the partition watermark before the batch: records below it are late
    before_ms  the time of the record before the batch, if it is known
    """
    timestamps, kinds = batch.column("timestamp"), batch.column("timestamp_type")
    located = locate(side, batch, before_ms)
    ceiling = ceilings(timestamps, kinds, listed_ms + skew_ms, skew_ms if side.payload_time else UNLIMITED_MS)
    columns = {name: _column(located.times if name == "time" else batch.column(name), name) for name in RECORD}
    if located.keys is not None:
        columns |= {"key": _column(located.keys, "key"), OWN_KEY: columns["key"]}
    as_read = frame = frame_of(columns)
    deleted = None if located.deleted is None else pl.Series(pl.from_arrow(located.deleted))
    if side.kept is not None:
        columns["value"] = _column(side.kept.values(batch.column("value"), located.kept), "value")
        columns["headers"] = side.kept.headers(columns["headers"])
        if located.keys is not None and not side.kept.own_key:
            columns[OWN_KEY] = constant(None, pl.Binary, len(frame))
        frame = frame_of(columns)
    reason = _why_dead(frame["time"], located.reasons, valid(located.times, ceiling))
    dead, dead_proves = empty_rows(), None
    proves = _proves(side, located.times, timestamps, kinds, listed_ms)
    if reason is not None:
        bad = reason.is_not_null()
        if RAW in batch.schema.names:
            as_read = as_read.with_columns(pl.Series("value", batch.column(RAW)))
        if side.where is not None:  # nobody reads what is skipped
            fits = (reason != WHERE).fill_null(value=True)
            as_read = as_read.with_columns(pl.when(fits).then(column).alias(column) for column in ("value", "headers"))
            dead_proves = (proves & ~fits.to_numpy())[bad.to_numpy()]
        dead = rows_about(name, as_read.filter(bad), Outcome.DEAD_LETTER, reason.filter(bad), late=False)
        if skips := side.skips:
            skipped = pl.col("reason").is_in(skips).fill_null(value=False)
            dead = dead.with_columns(outcome=pl.when(skipped).then(pl.lit(str(Outcome.SKIPPED))).otherwise("outcome"))
        frame, proves = frame.filter(~bad), proves[(~bad).to_numpy()]
        deleted = None if deleted is None else deleted.filter(~bad)
    late = pl.Series(frame["time"].to_numpy() < watermark_before_ms)
    ceiling_ms, size = listed_ms + skew_ms, int(batch_bytes(batch).sum())
    return ParsedBatch(
        name, frame, late, proves, dead, ceiling_ms, known_in(batch), _appended(side, batch), size, deleted, dead_proves
    )


def parse_together(
    name: str,
    side: Side,
    batches: Mapping[int, pa.RecordBatch],
    listed_ms: int,
    skew_ms: int,
    watermarks_before_ms: Mapping[int, int],
) -> dict[int, ParsedBatch]:
    """Does what `parse` does for one batch of each partition, at the cost of one."""
    if not batches:
        return {}
    ascending = sorted(batches)
    together = pa.concat_batches([batches[p] for p in ascending])
    whole = parse(name, side, together, listed_ms, skew_ms, EARLIEST_MS)
    parts, dead_parts = whole.records["partition"].to_numpy(), whole.dead[f"{name}_partition"].to_numpy()
    starts, ends = (np.searchsorted(parts, ascending, at) for at in ("left", "right"))
    dead_starts, dead_ends = (np.searchsorted(dead_parts, ascending, at) for at in ("left", "right"))
    before_ms = np.repeat([watermarks_before_ms[p] for p in ascending], ends - starts)
    whole = replace(whole, late=pl.Series(whole.records["time"].to_numpy() < before_ms))
    cuts = np.stack([starts, ends, dead_starts, dead_ends], axis=1).tolist()
    taken = np.append(0, np.cumsum(batch_bytes(together)))
    sizes = np.diff(taken[np.cumsum([0, *(len(batches[p]) for p in ascending)])]).tolist()
    some_appended = bool(pc.any(pc.equal(together.column("timestamp_type"), LOG_APPEND_TIME)).as_py())
    return {
        p: whole._part(
            *cut, size=size, schemas=known_in(batches[p]), appended=some_appended and _appended(side, batches[p])
        )
        for p, cut, size in zip(ascending, cuts, sizes, strict=True)
    }


def _appended(side: Side, batch: pa.RecordBatch) -> bool:
    kinds = batch.column("timestamp_type")
    return not side.payload_time and len(kinds) > 0 and kinds[0].as_py() == LOG_APPEND_TIME


def _column(values: pa.Array, name: str) -> pl.Series:
    """Returns the values as a column of `frames.RECORD`."""
    column = pl.Series(name, values)
    return column if column.dtype == RECORD[name] else column.cast(RECORD[name])


def _proves(side: Side, times: pa.Array, timestamps: pa.Array, kinds: pa.Array, listed_ms: int) -> Bools:
    """Returns whether each time is not after the append, by the broker's clock if the topic has it, otherwise by ours.

    Producers' clocks may be slightly ahead of it; otherwise none of their records would prove anything.
    """
    appended = pa.scalar(listed_ms, pa.int64())
    if side.payload_time and pc.any(by_broker := pc.equal(kinds, LOG_APPEND_TIME)).as_py():
        appended = pc.if_else(by_broker, timestamps, appended)
    latest = pc.add(appended, pa.scalar(CLOCKS_DIFFER_MS, pa.int64()))
    proves: Bools = pc.fill_null(pc.less_equal(times, latest), False).to_numpy(zero_copy_only=False)
    return proves


def _why_dead(time: pl.Series, unusable: pl.Series | None, valid_times: pa.Array) -> pl.Series | None:
    """Returns why each record does not take part; None if all do, the usual case."""
    if unusable is None and pc.all(valid_times).as_py() is not False:
        return None
    none = pl.repeat(None, len(time), dtype=pl.String, eager=True)
    frame = pl.DataFrame(
        {"time": time, "valid": pl.Series(pl.from_arrow(valid_times)), "why": none if unusable is None else unusable}
    )
    # If there is no time because the value cannot be read, is a tombstone, or lacks a zone, that is the reason. What
    # does not fit is skipped, whatever its time.
    unread = (pl.col("why") != INVALID_KEY).fill_null(value=False)
    return frame.select(
        reason=pl.when(pl.col("why").is_in(WHATEVER_ITS_TIME))
        .then("why")
        .when(pl.col("time").is_null() & ~unread)
        .then(pl.lit(NO_TIME))
        .when(pl.col("time").is_not_null() & ~pl.col("valid"))
        .then(pl.lit(FUTURE_TIME))
        .otherwise(pl.col("why"))
    )["reason"]


@dataclass(frozen=True, slots=True)
class LocatedFields:
    """What was found in one batch, as columns.

    times    int64 ms UTC; null if there is none, or one before 1970
    keys     the join keys (binary), null if there is none; None: the records' own keys
    reasons  why a value, a key or a time without a zone cannot be used; None if all can
    kept     JSON objects of the fields that the side keeps; None: no fields, or the whole value
    deleted  whether a record deletes its key; None if none can
    """

    times: pa.Array
    keys: pa.Array | None
    reasons: pl.Series | None
    kept: pa.Array | None
    deleted: pa.Array | None = None


def locate(side: Side, batch: pa.RecordBatch, before_ms: int | None = None) -> LocatedFields:
    """Reads a batch in the schema of `teacup.kafka.read.range_reader`, except partition and offset.

    before_ms   the time of the record before the batch, if it is known
    """
    key_of, values = side.key_of, batch.column("value")
    fields = None
    if side.has_json:
        keep = () if side.kept is None else side.kept.paths or ()
        others = [*(() if side.where_of is None else side.where_of.paths)]
        if side.deletes is not None:
            others.append(side.delete_mark[0])
        fields = json_fields(values, side.time_of.field, key_of.paths, keep, side.time_unit, others)
    of_field = None if fields is None else fields.time
    times, zoneless = side.time_of.times(batch.column("timestamp"), batch.column("headers"), of_field)
    keys = None
    inside = _inside(side, batch) if key_of.inside else None
    if not key_of.is_kafkas:
        of_value, of_key = () if fields is None else fields.keys, () if inside is None else inside.keys
        keys = key_of.keys(batch.column("key"), batch.column("headers"), of_value, of_key)
    reasons = _why_unusable(side, values, fields, zoneless)
    if inside is not None:
        odd = _worded({INVALID_KEY: pc.or_(inside.odd, pc.invert(inside.json))})
        reasons = _first_of(reasons, odd)
    if UNREADABLE in batch.schema.names and (unread := batch.column(UNREADABLE)).null_count < len(batch):
        reasons = _first_of(pl.Series(pl.from_arrow(unread)), reasons)
    deleted = None
    if side.tombstones == "delete":
        deleted = batch.column(RAW if RAW in batch.schema.names else "value").is_null()
        if side.payload_time:
            times = _with_times_of_those_before(times, deleted, before_ms)
        if side.deletes is not None and fields is not None:
            deleted = pc.or_(deleted, pc.fill_null(pc.equal(fields.others[-1], side.delete_mark[1]), False))
    elif side.tombstones is not None:
        reasons = _with_tombstones(reasons, batch)
    if (where := side.where_of) is not None:
        reasons = _with_where(side, where, reasons, batch, fields)
    return LocatedFields(times, keys, reasons, None if fields is None else fields.kept, deleted)


def _first_of(one: pl.Series | None, other: pl.Series | None) -> pl.Series | None:
    if one is None or other is None:
        return other if one is None else one
    return pl.select(pl.coalesce(one, other)).to_series()


def _inside(side: Side, batch: pa.RecordBatch) -> JsonFields:
    """Reads the parts of the join key that are inside Kafka's key."""
    column = JSON_KEY if JSON_KEY in batch.schema.names else "key"
    return json_fields(batch.column(column), None, side.key_of.inside)


def _with_times_of_those_before(times: pa.Array, deleted: pa.Array, before_ms: int | None) -> pa.Array:
    """Gives a record without a value, and so without a time, the time of the record before it in its partition.

    Kafka's timestamp is from another clock: by that, a delete could hide the version that follows it. The partition's
    first record has nothing before it to delete.
    """
    first = pa.array([before_ms or 0], pa.int64())
    filled = pc.fill_null_forward(pa.concat_arrays([first, times.cast(pa.int64())]))[1:]
    return pc.if_else(pc.and_(deleted, times.is_null()), filled, times)


def _with_tombstones(reason: pl.Series | None, batch: pa.RecordBatch) -> pl.Series | None:
    """Adds the tombstones to the reasons; they replace any other reason."""
    values = batch.column(RAW if RAW in batch.schema.names else "value")
    if not values.null_count:
        return reason
    others = pl.repeat(None, len(values), dtype=pl.String, eager=True) if reason is None else reason
    empty = pl.Series(pl.from_arrow(values.is_null()))
    return pl.select(pl.when(empty).then(pl.lit(TOMBSTONE)).otherwise(others)).to_series()


def _with_where(
    side: Side, where: RecordFilter, reason: pl.Series | None, batch: pa.RecordBatch, fields: JsonFields | None
) -> pl.Series | None:
    """Adds what does not fit `where`; that replaces any other reason, unless it needs a value that is unreadable."""
    held, readable = (), None
    if fields is not None and where.paths:
        held, readable = fields.others[: len(where.paths)], fields.json
        if UNREADABLE in batch.schema.names:
            readable = pc.and_(readable, batch.column(UNREADABLE).is_null())
        if side.tombstones is not None:
            readable = pc.and_(readable, batch.column("value").is_valid())
    out = pc.invert(where.fits(batch.column("headers"), held, readable))
    if not pc.any(out).as_py():
        return reason
    others = pl.repeat(None, len(out), dtype=pl.String, eager=True) if reason is None else reason
    return pl.select(pl.when(pl.Series(pl.from_arrow(out))).then(pl.lit(WHERE)).otherwise(others)).to_series()


def _why_unusable(
    side: Side, values: pa.Array, fields: JsonFields | None, zoneless: pa.Array | None
) -> pl.Series | None:
    """Returns why each value, or the time or key in it, cannot be used; None when all can be, the usual case."""
    masks = {}
    if side.format is Format.TEXT or (fields is not None and pc.all(fields.json).as_py() is False):
        masks[INVALID_TEXT] = _not_text(values)
    if fields is not None:
        masks[INVALID_JSON] = pc.invert(fields.json)
    if zoneless is not None:
        masks[NO_ZONE] = zoneless
    if fields is not None:
        masks[INVALID_KEY] = fields.odd
    return _worded(masks)


def _not_text(values: pa.Array) -> pa.Array:
    return pc.and_(text_of(values).is_null(), values.is_valid())


def _worded(masks: Mapping[str, pa.Array]) -> pl.Series | None:
    """Returns for each record the name of the first mask that is true; null if none is."""
    if not any(pc.any(mask).as_py() for mask in masks.values()):
        return None
    frame = pl.DataFrame({name: pl.Series(pl.from_arrow(mask)) for name, mask in masks.items()})
    return frame.select(reason=pl.coalesce(pl.when(pl.col(name)).then(pl.lit(name)) for name in masks))["reason"]


def known_in(batch: pa.RecordBatch) -> dict[int, int]:
    """Returns the schemas that a batch of one partition names and the registry has."""
    if RAW not in batch.schema.names:
        return {}
    ids, offsets = schema_ids(batch.column(RAW)), batch.column("offset").to_numpy()
    decoded = (ids >= 0) & ~_is_unknown(batch)
    numbers, first = np.unique(ids[decoded], return_index=True)
    return dict(zip(numbers.tolist(), offsets[decoded][first].tolist(), strict=True))


def as_first_read(batch: pa.RecordBatch, schemas: SchemaOffsets, where: str) -> pa.RecordBatch:
    """Makes dead letters of the records whose schema was unknown when they were first read.

    where   names the partition in messages. Raises `DataLoss` if the registry has lost a schema
    """
    if RAW not in batch.schema.names:
        return batch
    ids, offsets = schema_ids(batch.column(RAW)), batch.column("offset").to_numpy()
    was_known = np.zeros(len(ids), np.bool_)
    for number, first in schemas.items():
        was_known |= (ids == number) & (offsets >= first)
    unknown = _is_unknown(batch)
    if (lost := was_known & unknown).any():
        raise DataLoss(
            f"the registry no longer has schema {int(ids[lost][0])}, with which the record at offset "
            f"{int(offsets[lost][0])} of {where} was read before: restore it in the registry"
        )
    later = (ids >= 0) & ~was_known & ~unknown
    if not later.any():
        return batch
    at = batch.schema.get_field_index(UNREADABLE)
    reasons = pl.Series(pl.from_arrow(batch.column(UNREADABLE))).scatter(np.flatnonzero(later), UNKNOWN_SCHEMA)
    return batch.set_column(at, batch.schema.field(at), reasons.to_arrow().cast(batch.schema.field(at).type))


def _is_unknown(batch: pa.RecordBatch) -> np.typing.NDArray[np.bool_]:
    is_unknown: np.typing.NDArray[np.bool_] = pc.fill_null(
        pc.equal(batch.column(UNREADABLE), UNKNOWN_SCHEMA), False
    ).to_numpy(zero_copy_only=False)
    return is_unknown
