"""The records of both topics, read as the join reads them: one by its position, or those of a key around a time.

How much is read is limited (`Budget`): in each partition the offsets of a time are looked up, and the nearest ones are
read first. The answer says what was not read. Consumers have no group and commit nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from datadelay.watermark import UNKNOWN
from deploy.inspection.explain.model import BatchRead
from deploy.inspection.explain.plans import Plans
from joins.explain import BatchSpan, SideRecord, alike
from joins.read.deserialize import SideReader
from joins.read.parse import as_first_read, parse
from joins.read.side_log import side_log
from joins.rows.frames import I64
from joins.spec import Format, Side
from joins.streaming import join_kind_of
from teacup.base.now import wall_ms
from teacup.kafka.client import committed_only
from teacup.kafka.errors import TopicMissing
from teacup.kafka.log.topic_log import Ends, TimeQuery

CHUNK = 50_000
BESIDE = 1_000
"""How many offsets on either side of a time's offsets are read as well, as some records are out of order."""
SHOWN = 60

Say = Callable[[str], None]
"""Takes a line about progress."""

Span = tuple[int, int]
"""Offsets [start, end)."""


@dataclass
class Budget:
    """How many records one question may still read, and how many it has read.

    most   for each search
    """

    most: int
    say: Say
    read: int = 0

    def spent(self, records: int, what: str) -> None:
        """Counts records that were read, and reports progress if it takes a while."""
        before, self.read = self.read, self.read + records
        if before // 1_000_000 != self.read // 1_000_000:
            self.say(f"{self.read:,} records read, now of {what}")


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search has found, and what it has not looked at.

    records   as the join parses them
    offsets   how many were read
    unread    how many that may matter were not read
    """

    records: tuple[SideRecord, ...] = ()
    offsets: int = 0
    unread: int = 0


class NoRecord(Exception):
    """There is no record at a position; the message says why. Handled within `deploy.inspection.explain`."""


class Input:
    """One topic of a join."""

    def __init__(self, name: str, plans: Plans, budget: Budget) -> None:
        spec = plans.spec
        self.name, self.side, self._spec, self._plans, self._budget = name, spec.side(name), spec, plans, budget
        self.log = side_log(spec, self.side)
        self._reader = SideReader(self.side, committed_only(spec.kafka), spec.registry)
        self.now_ms = wall_ms()
        self.ends: Mapping[int, Ends] = self._listed()

    def _listed(self) -> Mapping[int, Ends]:
        """Lists the ends; a lookup join can do without the topic that was fed."""
        try:
            return self.log.ends()
        except TopicMissing:
            if self.name in join_kind_of(self._spec).inputs:
                raise
            return {}

    def close(self) -> None:
        """Closes the clients."""
        self.log.close()

    def at(self, partition: int, offset: int) -> SideRecord:
        """Returns the record at a position. Raises `NoRecord`."""
        where = f"{self.side.topic}-{partition}"
        ends = self.ends.get(partition)
        if ends is None:
            raise NoRecord(f"there is no such partition: {self.side.topic} has {len(self.ends)}")
        if offset < ends.start:
            raise NoRecord(f"retention has deleted it: {where} begins at offset {ends.start} now")
        if offset >= ends.high:
            raise NoRecord(f"it is not written yet: {where} ends at offset {ends.high}")
        if offset >= ends.stable:
            raise NoRecord(f"it is hidden by an open transaction, which holds {where} at offset {ends.stable}")
        for batch in self._reader.read(partition, offset, offset + 1):
            return self._parsed(batch.slice(0, 1), partition)
        raise NoRecord(
            f"no record: offset {offset} of {where} is a transaction's marker, or aborted, or compacted away"
        )

    def proving(self, partition: int, start: int, end: int, listed_ms: int) -> list[I64]:
        """Returns the times in [start, end) that prove something, for a batch planned then. Raises `KafkaIOError`."""
        proving: list[I64] = []
        with closing(self._reader.read(partition, start, end)) as batches:
            for batch in batches:
                self._budget.spent(batch.num_rows, self.side.topic)
                proving.append(self._parse(batch, listed_ms, UNKNOWN).proving_ms)
        return proving

    def around(
        self, key: bytes, zones: Sequence[tuple[int, int]], center_ms: int, partitions: Iterable[int]
    ) -> Searched:
        """Finds the records of a key, and of similar keys, in times [from, to]; the first zone is read first.

        Within a zone, what is nearest to the center is read first.
        """
        wanted: list[tuple[int, int, int, Span]] = []
        at = {p: self.ends[p] for p in partitions}
        middle = self._offsets_of(center_ms, at)
        done: dict[int, list[Span]] = {p: [] for p in at}
        for rank, (from_ms, to_ms) in enumerate(zones):
            starts = self._offsets_of(from_ms, at)
            stops = self._offsets_of(to_ms + self.side.disorder_ms + 1, at, margin_ms=0)
            for p, ends in at.items():
                around = (max(starts[p] - BESIDE, ends.start), min(stops[p] + BESIDE, ends.stable))
                for span in _without(around, done[p]):
                    wanted += [(rank, abs(low - middle[p]), p, (low, high)) for low, high in _chunks(span)]
                    done[p].append(span)
        return self._read(sorted(wanted), lambda keys: alike(keys, key))

    def newest_of(self, key: bytes, count: int, until_ms: int | None, partitions: Sequence[int]) -> Searched:
        """Finds the newest records of exactly this key, from the end back: at least `count` if there are that many."""
        at = {p: self.ends[p] for p in partitions}
        tops = {p: ends.stable for p, ends in at.items()}
        if until_ms is not None:
            tops = self._offsets_of(until_ms + self.side.disorder_ms + 1, at, margin_ms=0)
        records: list[SideRecord] = []
        offsets = unread = 0
        left = {p: top for p, top in tops.items() if top > at[p].start}
        own = pl.Series([key], dtype=pl.Binary)
        while left and len(records) < count and offsets < self._budget.most:
            spans = {p: (max(top - CHUNK, at[p].start), top) for p, top in left.items()}
            part = self._read([(0, 0, p, span) for p, span in spans.items()], lambda keys: _in(keys, own))
            records += (r for r in part.records if until_ms is None or r.time_ms is None or r.time_ms <= until_ms)
            offsets, unread = offsets + part.offsets, unread + part.unread
            left = {p: low for p, (low, _) in spans.items() if low > at[p].start}
        records.sort(key=lambda r: (-(r.time_ms if r.time_ms is not None else -1), r.partition, -r.offset))
        return Searched(tuple(records), offsets, unread + sum(top - at[p].start for p, top in left.items()))

    def _read(self, spans: Sequence[tuple[int, int, int, Span]], mine: Callable[[pl.Series], Any]) -> Searched:
        """Reads these spans of partitions in order, as far as the budget goes."""
        taken: dict[int, list[Span]] = {}
        room, unread, offsets = self._budget.most, 0, 0
        for _, _, p, (low, high) in spans:
            if room <= 0:
                unread += high - low
            else:
                taken.setdefault(p, []).append((low, high))
                room, offsets = room - (high - low), offsets + high - low
        records = [
            record
            for p, some in sorted(taken.items())
            for low, high in _merged(some)
            for record in self._span(p, low, high, mine)
        ]
        return Searched(tuple(records), offsets, unread)

    def _span(self, partition: int, start: int, end: int, mine: Callable[[pl.Series], Any]) -> Iterator[SideRecord]:
        with closing(self._reader.read(partition, start, end)) as batches:
            for batch in batches:
                self._budget.spent(batch.num_rows, self.side.topic)
                parsed = self._parse(batch, self.now_ms, UNKNOWN)
                offsets = [parsed.records["offset"].to_numpy()[mine(parsed.records["key"])]]
                if len(parsed.dead):
                    offsets.append(parsed.dead[f"{self.name}_offset"].to_numpy()[mine(parsed.dead["key"])])
                rows = np.searchsorted(batch.column("offset").to_numpy(), np.sort(np.concatenate(offsets)))
                for row in rows.tolist():
                    yield self._parsed(batch.slice(row, 1), partition)

    def _parse(self, batch: pa.RecordBatch, listed_ms: int, watermark_ms: int) -> Any:
        return parse(self.name, self.side, batch, listed_ms, self._spec.max_future_skew_ms, watermark_ms)

    def _parsed(self, batch: pa.RecordBatch, partition: int) -> SideRecord:
        """Parses one record as the batch that read it did: by its clock, and by the schemas known then."""
        offset = batch.column("offset")[0].as_py()
        read = self.read(partition, offset)
        span = read.range_of(self.name, partition)
        schemas = None if read.after is None else read.after.side(self.name)[partition].schemas
        if schemas:
            batch = as_first_read(batch, dict(schemas), f"{self.side.topic}-{partition}")
        done = read.plan is not None and not read.batches.unread
        listed_ms = read.plan.listed_ms if done and read.plan is not None else self.now_ms
        parsed = self._parse(batch, listed_ms, UNKNOWN)
        row: dict[str, Any]
        (row,) = (parsed.dead if len(parsed.dead) else parsed.records).to_dicts()
        is_dead = bool(len(parsed.dead))
        return SideRecord(
            partition=partition,
            offset=offset,
            time_ms=row[f"{self.name}_time" if is_dead else "time"],
            key=row["key"],
            dead=row["reason"] if is_dead else None,
            read=read.batches,
            watermark_ms=span.watermark_ms if done and span is not None and span.watermark_ms > UNKNOWN else None,
            value=_shown(self.side, batch.column("value")[0].as_py()),
        )

    def read(self, partition: int, offset: int) -> BatchRead:
        """Returns the batch that read the record at a position; a lookup join does not read right."""
        if self.name not in join_kind_of(self._spec).inputs:
            return BatchRead(BatchSpan())
        return self._plans.read(self.name, partition, offset)

    def _offsets_of(self, time_ms: int, at: Mapping[int, Ends], margin_ms: int | None = None) -> dict[int, int]:
        """Returns where a time begins in each partition: no timely record before that offset has reached it."""
        margin = self.side.disorder_ms if margin_ms is None else margin_ms
        queries = {p: TimeQuery(max(time_ms, 0), ends.start, ends.stable, margin) for p, ends in at.items()}
        if not queries:
            return {}
        starts = self.log.first_at_or_after(queries, self.now_ms + self._spec.max_future_skew_ms, sure=True)
        return {p: answer.offset for p, answer in starts.items()}


def _in(keys: pl.Series, some: pl.Series) -> Any:
    return keys.is_in(some.implode()).fill_null(value=False).to_numpy()


def _chunks(span: Span) -> Iterator[Span]:
    start, end = span
    for low in range(start, end, CHUNK):
        yield low, min(low + CHUNK, end)


def _without(span: Span, done: Iterable[Span]) -> list[Span]:
    """Returns the parts of a span that are not done yet."""
    parts = [span]
    for low, high in done:
        parts = [
            cut for start, end in parts for cut in ((start, min(end, low)), (max(start, high), end)) if cut[0] < cut[1]
        ]
    return [part for part in parts if part[0] < part[1]]


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Merges adjacent spans, as a seek takes as long as reading thousands of records."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and merged[-1][1] == low:
            merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


def _shown(side: Side, value: bytes | None) -> str | None:
    """Returns the beginning of a value, for people; None if there is none, or none that can be shown."""
    if value is None:
        return None
    if side.format is Format.BYTES:
        return f"{len(value)} bytes"
    try:
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in value.decode())
    except UnicodeDecodeError:  # a dead letter, or Avro or Protobuf that does not fit its schema
        return f"{len(value)} bytes"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
