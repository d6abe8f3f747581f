"""Rows, copies and corrections as columns of numbers (`deploy.inspection.audit.records`). Pure.

rows        spot, lpos, rpos, ts, kh, late, before (written by an earlier checkpoint than this rewound one),
            pass (how many rewinds had it written again), h, len: spot is its position in the output; of a
            right record alone h and len are about what follows its key
copies      role (which side topic), spot, is_left, pos, other, reason, ts, shortened, kh, vh, h, len, origin
            (the generation of the job that wrote it; null: it does not say), pass
past_corrections   of earlier runs (`--corrections`): spot, lpos, rpos, withdrawn (the row no longer exists),
            run (which run wrote it: a later one has a larger number)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from deploy.inspection.audit.digests import of_column
from deploy.inspection.audit.records import I64, SHIFT, SIDES, hashed, position_of, spots_in, table_of
from deploy.inspection.audit.texts import after_no_left
from deploy.output.ours import added_to_copies, rows_before, rows_by, texts_in
from teacup.kafka.delivery.provenance import positions_in, provenance_of, tags_in
from teacup.kafka.headers import LATE, OMITTED, OUTCOME, REASON, TIME
from teacup.kafka.records.record import last_header

MOST_PARTITIONS = 1 << 18
WITHDRAWN = "withdrawn"
"""The outcome that a withdrawal names."""

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
PAST_CORRECTIONS = pa.schema(
    [
        ("spot", pa.int64()),
        ("lpos", pa.int64()),
        ("rpos", pa.int64()),
        ("withdrawn", pa.bool_()),
        ("run", pa.int64()),
    ]
)


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
    origin   this checkpoint's generation, to recognise rows of earlier ones; None: not needed
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
        "kh": hashed(pl.Series(batch.column("key")).cast(pl.Binary)),
        "late": (texts_in(headers, LATE) == "true").fill_null(value=False),
        "before": np.zeros(count, np.bool_) if origin is None else pl.Series(rows_before(batch, origin)),
        "pass": passes(batch, lefts, again),
        "h": np.zeros(count, np.uint64) if digests is None else digests.value,
        "len": np.zeros(count, np.int64) if digests is None else digests.size,
    }
    return table_of(columns, ROWS)


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

    Rows about right records alone are verified like copies in a topic `unjoined`.
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
        "kh": hashed(pl.Series(batch.column("key")).cast(pl.Binary)),
        "vh": hashed(values),
        "h": np.zeros(batch.num_rows, np.uint64) if text is None else text.value,
        "len": np.zeros(batch.num_rows, np.int64) if text is None else text.size,
        "origin": hashed(tags_in(written["batch"])["origin"]),
        "pass": passes(batch, left, again),
    }
    return table_of(columns, COPIES)


def past_corrections_of(batch: pa.RecordBatch) -> pa.Table:
    """Returns the columns of corrections."""
    written = provenance_of(batch.column("headers"))
    columns = {
        "spot": spots_in(batch),
        "lpos": _position(written["left"]),
        "rpos": _position(written["right"]),
        "withdrawn": (texts_in(batch.column("headers"), OUTCOME) == WITHDRAWN).fill_null(value=False),
        "run": tags_in(written["batch"])["number"],
    }
    return table_of(columns, PAST_CORRECTIONS)


def _position(texts: pl.Series) -> pl.Series:
    """Returns each position as one number; null where there is none."""
    partition, offset = positions_in(texts).get_columns()
    in_range = partition.is_between(0, MOST_PARTITIONS - 1) & offset.is_between(0, (1 << SHIFT) - 1)
    return pl.select(pl.when(in_range).then(partition * (1 << SHIFT) + offset)).to_series()


def _times(batch: pa.RecordBatch) -> pl.Series:
    """Returns the records' own times, also where a topic had refused them as timestamps."""
    moved = texts_in(batch.column("headers"), TIME).cast(pl.Int64, strict=False)
    return moved.zip_with(moved.is_not_null(), pl.Series(batch.column("timestamp").to_numpy()))
