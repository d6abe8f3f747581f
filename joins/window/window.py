"""The window of right records of one bucket, and what one batch does with it. Pure.

    window.add(right)      the batch's right range becomes a slice
    window.join(left)      each left record is matched at once, and leaves: left is never stored
    window.expire(...)     right records that no future left record can match are dropped; those that appear in no
                           output row are `unjoined`

Slices are merged in tiers, so that a probe touches few of them and a record is moved only a few times. The work depends
on the batch, not on the window: an expired record stays in its slice, hidden from searches, until half of the slice has
expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.outcome import Outcome
from joins.rows.frames import (
    I64,
    RECORD,
    ROW,
    constant,
    cuts,
    frame_of,
    is_null,
    positions,
    row_bytes,
    rows_about,
    rows_at,
    side_columns,
)
from joins.spec import JoinSpec, Policy, Right
from joins.window.match import NONE, Picks, Probe, pick, pick_probed
from joins.window.slices import SLICE_BYTES, Slice
from teacup.base.times import EARLIEST_MS
from teacup.kafka.headers import DELETED, EXPIRED, NO_CANDIDATE, NO_LONGER_STORED, NULL_KEY, RIGHT_STALLED

REASONS = (None, NO_CANDIDATE, NULL_KEY, RIGHT_STALLED, NO_LONGER_STORED, DELETED)
"""Why a left record has no right record; None if it has one."""
GONE, IS_DELETED = REASONS.index(NO_LONGER_STORED), REASONS.index(DELETED)
_REASONS = pl.Series(REASONS)
_OUTCOMES = pl.Series([str(Outcome.UNMATCHED if reason else Outcome.MATCHED) for reason in REASONS])

TIER = 4  # neighbours are merged unless the older is at least TIER times as large as the younger ones together


@dataclass(eq=False)
class JoinedRight:
    """The right records that a left range was joined with: (times, partitions, offsets), in order of joining."""

    picked: list[tuple[I64, npt.NDArray[np.int32], I64]] = field(default_factory=list)

    def since(self, time_ms: int) -> dict[int, I64]:
        """Returns by partition the ascending, unique offsets of those with at least this time."""
        if not self.picked:
            return {}
        times, partitions, offsets = (np.concatenate(column) for column in zip(*self.picked, strict=True))
        live = times >= time_ms
        partitions, offsets = partitions[live], offsets[live]
        return {p: np.unique(offsets[partitions == p]) for p in np.unique(partitions).tolist()}


@dataclass(eq=False)
class Window:
    """The slices of one bucket, oldest first. Their records below `expired_ms` are no longer in the window.

    apart      records of different partitions do not match; the hashes of the slices tell them apart, too
    one_topic  left's topic is right's: a record does not match itself
    """

    right: Right
    slices: list[Slice] = field(default_factory=list)
    expired_ms: int = EARLIEST_MS
    apart: bool = False
    one_topic: bool = False

    @classmethod
    def of(cls, spec: JoinSpec, expired_ms: int = EARLIEST_MS) -> Window:
        """Returns the empty window of a bucket of an in-memory join."""
        return cls(spec.right, expired_ms=expired_ms, apart=spec.is_direct, one_topic=spec.one_topic)

    def __len__(self) -> int:
        return sum(slice_.live(self.expired_ms) for slice_ in self.slices)

    @property
    def data_bytes(self) -> int:
        """About how many bytes its records take."""
        return sum(
            slice_.data_bytes * slice_.live(self.expired_ms) // len(slice_) for slice_ in self.slices if len(slice_)
        )

    @property
    def oldest_ms(self) -> int | None:
        """The smallest time of its records; None if it has none."""
        times = [slice_.oldest_ms(self.expired_ms) for slice_ in self.slices]
        return min((t for t in times if t is not None), default=None)

    def add(self, slice_: Slice) -> None:
        """Adds a slice of right records."""
        if len(slice_):
            self.slices.append(slice_)

    def join(
        self,
        left: pl.DataFrame,
        late: pl.Series | bool,
        *,
        expiry_ms: int,
        stalled_from_ms: int | None = None,
        barred: I64 | None = None,
        joined: JoinedRight | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Yields rows (`frames.ROW`) for each left record, in left's order; marks the right records that are in them.

        They come in chunks of bounded bytes (`joins.rows.frames`), cut before right records are gathered.

        late             a flag per left record
        stalled_from_ms  unmatched records from this time on get the reason `right_stalled`: they did not wait for right
        barred           for each left record 0, or why it matches nothing: `GONE` (its right records may be lost) or
                         `IS_DELETED`
        joined           collects the picked right records
        """
        lateness = late if isinstance(late, pl.Series) else constant(late, pl.Boolean, len(left))
        left_bytes = row_bytes(left)
        probe = Probe.of(self.right, left, expiry_ms, apart=self.apart, one_topic=self.one_topic, barred=barred)
        for picks in pick_probed(self.right, self.slices, probe, len(left)):
            self._mark(picks, joined)
            for start, end in cuts(left_bytes[picks.left] + _right_bytes(self.slices, picks)):
                yield self._rows(left, lateness, picks[start:end], stalled_from_ms, barred)

    def mark_again(self, left: pl.DataFrame, expiry_ms: int = EARLIEST_MS) -> None:
        """Joins without making rows, to set the marks of the right records that this left range was joined with."""
        for picks in pick(self.right, self.slices, left, expiry_ms, apart=self.apart, one_topic=self.one_topic):
            self._mark(picks)

    def _mark(self, picks: Picks, joined: JoinedRight | None = None) -> None:
        for number, slice_ in enumerate(self.slices):
            rows = picks.row[picks.slice_of == number]
            slice_.marks[rows] = True
            if joined is not None and len(rows):
                joined.picked.append((slice_.times[rows], slice_.partitions[rows], slice_.offsets[rows]))

    def _rows(
        self, left: pl.DataFrame, late: pl.Series, picks: Picks, stalled_from_ms: int | None, barred: I64 | None
    ) -> pl.DataFrame:
        each_once_in_order = self.right.policy is not Policy.ALL and len(picks.left) == len(left)
        if not each_once_in_order:
            at = positions(picks.left)
            left, late = rows_at(left, at), late[at]
        right = _gathered(self.slices, picks)
        alone = picks.slice_of == NONE
        verdict = np.where(alone, REASONS.index(NO_CANDIDATE), REASONS.index(None))
        if stalled_from_ms is not None:
            verdict[alone & (left["time"].to_numpy() >= stalled_from_ms)] = REASONS.index(RIGHT_STALLED)
        verdict[alone & is_null(left["key"])] = REASONS.index(NULL_KEY)
        if barred is not None:
            why = barred[picks.left]
            verdict = np.where((why == GONE) | ((why > 0) & (verdict == REASONS.index(NO_CANDIDATE))), why, verdict)
        columns = {"key": left["key"]}
        for side, records in (("left", left), ("right", right)):
            columns |= {f"{side}_{name}": records[column] for name, column in side_columns(records).items()}
        at = positions(verdict)
        columns |= {"outcome": _OUTCOMES[at], "reason": _REASONS[at], "late": late}
        return frame_of({name: columns[name] for name in ROW})

    def marked(self) -> dict[int, I64]:
        """Returns by partition the offsets, ascending, of the records that appear in an output row."""
        slices = [slice_ for slice_ in self.slices if slice_.marks.any()]
        partitions = np.concatenate([np.zeros(0, np.int32), *(slice_.partitions[slice_.marks] for slice_ in slices)])
        offsets = np.concatenate([np.zeros(0, np.int64), *(slice_.offsets[slice_.marks] for slice_ in slices)])
        return {p: np.sort(offsets[partitions == p]) for p in np.unique(partitions).tolist()}

    def expire(self, expiry_ms: int) -> Iterator[pl.DataFrame]:
        """Expires what is below `expiry_ms` at once; yields rows for right records that appear in no output row.

        They come in order of time, partition and offset, in chunks of bounded bytes as from `join`.
        """
        slices, unjoined = self.slices, _in_order_of_time(self.slices, self.expired_ms, expiry_ms)
        self.slices = [slice_ for slice_ in slices if slice_.span[1] >= expiry_ms]
        self.expired_ms = max(expiry_ms, self.expired_ms)
        return _about_unjoined(slices, unjoined)

    def compact(self) -> None:
        """Drops expired records where they make up half of a slice, and merges neighbours in tiers.

        No merge makes a slice larger than `SLICE_BYTES`, as it is built in memory, which the window may exceed. Call it
        before a batch, not after: a batch that runs again needs the records that it expires.
        """
        self.slices = [
            slice_ if 2 * slice_.live(self.expired_ms) > len(slice_) else self._since_expiry(slice_)
            for slice_ in self.slices
        ]
        while len(self.slices) >= 2:
            tail, size, memory = 1, len(self.slices[-1]), self.slices[-1].data_bytes
            while tail < len(self.slices) and len(older := self.slices[-tail - 1]) < TIER * size:
                memory += older.data_bytes
                if memory > SLICE_BYTES:
                    break
                tail += 1
                size += len(older)
            if tail < TIER:
                break
            self.slices[-tail:] = [Slice.merge([self._since_expiry(slice_) for slice_ in self.slices[-tail:]])]

    def _since_expiry(self, slice_: Slice) -> Slice:
        live = slice_.since(self.expired_ms)
        assert live is not None, "a slice of which nothing is live has left the window"
        return live


def _in_order_of_time(slices: list[Slice], from_ms: int, below_ms: int) -> Picks:
    """Returns the unmarked records of these times, as the right side of pairs."""
    chosen = [
        np.flatnonzero((slice_.times >= from_ms) & (slice_.times < below_ms) & ~slice_.marks)
        if slice_.span[0] < below_ms
        else np.zeros(0, np.int64)
        for slice_ in slices
    ]
    rows = np.concatenate([np.zeros(0, np.int64), *chosen])
    slice_of = np.repeat(np.arange(len(slices)), [len(at) for at in chosen])

    def of(columns: Sequence[I64 | npt.NDArray[np.int32]]) -> I64:
        return np.concatenate(
            [np.zeros(0, np.int64), *(column[at] for column, at in zip(columns, chosen, strict=True))]
        )

    times = of([slice_.times for slice_ in slices])
    partitions, offsets = of([slice_.partitions for slice_ in slices]), of([slice_.offsets for slice_ in slices])
    order = np.lexsort((offsets, partitions, times))
    return Picks(order, slice_of[order], rows[order])


def _about_unjoined(slices: list[Slice], picks: Picks) -> Iterator[pl.DataFrame]:
    for start, end in cuts(_right_bytes(slices, picks)):
        yield rows_about("right", _gathered(slices, picks[start:end]), Outcome.UNJOINED, EXPIRED, late=False)


def _right_bytes(slices: list[Slice], picks: Picks) -> I64:
    """Returns the bytes of the right record of each pair; 0 where there is none."""
    sizes = np.zeros(len(picks.row), np.int64)
    for number, slice_ in enumerate(slices):
        at = np.flatnonzero(picks.slice_of == number)
        if len(at):
            sizes[at] = slice_.record_bytes[picks.row[at]]
    return sizes


def _gathered(slices: list[Slice], picks: Picks) -> pl.DataFrame:
    """Returns the picked right records, one row per pair, nulls where there is none."""
    numbers = np.unique(picks.slice_of)
    used = numbers[numbers != NONE].tolist()
    if not used:
        return frame_of({name: constant(None, dtype, len(picks.row)) for name, dtype in RECORD.items()})
    if len(used) == 1:
        return rows_at(slices[used[0]].frame, positions(picks.row, picks.slice_of == NONE))
    parts, position, filled = [], np.full(len(picks.row), NONE, dtype=np.int64), 0
    for number in used:
        at = np.flatnonzero(picks.slice_of == number)
        parts.append(rows_at(slices[number].frame, picks.row[at]))
        position[at] = np.arange(filled, filled + len(at))
        filled += len(at)
    return rows_at(pl.concat(parts, rechunk=True), positions(position, position == NONE))
