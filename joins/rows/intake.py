"""Which of the records that were read take part, and which go to the dead-letter topic, with the reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from joins.rows.frames import Bools, constant, frame_of
from joins.rows.reading import RAW, find
from joins.rows.records import OWN_KEY, RECORD, empty_rows, rows_about
from joins.rows.schemas import Known, known_in
from joins.spec import Side
from kafkaio.eventtime import LOG_APPEND_TIME, ceilings, valid
from kafkaio.reasons import FUTURE_TIME, INVALID_KEY, NO_TIME
from kafkaio.times import LATEST_MS, UNLIMITED_MS

CLOCKS_DIFFER_MS = 1_000
"""How far ahead of the broker's clock, or of ours, a producer's clock may be while its records still prove progress."""


@dataclass(frozen=True, slots=True)
class Intake:
    """One batch of one partition, checked and sorted.

    records    in the schema of `records.RECORD`; late: one flag each
    proves     per record, whether it can have been appended at its time, by clocks that differ a little
    dead       rows of the dead letters
    schemas    the schemas that the registry had, of those that values name, each with its first offset
    """

    side: str
    records: pl.DataFrame
    late: pl.Series
    proves: Bools
    dead: pl.DataFrame
    ceiling_ms: int
    schemas: Known = field(default_factory=dict)

    @property
    def future_ms(self) -> int:
        """The smallest time that the clock rejected, above those of all records; `LATEST_MS` if it rejected none."""
        if self.dead.is_empty():
            return LATEST_MS
        times = self.dead[f"{self.side}_time"].filter(self.dead["reason"] == FUTURE_TIME)
        beyond = times.filter(times > self.ceiling_ms)
        return LATEST_MS if beyond.is_empty() else int(beyond.min())  # type: ignore[arg-type]

    def split(self, offset: int) -> tuple[Intake, Intake]:
        """Returns the part below an offset, and the rest."""
        at = int(np.searchsorted(self.records["offset"].to_numpy(), offset))
        dead_at = int(np.searchsorted(self.dead[f"{self.side}_offset"].to_numpy(), offset))
        below, rest = self._part(0, at, 0, dead_at), self._part(at, len(self.records), dead_at, len(self.dead))
        return replace(below, schemas={n: first for n, first in self.schemas.items() if first < offset}), rest

    def _part(self, start: int, end: int, dead_start: int, dead_end: int) -> Intake:
        return replace(
            self,
            records=self.records[start:end],
            late=self.late[start:end],
            proves=self.proves[start:end],
            dead=self.dead[dead_start:dead_end],
        )


def take_in(
    name: str, side: Side, batch: pa.RecordBatch, listed_ms: int, skew_ms: int, progress_before_ms: int
) -> Intake:
    """Separates good records from dead letters in one Arrow batch of one partition (schema of `kafkaio.messages`).

    Good records are reduced to what the side keeps; dead letters are as they were read.

    name       "left" or "right"
    listed_ms  the wall clock when the batch was planned; times above it by more than `skew_ms` are from the future
    """
    timestamps, kinds = batch.column("timestamp"), batch.column("timestamp_type")
    found = find(side, batch)
    times_read = found.times
    ceiling = ceilings(timestamps, kinds, listed_ms + skew_ms, skew_ms if side.payload_time else UNLIMITED_MS)
    columns = {name: _column(times_read if name == "time" else batch.column(name), name) for name in RECORD}
    if found.keys is not None:
        columns |= {"key": _column(found.keys, "key"), OWN_KEY: columns["key"]}
    as_read = frame = frame_of(columns)
    if side.kept is not None:
        columns["value"] = _column(side.kept.values(batch.column("value"), found.kept), "value")
        columns["headers"] = side.kept.headers(columns["headers"])
        if found.keys is not None and not side.kept.own_key:
            columns[OWN_KEY] = constant(None, pl.Binary, len(frame))
        frame = frame_of(columns)
    reason = _reasons(frame["time"], found.reasons, valid(times_read, ceiling))
    dead = empty_rows()
    proves = _proves(side, times_read, timestamps, kinds, listed_ms)
    if reason is not None:
        bad = reason.is_not_null()
        if RAW in batch.schema.names:
            as_read = as_read.with_columns(pl.Series("value", batch.column(RAW)))
        dead = rows_about(name, as_read.filter(bad), "dead_letter", reason.filter(bad), late=False)
        frame, proves = frame.filter(~bad), proves[(~bad).to_numpy()]
    late = pl.Series(frame["time"].to_numpy() < progress_before_ms)
    return Intake(name, frame, late, proves, dead, listed_ms + skew_ms, known_in(batch))


def _column(values: pa.Array, name: str) -> pl.Series:
    """Returns the values as a column of `records.RECORD`."""
    column = pl.Series(name, values)
    return column if column.dtype == RECORD[name] else column.cast(RECORD[name])


def _proves(side: Side, times: pa.Array, timestamps: pa.Array, kinds: pa.Array, listed_ms: int) -> Bools:
    """Returns whether each time is not after the append: by the broker's clock if the topic has it, otherwise by ours.

    Producers' clocks may be slightly ahead of that clock. If none of their records proved anything, left would depend
    on the clock alone.
    """
    appended = pa.scalar(listed_ms, pa.int64())
    if side.payload_time and pc.any(by_broker := pc.equal(kinds, LOG_APPEND_TIME)).as_py():
        appended = pc.if_else(by_broker, timestamps, appended)
    latest = pc.add(appended, pa.scalar(CLOCKS_DIFFER_MS, pa.int64()))
    proves: Bools = pc.fill_null(pc.less_equal(times, latest), False).to_numpy(zero_copy_only=False)
    return proves


def _reasons(time: pl.Series, unusable: pl.Series | None, valid_times: pa.Array) -> pl.Series | None:
    """Returns why each record does not take part; None when all of them do, which is the usual case and cheap."""
    if unusable is None and pc.all(valid_times).as_py() is not False:
        return None
    none = pl.repeat(None, len(time), dtype=pl.String, eager=True)
    frame = pl.DataFrame(
        {"time": time, "valid": pl.Series(pl.from_arrow(valid_times)), "why": none if unusable is None else unusable}
    )
    # Where there is no time because the value cannot be read, the value is the reason.
    unread = (pl.col("why") != INVALID_KEY).fill_null(value=False)
    return frame.select(
        reason=pl.when(pl.col("time").is_null() & ~unread)
        .then(pl.lit(NO_TIME))
        .when(pl.col("time").is_not_null() & ~pl.col("valid"))
        .then(pl.lit(FUTURE_TIME))
        .otherwise(pl.col("why"))
    )["reason"]
