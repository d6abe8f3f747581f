"""The window of a bucket: rows of left records, marks, expiry, tiers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.rows.frames import ROW
from joins.spec import Policy
from joins.window.window import TIER, JoinedRight, Window
from teacup.base.times import EARLIEST_MS
from tests.support.making import frame, join_spec, marked, rows, slice_of


def window_of(*parts, **changes):
    window = Window(join_spec(**changes).right)
    for part in parts:
        window.add(slice_of(part))
    return window


def live(window, slice_):
    return [position for position, time in zip(*in_order(slice_), strict=True) if time >= window.expired_ms]


def in_order(slice_):
    return list(zip(slice_.partitions.tolist(), slice_.offsets.tolist(), strict=True)), slice_.times.tolist()


def test_a_row_carries_both_records():
    """Keys, times, values and positions of both sides, in the columns of `ROW`."""
    window = window_of([(2, 7, 98, b"a")])

    (joined,) = window.join(frame([(1, 5, 100, b"a")]), False, expiry_ms=EARLIEST_MS)

    assert joined.schema == ROW
    assert joined.row(0, named=True) == {
        "key": b"a",
        "left_key": b"a",
        "left_time": 100,
        "left_value": b"1-5",
        "left_headers": None,
        "left_partition": 1,
        "left_offset": 5,
        "right_key": b"a",
        "right_time": 98,
        "right_value": b"2-7",
        "right_headers": None,
        "right_partition": 2,
        "right_offset": 7,
        "outcome": "matched",
        "reason": None,
        "late": False,
    }


@pytest.mark.parametrize("policy", Policy)
def test_an_unmatched_record_says_why(policy):
    """No key, no candidate, or right stalled; a match has no reason, even above the time at which right stalled."""
    window = window_of([(0, 0, 100, b"a")], policy=policy)
    left = frame([(0, 0, 50, None), (0, 1, 50, b"b"), (0, 2, 99, b"b"), (0, 3, 100, b"b"), (0, 4, 100, b"a")])

    (joined,) = window.join(left, False, expiry_ms=EARLIEST_MS, stalled_from_ms=99)

    assert joined["outcome"].to_list() == ["unmatched"] * 4 + ["matched"]
    assert joined["reason"].to_list() == ["null_key", "no_candidate", "right_stalled", "right_stalled", None]
    assert joined["right_offset"].to_list() == [None] * 4 + [0]


@given(rows(), rows(partitions=1, null_keys=True), st.sampled_from(Policy), st.data())
def test_marks_and_joined_are_the_records_in_the_rows(right, left, policy, data):
    """A mark for each right record that appears in a row and for no other; late flags stay with their record."""
    parts = [right[i::3] for i in range(3)]
    window = window_of(*parts, policy=policy)
    late = data.draw(st.lists(st.booleans(), min_size=len(left), max_size=len(left)))
    joined = JoinedRight()
    flags = pl.Series(late, dtype=pl.Boolean)

    found = list(window.join(frame(left), flags, expiry_ms=EARLIEST_MS, joined=joined))

    pairs = {(r, o) for part in found for r, o in zip(part["right_partition"], part["right_offset"], strict=True)}
    pairs.discard((None, None))
    assert sorted(pairs) == sorted(position for slice_ in window.slices for position in marked(slice_))
    since = joined.since(20)
    times = {(p, o): t for p, o, t, _ in right}
    assert {(p, o) for p, offsets in since.items() for o in offsets.tolist()} == {x for x in pairs if times[x] >= 20}
    by_offset = dict(zip([o for _, o, _, _ in left], late, strict=True))
    for part in found:
        assert part["late"].to_list() == [by_offset[o] for o in part["left_offset"]]
    assert [o for part in found for o in part["left_offset"].unique(maintain_order=True)] == [o for _, o, _, _ in left]


@given(rows(max_size=40), st.lists(st.integers(0, 50), max_size=6), st.data())
def test_each_record_without_a_mark_expires_once(right, times, data):
    """In order of time, partition, offset, as soon as the expiry is above it; the window keeps all others."""
    window = window_of(right[:15], right[15:30], right[30:])
    chosen = set()
    for slice_ in window.slices:
        slice_.marks[:] = np.array([data.draw(st.booleans()) for _ in range(len(slice_))], dtype=bool)
        chosen |= set(marked(slice_))

    gone = []
    for expiry_ms in sorted(times):
        expired = pl.concat([pl.DataFrame(schema=ROW), *window.expire(expiry_ms)])
        assert expired.schema == ROW
        keys = list(expired.select("right_time", "right_partition", "right_offset").iter_rows())
        assert keys == sorted(keys)
        assert set(expired["outcome"]) <= {"unjoined"}
        assert set(expired["reason"]) <= {"expired"}
        gone += [(p, o) for _, p, o in keys]
        left_over = sorted(position for slice_ in window.slices for position in live(window, slice_))
        assert len(window) == len(left_over)
        assert left_over == sorted((p, o) for p, o, t, _ in right if t >= expiry_ms)
        assert all(len(slice_) for slice_ in window.slices)
        if len(window) and data.draw(st.booleans()):
            window.compact()

    last = max(times, default=EARLIEST_MS)
    assert sorted(gone) == sorted((p, o) for p, o, t, _ in right if t < last and (p, o) not in chosen)


@given(st.lists(st.integers(1, 12), max_size=40))
def test_tiers_keep_everything_in_few_slices(sizes):
    """Every record and mark stays; the number of slices grows with the logarithm of their records."""
    window, offset, all_marks = Window(join_spec().right), 0, []
    for size in sizes:
        slice_ = slice_of([(0, offset + i, offset + i, b"k%d" % (i % 3)) for i in range(size)])
        slice_.marks[0] = True
        all_marks += marked(slice_)
        offset += size
        window.add(slice_)
        before = len(window)

        window.compact()

        assert len(window) == before == offset
        assert len(window.slices) <= TIER * (1 + np.log(max(offset, 1)) / np.log(TIER))
    for slice_ in window.slices:
        slice_.check()
    starts = [slice_.offset_ranges[0] for slice_ in window.slices]
    assert starts == sorted(starts)
    assert sorted(position for slice_ in window.slices for position in marked(slice_)) == all_marks


def test_no_merge_makes_a_slice_that_is_too_large(monkeypatch):
    """Equal slices, of which four are allowed together, and later two: never more are merged."""
    window = Window(join_spec().right)
    parts = [slice_of([(0, 8 * n + i, 8 * n + i, b"k") for i in range(8)]) for n in range(64)]
    monkeypatch.setattr("joins.window.window.SLICE_BYTES", 4 * parts[0].data_bytes + 64)

    for slice_ in parts:
        window.add(slice_)
        window.compact()

    assert [len(slice_) for slice_ in window.slices] == [32] * 16
    monkeypatch.setattr("joins.window.window.SLICE_BYTES", 2 * parts[0].data_bytes)
    for slice_ in parts:
        window.add(slice_)
        window.compact()
    assert [len(slice_) for slice_ in window.slices] == [32] * 16 + [8] * 64


@given(rows(max_size=40), st.integers(0, 50))
def test_compacting_drops_the_expired_where_they_are_half(right, expiry_ms):
    """What is live stays with its marks; a slice keeps fewer expired records than live ones."""
    window = window_of(right[:20], right[20:])
    for slice_ in window.slices:
        slice_.marks[::2] = True
    window.expire(expiry_ms)
    before = {p for slice_ in window.slices for p in live(window, slice_)}
    marks = {p for slice_ in window.slices for p in marked(slice_)} & before

    window.compact()

    assert {p for slice_ in window.slices for p in live(window, slice_)} == before
    assert {p for slice_ in window.slices for p in marked(slice_)} & before == marks
    assert all(2 * len(live(window, slice_)) > len(slice_) for slice_ in window.slices)
    for slice_ in window.slices:
        slice_.check()


def test_many_small_slices_become_few():
    """However long a join runs: at most three of a size, each size four times the next smaller one."""
    window = Window(join_spec().right)

    for offset in range(200):
        window.add(slice_of([(0, offset, offset, b"a")]))
        window.compact()

    assert len(window) == 200
    assert len(window.slices) <= 3 * 4


def test_an_empty_slice_does_not_enter():
    """A probe never meets one."""
    window = window_of([])

    assert window.slices == []
    assert not list(window.expire(10))
    (joined,) = window.join(frame([(0, 0, 1, b"a")]), False, expiry_ms=EARLIEST_MS)
    assert joined["reason"].to_list() == ["no_candidate"]


def test_joining_again_makes_the_same_marks_and_no_rows():
    """What a worker does whose marks were lost."""
    right = [(0, i, i, b"a") for i in range(20)]
    left = frame([(0, 0, 12, b"a"), (0, 1, 3, b"a")])
    window, again = window_of(right), window_of(right[:7], right[7:])
    list(window.join(left, False, expiry_ms=EARLIEST_MS))

    again.mark_again(left)

    assert [p for slice_ in again.slices for p in marked(slice_)] == marked(window.slices[0]) == [(0, 3), (0, 12)]
