"""Records of both sides as columns of numbers: what a verdict needs, without keys and values. Pure.

A position is one number, partition * 2^44 + offset; records are compared in this order. Keys are hashed to 64 bits.
The digests of texts can be combined (`digests.py`), so that a row's envelope is compared with its two records by
arithmetic.

    lefts, rights   pos, t, kh (null: no key), dead (why it takes no part, as far as the record itself says), number,
                    late, expiry, stalled (`plan_history.py`), doubt (a right record that may be late, by the times
                    of its neighbours), kept (in the sample), deleted (of a table that changes: it deletes its key),
                    h, len (its text in an envelope), vh (its value), okh (its own key)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from deploy.inspection.audit.digests import of_column
from deploy.inspection.audit.plan_history import OffsetSpans
from deploy.inspection.audit.shown_late import ShownLate
from deploy.inspection.audit.texts import json_string, json_strings, value_texts
from joins.read.parse import RAW, WHATEVER_ITS_TIME, locate
from joins.spec import Side
from teacup.base.times import EARLIEST_MS
from teacup.kafka.headers import (
    FUTURE_TIME,
    INVALID_KEY,
    NO_TIME,
)
from teacup.kafka.records.record import LOG_APPEND_TIME

I64 = npt.NDArray[np.int64]

SHIFT = 44
SEED = 29
SAMPLES = 1_000_000

SIDES = pa.schema(
    [
        ("pos", pa.int64()),
        ("t", pa.int64()),
        ("kh", pa.uint64()),
        ("dead", pa.string()),
        ("number", pa.int32()),
        ("late", pa.bool_()),
        ("expiry", pa.int64()),
        ("stalled", pa.int64()),
        ("doubt", pa.bool_()),
        ("kept", pa.bool_()),
        ("deleted", pa.bool_()),
        ("h", pa.uint64()),
        ("len", pa.int64()),
        ("vh", pa.uint64()),
        ("okh", pa.uint64()),
    ]
)


def position_of(partition: int, offset: int) -> int:
    """Returns a position as one number."""
    return partition << SHIFT | offset


def spot_of(position: int) -> tuple[int, int]:
    """Returns partition and offset."""
    return position >> SHIFT, position & (1 << SHIFT) - 1


@dataclass(frozen=True, slots=True)
class SideTable:
    """How the records of a side become columns.

    now_ms     the clock: a time more than the skew beyond it was never valid
    sample     how many of a million keys are compared; None: all
    texts      envelopes are compared
    copies     copies in side topics are compared
    """

    name: str
    side: Side
    skew_ms: int
    now_ms: int
    sample: int | None = None
    texts: bool = True
    copies: bool = True

    def of(
        self,
        batch: pa.RecordBatch,
        stretch: OffsetSpans,
        shown: ShownLate | None = None,
        before_ms: int | None = None,
    ) -> pa.Table:
        """Returns the columns of one batch of one partition (`joins.read.deserialize`).

        before_ms   the time of the record before it, if there is one
        """
        side = self.side
        partition, offsets = batch.column("partition")[0].as_py(), batch.column("offset").to_numpy()
        parsed = locate(side, batch, before_ms)
        history = stretch.at(offsets)
        times = parsed.times
        dead = self._dead(batch, times, parsed.reasons, history["ceiling_ms"])
        alive = dead.is_null().to_numpy()
        ms = pc.fill_null(times, EARLIEST_MS).to_numpy(zero_copy_only=False)
        keys = pl.Series(batch.column("key") if parsed.keys is None else parsed.keys).cast(pl.Binary)
        hashes = hashed(keys)
        doubt = np.zeros(len(offsets), np.bool_)
        if shown is not None:
            doubt[alive] = shown.see(ms[alive])
        sampled = np.ones(len(offsets), np.bool_)
        if self.sample is not None:
            by = hashes.fill_null(pl.Series(offsets).hash(SEED)).to_numpy()
            sampled = by % SAMPLES < self.sample
        columns: dict[str, Any] = {
            "pos": np.int64(partition << SHIFT) | offsets,
            "t": times,
            "kh": hashes,
            "dead": dead,
            "number": history["number"].astype(np.int32),
            "late": alive & (ms < history["watermark_ms"]),
            "expiry": history["expiry_ms"],
            "stalled": history["stalled_ms"],
            "doubt": doubt,
            "kept": sampled,
            "deleted": np.zeros(len(offsets), np.bool_) if parsed.deleted is None else parsed.deleted,
        }
        if self.texts:
            shown_rows = alive & sampled
            text = of_column(self._texts(batch, keys, parsed.kept, ms, partition, shown_rows))
            columns |= {"h": text.value, "len": text.size}
        if self.copies:
            raw = batch.column(RAW) if RAW in batch.schema.names else batch.column("value")
            projected = pl.Series(self._values(batch, parsed.kept)).cast(pl.Binary)
            stored = pl.select(
                pl.when(pl.Series(alive)).then(projected).otherwise(pl.Series(raw).cast(pl.Binary))
            ).to_series()
            own = pl.Series(batch.column("key")).cast(pl.Binary)
            if parsed.keys is not None and side.kept is not None and not side.kept.own_key:
                own = pl.select(pl.when(pl.Series(alive)).then(None).otherwise(own)).to_series()
            columns |= {"vh": hashed(stored), "okh": hashed(own)}
        return table_of(columns, SIDES)

    def _dead(self, batch: pa.RecordBatch, times: pa.Array, unusable: pl.Series | None, ceiling_ms: I64) -> pl.Series:
        """Returns why each record takes no part; null if it does, unless its batch found its time in the future."""
        count = batch.num_rows
        limit = np.minimum(ceiling_ms, self.now_ms + self.skew_ms)
        if self.side.payload_time:
            by_broker = batch.column("timestamp_type").to_numpy() == LOG_APPEND_TIME
            appended = batch.column("timestamp").to_numpy() + self.skew_ms
            limit = np.where(by_broker, np.minimum(limit, appended), limit)
        ms = pl.Series(times)
        if unusable is None and ms.null_count() == 0 and bool((ms.to_numpy() <= limit).all()):
            return pl.Series([None], dtype=pl.String).new_from_index(0, count)
        why = pl.Series([None], dtype=pl.String).new_from_index(0, count) if unusable is None else unusable
        frame = pl.DataFrame({"t": ms, "limit": limit, "why": why})
        return frame.select(
            dead=pl.when(pl.col("why").is_in(WHATEVER_ITS_TIME))
            .then("why")
            .when(pl.col("t").is_null() & (pl.col("why").is_null() | (pl.col("why") == INVALID_KEY)))
            .then(pl.lit(NO_TIME))
            .when(pl.col("t") > pl.col("limit"))
            .then(pl.lit(FUTURE_TIME))
            .otherwise(pl.col("why"))
        )["dead"]

    def _values(self, batch: pa.RecordBatch, kept: pa.Array | None) -> pa.Array:
        """Returns the values as the job keeps them."""
        if self.side.kept is None:
            return batch.column("value")
        return self.side.kept.values(batch.column("value"), kept)

    def _texts(
        self, batch: pa.RecordBatch, keys: pl.Series, kept: pa.Array | None, ms: I64, partition: int, shown: Any
    ) -> pa.Array:
        """Returns what an envelope says of each record (of a left one from its join key on); null if not shown."""
        side = self.side
        own = pl.Series(batch.column("key")).cast(pl.Binary)
        if not side.key_of.is_kafkas and side.kept is not None and not side.kept.own_key:
            own = pl.Series([None], dtype=pl.Binary).new_from_index(0, len(own))
        frame = pl.DataFrame(
            {
                "join": keys,
                "own": own,
                "t": ms,
                "value": pl.Series(self._values(batch, kept)).cast(pl.Binary),
                "offset": batch.column("offset").to_numpy(),
                "shown": shown,
            }
        )
        frame = frame.filter("shown")  # a dead letter's bytes are no text; in its column it stays null
        strings = {"own": json_strings(frame["own"]), "value": value_texts(frame["value"], side.format)}
        head = ""
        if self.name == "left":
            strings["join"] = strings["own"] if side.key_of.is_kafkas else json_strings(frame["join"])
            head = '{"key":'
        frame = frame.with_columns(**strings)
        topic = json_string(side.topic)
        pieces = [
            *([pl.lit(head), pl.col("join"), pl.lit(',"left":')] if head else []),
            pl.lit('{"key":'),
            pl.col("own"),
            pl.lit(',"time":'),
            pl.col("t").cast(pl.String),
            pl.lit(',"value":'),
            pl.col("value"),
            pl.lit(f',"position":{{"topic":{topic},"partition":{partition},"offset":'),
            pl.col("offset").cast(pl.String),
            pl.lit("}}"),
        ]
        text = frame.select(text=pl.concat_str(pieces))["text"]
        if len(text) < len(shown):
            at = pl.select(pl.when(pl.Series(shown)).then(pl.Series(np.cumsum(shown) - 1))).to_series()
            text = text.gather(at) if len(text) else pl.Series([None], dtype=pl.String).new_from_index(0, len(shown))
        return text.to_arrow()


def last_time(table: pa.Table, before_ms: int | None = None) -> int | None:
    """Returns the time of the last record that has one; `before_ms` if none has."""
    times = table.column("t").drop_null()
    return times[-1].as_py() if len(times) else before_ms


def hashed(values: pl.Series) -> pl.Series:
    """Returns 64 bits of each value; null for null."""
    hashes = values.hash(SEED)
    if not values.null_count():
        return hashes
    return pl.select(pl.when(values.is_not_null()).then(hashes)).to_series()


def spots_in(batch: pa.RecordBatch) -> I64:
    """Returns where each record is, as one number."""
    partitions = batch.column("partition").to_numpy().astype(np.int64)
    spots: I64 = partitions << SHIFT | batch.column("offset").to_numpy()
    return spots


def table_of(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Returns the columns in the order of the schema; missing ones are null."""
    frame = pl.DataFrame({name: pl.Series(name, column) for name, column in columns.items()})
    missing = [name for name in schema.names if name not in columns]
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    for name in missing:
        table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
    return table.select(schema.names).cast(schema)
