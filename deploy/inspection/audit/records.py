"""Records and rows as columns of numbers: what a verdict needs, without keys and values. Pure.

A position is one number, partition * 2^44 + offset; records are compared in this order. Keys are hashed to 64 bits.
The digests of texts can be combined (`digests.py`), so that a row's envelope is compared with its two records by
arithmetic.

    lefts, rights   pos, t, kh (null: no key), dead (why it takes no part, as far as the record itself says), number,
                    late, expiry, stalled (`plan_history.py`), doubt (a right record that may be late, judging by
                    its neighbours), kept (in the sample), deleted (of a table that changes: it deletes its key),
                    h, len (its text in an envelope), vh (its value), okh (its own key)
    rows            spot, lpos, rpos, ts, kh, late, before (written by an earlier checkpoint than this rewound one),
                    pass (how many rewinds had it written again), h, len: spot is its position in the output; of a
                    right record alone h and len are about what follows its key
    copies          role (which side topic), spot, is_left, pos, other, reason, ts, shortened, kh, vh, h, len, origin
                    (the generation of the job that wrote it; null: it does not say), pass
    standing        corrections of earlier runs (`--corrections`): spot, lpos, rpos, withdrawn (there is no such row),
                    run (which run wrote it: a later one has a larger number)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
from deploy.inspection.audit.texts import after_no_left, json_string, json_strings, value_texts
from deploy.output.ours import added_to_copies, rows_before, rows_by, texts_in
from joins.read.parse import RAW, WHATEVER_ITS_TIME, find
from joins.spec import Side
from teacup.base.times import EARLIEST_MS
from teacup.kafka.delivery.provenance import positions_in, provenance_of, tags_in
from teacup.kafka.headers import (
    FUTURE_TIME,
    INVALID_KEY,
    LATE,
    NO_TIME,
    OMITTED,
    REASON,
    TIME,
)
from teacup.kafka.records.record import LOG_APPEND_TIME, last_header

I64 = npt.NDArray[np.int64]

SHIFT = 44
MOST_PARTITIONS = 1 << 18
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
ROWS = pa.schema(
    [
        ("spot", pa.int64()),
        ("lpos", pa.int64()),
        ("rpos", pa.int64()),
        ("ts", pa.int64()),
        ("kh", pa.uint64()),
        ("late", pa.bool_()),
        ("before", pa.bool_()),
        ("pass", pa.int32()),
        ("h", pa.uint64()),
        ("len", pa.int64()),
    ]
)
COPIES = pa.schema(
    [
        ("role", pa.string()),
        ("spot", pa.int64()),
        ("is_left", pa.bool_()),
        ("pos", pa.int64()),
        ("other", pa.int64()),
        ("reason", pa.string()),
        ("ts", pa.int64()),
        ("shortened", pa.bool_()),
        ("kh", pa.uint64()),
        ("vh", pa.uint64()),
        ("h", pa.uint64()),
        ("len", pa.int64()),
        ("origin", pa.uint64()),
        ("pass", pa.int32()),
    ]
)
TABLES = {"lefts": SIDES, "rights": SIDES, "rows": ROWS, "copies": COPIES}
STANDING = pa.schema(
    [
        ("spot", pa.int64()),
        ("lpos", pa.int64()),
        ("rpos", pa.int64()),
        ("withdrawn", pa.bool_()),
        ("run", pa.int64()),
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
        found = find(side, batch, before_ms)
        known = stretch.at(offsets)
        times = found.times
        dead = self._dead(batch, times, found.reasons, known["ceiling_ms"])
        alive = dead.is_null().to_numpy()
        ms = pc.fill_null(times, EARLIEST_MS).to_numpy(zero_copy_only=False)
        keys = pl.Series(batch.column("key") if found.keys is None else found.keys).cast(pl.Binary)
        hashes = _hashed(keys)
        doubt = np.zeros(len(offsets), np.bool_)
        if shown is not None:
            doubt[alive] = shown.see(ms[alive])
        kept = np.ones(len(offsets), np.bool_)
        if self.sample is not None:
            by = hashes.fill_null(pl.Series(offsets).hash(SEED)).to_numpy()
            kept = by % SAMPLES < self.sample
        columns: dict[str, Any] = {
            "pos": np.int64(partition << SHIFT) | offsets,
            "t": times,
            "kh": hashes,
            "dead": dead,
            "number": known["number"].astype(np.int32),
            "late": alive & (ms < known["watermark_ms"]),
            "expiry": known["expiry_ms"],
            "stalled": known["stalled_ms"],
            "doubt": doubt,
            "kept": kept,
            "deleted": np.zeros(len(offsets), np.bool_) if found.deleted is None else found.deleted,
        }
        if self.texts:
            shown_rows = alive & kept
            text = of_column(self._texts(batch, keys, found.kept, ms, partition, shown_rows))
            columns |= {"h": text.value, "len": text.size}
        if self.copies:
            raw = batch.column(RAW) if RAW in batch.schema.names else batch.column("value")
            projected = pl.Series(self._values(batch, found.kept)).cast(pl.Binary)
            stored = pl.select(
                pl.when(pl.Series(alive)).then(projected).otherwise(pl.Series(raw).cast(pl.Binary))
            ).to_series()
            own = pl.Series(batch.column("key")).cast(pl.Binary)
            if found.keys is not None and side.kept is not None and not side.kept.own_key:
                own = pl.select(pl.when(pl.Series(alive)).then(None).otherwise(own)).to_series()
            columns |= {"vh": _hashed(stored), "okh": _hashed(own)}
        return _table(columns, SIDES)

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


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A rewind (`--written again`): rows about left records from these offsets on are to be written once more.

    left      by partition
    origins   of the generations that have written since
    """

    left: Mapping[int, int]
    origins: Collection[str]

    def wrote(self, batch: pa.RecordBatch, lefts: pl.Series) -> npt.NDArray[np.bool_]:
        """Returns which of these rows, about the left records at these positions, were written since."""
        covered = np.zeros(len(lefts), np.bool_)
        for p, offset in self.left.items():
            of = lefts.is_between(position_of(p, offset), position_of(p + 1, 0), closed="left")
            covered |= of.fill_null(value=False).to_numpy()
        since: npt.NDArray[np.bool_] = rows_by(batch, self.origins).to_numpy(zero_copy_only=False)
        return covered & since


def passes(batch: pa.RecordBatch, lefts: pl.Series, again: Iterable[Rewriting]) -> I64:
    """Returns in which pass each row or copy was written: of those about one left record, the last pass counts."""
    return sum((one.wrote(batch, lefts).astype(np.int64) for one in again), np.zeros(len(lefts), np.int64))


def rows_of(
    batch: pa.RecordBatch, *, texts: bool = True, origin: str | None = None, again: Sequence[Rewriting] = ()
) -> pa.Table:
    """Returns the columns of rows.

    texts    values are envelopes
    origin   of this checkpoint's rows; None: they are not told apart from those of others
    again    the rewinds before it that had rows written again
    """
    headers = batch.column("headers")
    count = batch.num_rows
    written = provenance_of(headers)
    lefts, rights = _position(written["left"]), _position(written["right"])
    digests = of_column(_shown(batch, lefts.is_null() & rights.is_not_null())) if texts else None
    columns = {
        "spot": spots_in(batch),
        "lpos": lefts,
        "rpos": rights,
        "ts": _times(batch),
        "kh": _hashed(pl.Series(batch.column("key")).cast(pl.Binary)),
        "late": (texts_in(headers, LATE) == "true").fill_null(value=False),
        "before": np.zeros(count, np.bool_) if origin is None else pl.Series(rows_before(batch, origin)),
        "pass": passes(batch, lefts, again),
        "h": np.zeros(count, np.uint64) if digests is None else digests.value,
        "len": np.zeros(count, np.int64) if digests is None else digests.size,
    }
    return _table(columns, ROWS)


def _shown(batch: pa.RecordBatch, alone: pl.Series) -> pa.Array:
    """Returns the values of rows; of those about a right record alone what follows their key, if it is theirs."""
    if not alone.any():
        return batch.column("value")
    keys, values = (pl.Series(batch.column(name)).cast(pl.Binary) for name in ("key", "value"))
    at = alone.arg_true()
    return values.scatter(at, after_no_left(keys.gather(at), values.gather(at))).to_arrow()


_ALONE = "lpos IS NULL AND rpos IS NOT NULL"


def alone_as_copies(table: str) -> str:
    """Returns, in SQL, what a table holds of a join of the type `full`, given tables called `in_…`.

    Rows about right records alone are judged like copies in a topic `unjoined`.
    """
    if table == "rows":
        return f"SELECT * FROM in_rows WHERE NOT ({_ALONE})"
    if table == "copies":
        return (
            "SELECT * FROM in_copies UNION ALL BY NAME SELECT 'unjoined' AS role, spot, false AS is_left, "
            "rpos AS pos, rpos AS other, ts, false AS shortened, kh, h, len, pass "
            f"FROM in_rows WHERE {_ALONE}"
        )
    return f"SELECT * FROM in_{table}"


def copies_of(batch: pa.RecordBatch, role: str, again: Sequence[Rewriting] = ()) -> pa.Table:
    """Returns the columns of the copies in a side topic; role: `late`, `unmatched`, `unjoined`, `dead_letter`."""
    headers = added_to_copies(batch.column("headers"))
    written = provenance_of(headers)
    left, right = _position(written["left"]), _position(written["right"])
    values = pl.Series(batch.column("value")).cast(pl.Binary)
    text = of_column(batch.column("value")) if role == "unmatched" else None
    about_left = left.is_not_null().to_numpy()
    pos = pl.select(pl.coalesce(left, right)).to_series()
    columns = {
        "role": pl.Series([role]).new_from_index(0, batch.num_rows),
        "spot": spots_in(batch),
        "is_left": about_left,
        "pos": pos,
        "other": right,
        "reason": texts_in(headers, REASON),
        "ts": _times(batch),
        "shortened": last_header(headers, OMITTED).is_valid().to_numpy(zero_copy_only=False),
        "kh": _hashed(pl.Series(batch.column("key")).cast(pl.Binary)),
        "vh": _hashed(values),
        "h": np.zeros(batch.num_rows, np.uint64) if text is None else text.value,
        "len": np.zeros(batch.num_rows, np.int64) if text is None else text.size,
        "origin": _hashed(tags_in(written["batch"])["origin"]),
        "pass": passes(batch, left, again),
    }
    return _table(columns, COPIES)


def standing_of(batch: pa.RecordBatch) -> pa.Table:
    """Returns the columns of corrections."""
    written = provenance_of(batch.column("headers"))
    columns = {
        "spot": spots_in(batch),
        "lpos": _position(written["left"]),
        "rpos": _position(written["right"]),
        "withdrawn": batch.column("value").is_null(),
        "run": tags_in(written["batch"])["number"],
    }
    return _table(columns, STANDING)


def _hashed(values: pl.Series) -> pl.Series:
    """Returns 64 bits of each value; null for null."""
    hashes = values.hash(SEED)
    if not values.null_count():
        return hashes
    return pl.select(pl.when(values.is_not_null()).then(hashes)).to_series()


def spots_in(batch: pa.RecordBatch) -> I64:
    """Returns where each record is, as one number."""
    partitions = batch.column("partition").to_numpy().astype(np.int64)
    found: I64 = partitions << SHIFT | batch.column("offset").to_numpy()
    return found


def _position(texts: pl.Series) -> pl.Series:
    """Returns each position as one number; null where there is none."""
    partition, offset = positions_in(texts).get_columns()
    in_range = partition.is_between(0, MOST_PARTITIONS - 1) & offset.is_between(0, (1 << SHIFT) - 1)
    return pl.select(pl.when(in_range).then(partition * (1 << SHIFT) + offset)).to_series()


def _times(batch: pa.RecordBatch) -> pl.Series:
    """Returns the records' own times, also where a topic had refused them as timestamps."""
    moved = texts_in(batch.column("headers"), TIME).cast(pl.Int64, strict=False)
    return moved.zip_with(moved.is_not_null(), pl.Series(batch.column("timestamp").to_numpy()))


def _table(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Returns the columns in the order of the schema; missing ones are null."""
    frame = pl.DataFrame({name: pl.Series(name, column) for name, column in columns.items()})
    missing = [name for name in schema.names if name not in columns]
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    for name in missing:
        table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
    return table.select(schema.names).cast(schema)
