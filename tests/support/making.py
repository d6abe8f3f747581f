"""Small records, slices, topics and joins for the tests of the window, as small as what matters allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import polars as pl
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins.batch.facts import Bound, Bounds
from joins.rows.frames import RECORD
from joins.spec import JoinSpec, Right, Side
from joins.testing.history import Event, EventKind, History, TopicHistory
from joins.window.slices import Slice
from teacup.base.times import LATEST_MS

Record = tuple[int, int, int, bytes | None]
"""Partition, offset, time, key."""
LONG_AFTER_MS = 2**41


def frame(rows: Iterable[Record]) -> pl.DataFrame:
    """Records in `records.RECORD`; the value names the position."""
    values = [
        {"partition": p, "offset": o, "time": t, "key": k, "value": b"%d-%d" % (p, o), "headers": None}
        for p, o, t, k in rows
    ]
    return pl.DataFrame(values, schema=RECORD)


def slice_of(rows: Sequence[Record]) -> Slice:
    """A slice that covers just these records (partition 0 if there are none)."""
    offset_ranges: dict[int, tuple[int, int]] = {} if rows else {0: (0, 0)}
    for p, o, _, _ in rows:
        first, last = offset_ranges.get(p, (o, o + 1))
        offset_ranges[p] = (min(first, o), max(last, o + 1))
    return Slice.build(frame(rows), offset_ranges)


def positions(slice_: Slice) -> list[tuple[int, int]]:
    """Partition and offset of each record, sorted."""
    return sorted(zip(slice_.partitions.tolist(), slice_.offsets.tolist(), strict=True))


def marked(slice_: Slice) -> list[tuple[int, int]]:
    """Partition and offset of each record that is marked, sorted."""
    return positions_where(slice_, slice_.marks.tolist())


def positions_where(slice_: Slice, flags: list[bool]) -> list[tuple[int, int]]:
    rows = zip(slice_.partitions.tolist(), slice_.offsets.tolist(), flags, strict=True)
    return sorted((p, o) for p, o, flag in rows if flag)


@st.composite
def rows(
    draw: st.DrawFn, *, partitions: int = 2, null_keys: bool = False, max_size: int = 30, max_ms: int = 40
) -> list[Record]:
    """Records with few keys and small times, so that ties are common; offsets ascend by partition, with holes."""
    keys = [b"a", b"b", b"c", b"d"] + ([None] if null_keys else [])
    at = [0] * partitions
    made: list[Record] = []
    for p, step, t, key in draw(
        st.lists(
            st.tuples(st.integers(0, partitions - 1), st.integers(0, 3), st.integers(0, max_ms), st.sampled_from(keys)),
            max_size=max_size,
        )
    ):
        at[p] += step
        made.append((p, at[p], t, key))
        at[p] += 1
    return made


@st.composite
def segments(draw: st.DrawFn) -> tuple[Bounds, list[tuple[int, int, bool]]]:
    """Bounds as batches leave them, and the records they cover: (offset, time, whether it took part).

    Each batch has a ceiling of its own, and ceilings go up: a rejected record has a time above its batch's ceiling.
    """
    offset = draw(st.integers(0, 5))
    made, records, at_ms, ceiling_ms = [Bound(offset)], [], 0, 0
    for step_ms, far_ms, size in draw(
        st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 200), st.integers(1, 5)), max_size=20)
    ):
        at_ms += step_ms
        ceiling_ms = max(ceiling_ms, at_ms + far_ms)
        times = draw(st.lists(st.integers(0, ceiling_ms + 300) | st.just(max(at_ms, 0)), max_size=size))
        inside, beyond = [t for t in times if t <= ceiling_ms], [t for t in times if t > ceiling_ms]
        records += [(offset + i, t, t <= ceiling_ms) for i, t in enumerate(times)]
        offset += size
        below_ms = max(inside) + 1 if inside else UNKNOWN
        made.append(Bound(offset, below_ms, min(beyond, default=LATEST_MS)))
    return tuple(made), records


def bounds() -> st.SearchStrategy[Bounds]:
    """Bounds as they arise: from an unknown start, one per batch."""
    return segments().map(lambda made: made[0])


OF_RIGHT = {"before_ms", "before", "after_ms", "after", "policy", "type", "max_wait_ms", "max_wait", "source"}
OF_STORE = {"storage", "delay", "on_expired", "accepted_generations", "right_is_judged"}


def joined(**values: Any) -> JoinSpec:
    """A join from flat values: those of its right may stand beside `right`, which may be a plain side."""
    of_right, side = _taken(values, OF_RIGHT), values.pop("right")
    return JoinSpec(right=Right(**_known(side), **of_right), **values)


def changed(spec: JoinSpec, **changes: Any) -> JoinSpec:
    """The join with some values changed: its own, or those of its right, or of where that is stored."""
    of_right, side = _taken(changes, OF_RIGHT), changes.pop("right", spec.right)
    if of_store := _taken(changes, OF_STORE):
        of_right["source"] = replace(spec.right.store, **of_store)
    return replace(spec, right=replace(spec.right, **{**_known(side), **of_right}), **changes)


def _taken(values: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: values.pop(name) for name in names & {*values}}


def _known(side: Side) -> dict[str, Any]:
    return {field.name: getattr(side, field.name) for field in fields(side)}


def join_spec(**changes: Any) -> JoinSpec:
    """A join without disorder and delay, `before` 10 and `after` 5 milliseconds; each record proves by itself."""
    plain = JoinSpec(
        name="table",
        left=Side(topic="left", disorder_ms=0),
        right=Right(topic="right", disorder_ms=0, before_ms=10, after_ms=5),
        producer_delay_ms=0,
        max_future_skew_ms=1_000_000,
        outliers=0,
    )
    return changed(plain, **changes)


Row = tuple[int, bytes] | tuple[int, bytes, int]
"""Time and key, and optionally the wall clock time from which it is readable; by default its own time."""


def topic(name: str, *partitions: Sequence[Row]) -> TopicHistory:
    """A topic whose records are appended at their time (or later, because the log only grows)."""
    made = []
    for p, records in enumerate(partitions):
        appended = readable = 0
        events = []
        for offset, (time_ms, key, *later) in enumerate(records):
            appended = max(appended, time_ms)
            readable = max(readable, appended, *later)
            events.append(
                Event(
                    partition=p,
                    offset=offset,
                    time_ms=time_ms,
                    key=key,
                    value=b"%d" % time_ms,
                    appended_ms=appended,
                    readable_ms=readable,
                )
            )
        made.append(tuple(events))
    return TopicHistory(name, tuple(made))


def past(lefts: Iterable[Record], rights: Iterable[Record]) -> History:
    """Records at these positions, for the oracle: all are readable and none is from the future; the rest are gaps."""
    return History(_past("left", lefts), _past("right", rights), start_ms=LONG_AFTER_MS)


def _past(name: str, records: Iterable[Record]) -> TopicHistory:
    partitions: dict[int, dict[int, Event]] = {}
    for p, offset, time_ms, key in records:
        partitions.setdefault(p, {})[offset] = _readable(p, offset, time_ms, key)
    return TopicHistory(
        name,
        tuple(
            tuple(
                events.get(offset) or _readable(p, offset, 0, None, EventKind.GAP)
                for offset in range(max(events, default=-1) + 1)
            )
            for p in range(max(partitions, default=-1) + 1)
            for events in [partitions.get(p, {})]
        ),
    )


def _readable(p: int, offset: int, time_ms: int, key: bytes | None, kind: EventKind = EventKind.DATA) -> Event:
    return Event(
        partition=p,
        offset=offset,
        time_ms=time_ms,
        key=key,
        value=None,
        appended_ms=LONG_AFTER_MS,
        readable_ms=LONG_AFTER_MS,
        kind=kind,
    )


def a_slice(start: int, end: int, *, partition: int = 0) -> Slice:
    """One record per offset, three keys."""
    records = frame([(partition, o, o * 10, b"k%d" % (o % 3)) for o in range(start, end)])
    return Slice.build(records, {partition: (start, end)})


def a_slice_of(partitions: int) -> Slice:
    """The first four offsets of each."""
    records = frame([(p, o, o * 10, b"k%d" % (o % 3)) for p in range(partitions) for o in range(4)])
    return Slice.build(records, dict.fromkeys(range(partitions), (0, 4)))


def covered(found: list[Slice], partition: int = 0) -> list[tuple[int, int]]:
    """What slices cover of a partition, in order."""
    return sorted(slice_.offset_ranges[partition] for slice_ in found)
