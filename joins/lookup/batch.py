"""Looks up and matches one batch of one bucket of left. Pure except for its reader and look-up.

The records found become a slice, so the policies of the in-memory join apply to them. A left record may have lost its
right record in two ways: its window starts before what the store still keeps, or a newer record of the same key may
have replaced it. Such left records are identified *after* the answers came, so nothing can have expired in between.
Rows leave in left's order.

A late left record matches whatever is stored. But if unjoined right records are reported
(`joins.lookup.unjoined.expired`), it matches nothing below the expiry before its batch, as in the in-memory join, so
that no verdict becomes wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from joins.batch.facts import BucketFacts
from joins.batch.rules import earliest_right, latest_right
from joins.batch.ticket import Ticket
from joins.errors import DataLoss
from joins.read.batch_reader import BatchReader, GiveBack, from_log
from joins.read.parse import ParsedBatch
from joins.read.summary import BucketSummary, Newest
from joins.rows.frames import side_columns
from joins.spec import JoinSpec
from joins.window.slices import Slice
from joins.window.window import Window
from teacup.base.stage_times import Clock, StageTimes, no_clock
from teacup.base.times import EARLIEST_MS, iso
from teacup.kafka.headers import NO_LONGER_STORED

RECORDS_AT_ONCE = 40_000
BYTES_AT_ONCE = 32 << 20
AHEAD = 1
"""Look-ups in flight while rows are written."""

ReadLeft = Callable[[int, int, int], Generator[pa.RecordBatch, None, None]]
"""(partition, start, end) -> the readable records of the range, in the schema of `teacup.kafka.read.fetch`."""


@dataclass(frozen=True, slots=True)
class StoredRight:
    """What the store holds for the requested keys.

    right         the live records (`frames.RECORD`); some below `retained_from_ms` may be gone
    latest_only   the store keeps only the newest record of each key
    """

    right: pl.DataFrame
    retained_from_ms: int
    latest_only: bool = False


LookUp = Callable[[pl.Series], StoredRight]
"""(unique keys, without null) -> what is stored for them."""

StartLookUp = Callable[[Callable[[], StoredRight]], Callable[[], StoredRight]]
"""Starts a look-up; the returned function waits for the result."""


def at_once(look_up: Callable[[], StoredRight]) -> Callable[[], StoredRight]:
    """Looks up synchronously."""
    stored = look_up()
    return lambda: stored


@dataclass(slots=True)
class LookupBatch:
    """Carries out one bucket's part of a batch plan.

    begin   starts a look-up; the next one is in flight while rows are written
    clock   measures how long each stage takes
    """

    spec: JoinSpec
    ticket: Ticket
    read: ReadLeft
    look_up: LookUp
    newest: Newest = field(default_factory=dict)
    begin: StartLookUp = at_once
    give_back: GiveBack | None = None
    clock: Clock = no_clock
    summary: BucketSummary = field(init=False)
    facts: BucketFacts = field(init=False)
    _times: StageTimes = field(init=False)

    def __post_init__(self) -> None:
        self._times = StageTimes(self.clock)
        self.summary = BucketSummary.of(self.ticket)
        self.summary.held_by = f"{self.spec.right.store.delay.consumer} in {self.spec.right.topic}"

    def rows(self) -> Iterator[pl.DataFrame]:
        """Yields the rows to write (`frames.ROW`). Left records keep the order of their partition."""
        yield from self._times.over("match", self._rows())
        self.summary.seconds = self._times.seconds

    def _rows(self) -> Iterator[pl.DataFrame]:
        def fetch(side: str, p: int, start: int, end: int) -> Generator[pa.RecordBatch, None, None]:
            return self._times.over("fetch", self.read(p, start, end))

        read = from_log(self.spec, self.ticket, fetch, self.give_back)
        reader = BatchReader(self.spec, self.ticket, read)
        stalled_from_ms = reader.limit.stalled_from_ms
        under_way: deque[_Part] = deque()
        for taken in self._parts(reader):
            if isinstance(taken, pl.DataFrame):
                yield from self._counted(taken)
                continue
            under_way.append(self._begun(taken))
            if len(under_way) > AHEAD:
                yield from self._matched(under_way.popleft(), stalled_from_ms)
        while under_way:
            yield from self._matched(under_way.popleft(), stalled_from_ms)
        self.facts = reader.facts(None)
        self.summary.note(self.facts)
        self.summary.watermark_ms["right"] = reader.watermark_ms

    def _parts(self, reader: BatchReader) -> Iterator[list[ParsedBatch] | pl.DataFrame]:
        """Yields lists of left records to look up together, and rows of dead letters in between."""
        waiting: list[ParsedBatch] = []
        for p, taken in reader.take_left():
            self.summary.saw(taken, p, self.newest, self.ticket.bucket.left[p].watermark_ms, self.spec.left.disorder_ms)
            if len(taken.dead):
                yield taken.dead
            if len(taken.records):
                waiting.append(taken)
            records = sum(len(parsed.records) for parsed in waiting)
            size = sum(parsed.records.estimated_size() for parsed in waiting)
            if records >= RECORDS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield waiting
                waiting = []
        if waiting:
            yield waiting

    def _counted(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        if len(rows):
            self.summary.count(rows)
            yield rows

    def _begun(self, taken: list[ParsedBatch]) -> _Part:
        records = pl.concat([parsed.records for parsed in taken], rechunk=True)
        late, keys = pl.concat([parsed.late for parsed in taken]), unique_keys(records)
        return _Part(records, late, self.begin(lambda: self.look_up(keys)))

    def _matched(self, part: _Part, stalled_from_ms: int | None) -> Iterator[pl.DataFrame]:
        with self._times.within("look_up"):
            stored = part.stored()
        expiry_ms = self.ticket.bucket.expiry_ms if self.spec.right.source.right_is_judged else EARLIEST_MS
        for rows in match(self.spec, part.records, part.late, stored, stalled_from_ms, expiry_ms):
            yield from self._counted(rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """Left records and a function that waits for their look-up."""

    records: pl.DataFrame
    late: pl.Series
    stored: Callable[[], StoredRight]


def unique_keys(left: pl.DataFrame) -> pl.Series:
    """Returns the keys to look up: unique, without null."""
    return left["key"].drop_nulls().unique(maintain_order=True)


def match(
    spec: JoinSpec,
    left: pl.DataFrame,
    late: pl.Series,
    stored: StoredRight,
    stalled_from_ms: int | None,
    expiry_ms: int = EARLIEST_MS,
) -> Iterator[pl.DataFrame]:
    """Yields rows (`frames.ROW`) for each left record, in left's order. Raises `DataLoss` if right ones may be gone.

    expiry_ms   right records below it can no longer match
    """
    expired = pl.Series(earliest_right(spec.right, left["time"]) < stored.retained_from_ms) & left["key"].is_not_null()
    replaced = _replaced(spec, left, stored)
    gone = expired | replaced
    if not gone.any():
        yield from _join(spec, left, late, stored.right, stalled_from_ms, expiry_ms)
        return
    if spec.right.store.on_expired == "stop":
        if not expired.any():
            raise DataLoss(_only_latest(spec, left.filter(replaced)))
        raise DataLoss(_too_late(spec, left.filter(expired), stored.retained_from_ms))
    # Without keys these records match nothing but keep their order; the keys are restored afterwards.
    keyless = left.with_columns(key=pl.when(gone).then(None).otherwise(left["key"]))
    for rows in _join(spec, keyless, late, stored.right, stalled_from_ms, expiry_ms):
        row = np.searchsorted(left["offset"].to_numpy(), rows["left_offset"].to_numpy())
        yield rows.with_columns(
            key=left["key"].gather(row),
            left_key=left[side_columns(left)["key"]].gather(row),
            reason=pl.when(gone.gather(row)).then(pl.lit(NO_LONGER_STORED)).otherwise(rows["reason"]),
        )


def _replaced(spec: JoinSpec, left: pl.DataFrame, stored: StoredRight) -> pl.Series:
    """Returns for each left record whether a right record too new for it may have replaced one that it would match."""
    if not stored.latest_only:
        return pl.repeat(False, len(left), dtype=pl.Boolean, eager=True)
    newest = stored.right.group_by("key").agg(newest=pl.col("time").max())
    beside = left.select("key", "time").join(newest, on="key", how="left", maintain_order="left")
    return (beside["newest"] > latest_right(spec.right, beside["time"])).fill_null(False)


def _join(
    spec: JoinSpec,
    left: pl.DataFrame,
    late: pl.Series,
    right: pl.DataFrame,
    stalled_from_ms: int | None,
    expiry_ms: int,
) -> Iterator[pl.DataFrame]:
    window = Window(spec.right)
    first: Any = left["time"].min()
    last: Any = left["time"].max()
    reach = right.filter(right["time"].is_between(earliest_right(spec.right, first), latest_right(spec.right, last)))
    if len(reach):
        window.add(Slice.build(reach, {}))
    yield from window.join(left, late, expiry_ms=expiry_ms, stalled_from_ms=stalled_from_ms)


def _too_late(spec: JoinSpec, left: pl.DataFrame, retained_from_ms: int) -> str:
    first: Any = left["time"].min()
    partition, offset = left["partition"][0], left["offset"][0]
    namespace = spec.right.store.storage.namespace
    return (
        f"{len(left)} left records, the first at {spec.left.topic}-{partition} offset {offset}, look for right records "
        f"from {iso(earliest_right(spec.right, first))} on, but namespace {namespace!r} keeps them only from "
        f"{iso(retained_from_ms)} on: their right records may be gone. Feed a namespace of another name with a longer "
        "`retention` from as far back, and start a new checkpoint; or start later (`start: TIME`); or have "
        "them written unmatched (`on_expired: unmatched`, reason no_longer_stored)"
    )


def _only_latest(spec: JoinSpec, left: pl.DataFrame) -> str:
    partition, offset = left["partition"][0], left["offset"][0]
    namespace = spec.right.store.storage.namespace
    return (
        f"{len(left)} left records, the first at {spec.left.topic}-{partition} offset {offset}, have keys of which "
        f"namespace {namespace!r} holds a right record later than they may match: it keeps the latest "
        "only (`keep: latest`), and the one that they look for may have been replaced. Feed a namespace with `keep: "
        "all`; or have them written unmatched (`on_expired: unmatched`, reason no_longer_stored)"
    )
