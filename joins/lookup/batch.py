"""Candidates from a store: left is looked up in chunks, and what is found becomes a slice. Pure except for the look-up.

`joins.window.bolt.BatchJoin` then joins it like a slice of the window. A left record may have lost its
right record in two ways: its window starts before what the store still keeps, or a newer record of the same key may
have replaced it. Such left records are identified *after* the answers came, so nothing can have expired in between.
Rows leave in left's order.

A late left record matches whatever is stored. But if unjoined right records are reported
(`joins.lookup.unjoined.expired`), it matches nothing below the expiry before its batch, as in the in-memory join, so
that no verdict becomes wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from joins.batch.rules import earliest_right, kept_from, latest_right
from joins.errors import DataLoss
from joins.read.parse import ParsedBatch
from joins.spec import JoinSpec
from joins.window.bolt import Offer, Provider
from joins.window.slices import Slice
from joins.window.window import GONE, IS_DELETED, Window
from teacup.base.stage_times import StageTimes
from teacup.base.times import iso

RECORDS_AT_ONCE = 40_000
BYTES_AT_ONCE = 32 << 20
AHEAD = 1
"""Look-ups in flight while rows are written."""


WANTED = pl.DataFrame(schema={"key": pl.Binary, "time": pl.Int64})
"""Unique keys without null, each with a time: right as it was then is wanted."""


@dataclass(frozen=True, slots=True)
class StoredRight:
    """What the store holds for the requested keys.

    right         the live records (`frames.RECORD`); some below `retained_from_ms` may be gone
    latest_only   the store keeps only the newest record of each key
    deleted, unknown   versions: keys and times (`WANTED`) with the key deleted, and those for which it is not known
    """

    right: pl.DataFrame
    retained_from_ms: int
    latest_only: bool = False
    deleted: pl.DataFrame = field(default_factory=WANTED.clear)
    unknown: pl.DataFrame = field(default_factory=WANTED.clear)


LookUp = Callable[[pl.DataFrame], StoredRight]
"""(`wanted`) -> what is stored of it."""

StartLookUp = Callable[[Callable[[], StoredRight]], Callable[[], StoredRight]]
"""Starts a look-up; the returned function waits for the result."""


def at_once(look_up: Callable[[], StoredRight]) -> Callable[[], StoredRight]:
    """Looks up synchronously."""
    stored = look_up()
    return lambda: stored


class StoreProvider(Provider):
    """Candidates are looked up, many left records at once; the next look-up is in flight while rows are written.

    begin   starts a look-up
    """

    def __init__(
        self, spec: JoinSpec, look_up: LookUp, begin: StartLookUp = at_once, times: StageTimes | None = None
    ) -> None:
        super().__init__(Window(spec.right))
        self._spec, self._look_up, self._start, self._times = spec, look_up, begin, times or StageTimes()
        self.held_by = f"{spec.right.store.delay.consumer} in {spec.right.topic}"
        self._waiting: list[ParsedBatch] = []
        self._under_way: deque[tuple[pl.DataFrame, pl.Series, Callable[[], StoredRight]]] = deque()

    def ask(self, taken: ParsedBatch) -> Iterator[Offer]:
        """Begins a look-up once enough records wait for it; offers what the previous one found."""
        self._waiting.append(taken)
        records = sum(len(parsed.records) for parsed in self._waiting)
        size = sum(parsed.records.estimated_size() for parsed in self._waiting)
        if records >= RECORDS_AT_ONCE or size >= BYTES_AT_ONCE:
            self._begin()
            if len(self._under_way) > AHEAD:
                yield self._next_offer()

    def rest(self) -> Iterator[Offer]:
        """Offers the others."""
        if self._waiting:
            self._begin()
        while self._under_way:
            yield self._next_offer()

    def _begin(self) -> None:
        records = pl.concat([parsed.records for parsed in self._waiting], rechunk=True)
        late, asked = pl.concat([parsed.late for parsed in self._waiting]), wanted(self._spec, records)
        self._under_way.append((records, late, self._start(lambda: self._look_up(asked))))
        self._waiting = []

    def _next_offer(self) -> Offer:
        records, late, wait = self._under_way.popleft()
        with self._times.within("look_up"):
            stored = wait()
        return offer(self._spec, records, late, stored)


def wanted(spec: JoinSpec, left: pl.DataFrame) -> pl.DataFrame:
    """Returns what to look up for left records, without null keys: keys, or `WANTED` if right has versions."""
    if not spec.right.of_versions:
        return left["key"].drop_nulls().unique(maintain_order=True).to_frame()
    return _pairs(spec, left).drop_nulls("key").unique(maintain_order=True)


def _pairs(spec: JoinSpec, left: pl.DataFrame) -> pl.DataFrame:
    return left.select("key", time=latest_right(spec.right, left["time"]))


def offer(spec: JoinSpec, left: pl.DataFrame, late: pl.Series, stored: StoredRight) -> Offer:
    """Makes a slice of what is stored for left records. Raises `DataLoss` if right ones may be gone."""
    expired = pl.Series(kept_from(spec.right, left["time"]) < stored.retained_from_ms) & left["key"].is_not_null()
    replaced, beyond = _replaced(spec, left, stored), _among(spec, left, stored.unknown)
    gone = expired | replaced | beyond
    if gone.any() and spec.right.store.on_expired == "stop":
        if expired.any():
            raise DataLoss(_too_late(spec, left.filter(expired), stored.retained_from_ms))
        raise DataLoss(
            _only_latest(spec, left.filter(replaced)) if replaced.any() else _beyond_bound(spec, left.filter(beyond))
        )
    barred = np.where(gone, GONE, np.where(_among(spec, left, stored.deleted), IS_DELETED, 0))
    first: Any = left["time"].min()
    last: Any = left["time"].max()
    window, right = Window(spec.right), stored.right
    reach = right.filter(right["time"].is_between(earliest_right(spec.right, first), latest_right(spec.right, last)))
    if len(reach):
        window.add(Slice.build(reach, {}))
    return Offer(left, late, window, barred if barred.any() else None)


def _among(spec: JoinSpec, left: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Returns for each left record whether its key and time are among these (`WANTED`)."""
    if pairs.is_empty():
        return pl.repeat(False, len(left), dtype=pl.Boolean, eager=True)
    beside = _pairs(spec, left).join(
        pairs.with_columns(there=True), on=["key", "time"], how="left", maintain_order="left"
    )
    return beside["there"].fill_null(False)


def _replaced(spec: JoinSpec, left: pl.DataFrame, stored: StoredRight) -> pl.Series:
    """Returns for each left record whether a newer right record may have replaced one that it would match."""
    if not stored.latest_only:
        return pl.repeat(False, len(left), dtype=pl.Boolean, eager=True)
    newest = stored.right.group_by("key").agg(newest=pl.col("time").max())
    beside = left.select("key", "time").join(newest, on="key", how="left", maintain_order="left")
    return (beside["newest"] > latest_right(spec.right, beside["time"])).fill_null(False)


def _first_of(spec: JoinSpec, left: pl.DataFrame) -> str:
    partition, offset = left["partition"][0], left["offset"][0]
    return f"{len(left)} left records, the first at {spec.left.topic}-{partition} offset {offset}"


def _too_late(spec: JoinSpec, left: pl.DataFrame, retained_from_ms: int) -> str:
    first: Any = left["time"].min()
    namespace = spec.right.store.storage.namespace
    return (
        f"{_first_of(spec, left)}, look for right records "
        f"from {iso(kept_from(spec.right, first))} on, but namespace {namespace!r} keeps them only from "
        f"{iso(retained_from_ms)} on: their right records may be gone. Feed a namespace of another name with a longer "
        "`retention` from as far back, and start a new checkpoint; or start later (`start: TIME`); or have "
        "them written unmatched (`on_expired: unmatched`, reason no_longer_stored)"
    )


def _beyond_bound(spec: JoinSpec, left: pl.DataFrame) -> str:
    namespace = spec.right.store.storage.namespace
    return (
        f"{_first_of(spec, left)}, look for versions that "
        f"namespace {namespace!r} had to drop: their keys have more than its `bound`. Raise it, feed a namespace of "
        "another name, and start a new checkpoint; or have them written unmatched (`on_expired: unmatched`, reason "
        "no_longer_stored)"
    )


def _only_latest(spec: JoinSpec, left: pl.DataFrame) -> str:
    namespace = spec.right.store.storage.namespace
    return (
        f"{_first_of(spec, left)}, have keys of which "
        f"namespace {namespace!r} holds a right record later than they may match: it keeps the latest "
        "only (`keep: latest`), and the one that they look for may have been replaced. Feed a namespace with `keep: "
        "all`; or have them written unmatched (`on_expired: unmatched`, reason no_longer_stored)"
    )
