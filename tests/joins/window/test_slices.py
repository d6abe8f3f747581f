"""A slice keeps its order, its marks and what it covers through every operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.window import match, slices
from joins.window.slices import Slice, grouped_order, lower_bound
from tests.support.making import frame, marked, positions, rows, slice_of


def four_hashes(records: pl.DataFrame, *, apart: bool = False) -> slices.U64:
    """Only two bits distinguish keys."""
    return (records["key"].hash(slices.HASH_SEED).to_numpy() >> np.uint64(62)) << np.uint64(62)


@pytest.fixture(params=["64 bits", "2 bits"], scope="module", autouse=True)
def hashes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything here holds with colliding hashes as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "2 bits":
            for module in (slices, match):
                patch.setattr(module, "key_hashes", four_hashes)
        yield


@given(rows(), st.randoms())
def test_a_slice_is_sorted_however_its_records_come(records, chance):
    """By group, time, partition, offset; no record lost."""
    shuffled = list(records)
    chance.shuffle(shuffled)

    slice_, other = slice_of(records), slice_of(shuffled)

    slice_.check()
    assert positions(slice_) == sorted((p, o) for p, o, _, _ in records)
    assert slice_.frame.equals(other.frame)


@given(rows(), st.integers(1, 5), st.data())
def test_merging_keeps_records_marks_and_coverage(records, parts, data):
    """Neighbours become one slice, as if it had been built at once."""
    pieces = [records[i::parts] for i in range(parts)]
    pieces = [slice_of(piece) for piece in pieces if piece]
    for piece in pieces:
        piece.marks[:] = data.draw(st.lists(st.booleans(), min_size=len(piece), max_size=len(piece)))
    marks = sorted(position for piece in pieces for position in marked(piece))

    merged = Slice.merge(pieces) if pieces else slice_of([])

    merged.check()
    assert positions(merged) == sorted((p, o) for p, o, _, _ in records)
    assert marked(merged) == marks
    if pieces:
        assert merged.offset_ranges == slice_of(records).offset_ranges


@given(rows(), st.integers(-1, 45))
def test_since_drops_what_is_older_and_carries_marks(records, time_ms):
    """None if nothing remains; the slice itself if nothing is older."""
    slice_ = slice_of(records)
    slice_.marks[::2] = True

    later = slice_.since(time_ms)

    wanted = sorted((p, o) for p, o, t, _ in records if t >= time_ms)
    assert (later is None) == (not wanted)
    if later is not None:
        later.check()
        assert positions(later) == wanted
        assert marked(later) == [position for position in marked(slice_) if position in set(wanted)]
        assert (later is slice_) == (len(wanted) == len(records))
        assert later.offset_ranges == slice_.offset_ranges


@given(rows(partitions=1), st.integers(0, 60), st.integers(0, 60))
def test_clipping_keeps_a_range_of_offsets(records, start, length):
    """And says so: it never covers more than the slice did."""
    slice_ = slice_of([*records, (0, 80, 5, b"a")])
    first, last = slice_.offset_ranges[0]

    start = min(max(start, first), last)
    clipped = slice_.clipped({0: (start, min(start + length, last))})

    clipped.check()
    assert clipped.offset_ranges == {0: (start, min(start + length, last))}
    assert positions(clipped) == [(p, o) for p, o in positions(slice_) if start <= o < start + length]


@given(rows(), rows())
def test_marks_are_set_by_position(records, others):
    """Positions that the slice does not hold are ignored."""
    slice_ = slice_of(records)
    mine = {(p, o) for p, o, _, _ in records}
    wanted = {(p, o) for p, o, _, _ in others} | set(sorted(mine)[::3])

    for partition in range(3):
        slice_.mark(partition, np.array(sorted(o for p, o in wanted if p == partition), dtype=np.int64))

    assert marked(slice_) == sorted(wanted & mine)


@given(rows().filter(bool), rows())
def test_candidates_hold_every_record_of_the_key(records, others):
    """A group is one range of rows; a hash that no key of the slice has gets no misleading range."""
    slice_ = slice_of(records)
    keys = pl.Series(sorted({k for _, _, _, k in others} | {b"a", b"nowhere"}), dtype=pl.Binary)
    hashes = slices.key_hashes(pl.DataFrame({"key": keys}))

    starts, ends = slice_.candidates(hashes)

    held = slice_.frame["key"].to_list()
    for key, start, end in zip(keys.to_list(), starts.tolist(), ends.tolist(), strict=True):
        assert {i for i, k in enumerate(held) if k == key} <= set(range(start, end))
        times = slice_.times[start:end].tolist()
        assert times == sorted(times)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=70))
def test_the_grouped_order_is_stable_and_keeps_groups_together(values):
    """Also if all hashes are equal except for the ignored bits."""
    hashes = np.array(values, dtype=np.uint64)

    order, ignored = grouped_order(hashes)

    rows = [(value >> ignored, i) for i, value in enumerate(values)]
    assert order.tolist() == [i for _, i in sorted(rows)]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40), st.data())
def test_the_lower_bound_is_bisection_in_each_range(values, data):
    """Empty ranges give their end."""
    values = np.sort(np.array(values, dtype=np.int64))
    ranges = data.draw(st.lists(st.tuples(*[st.integers(0, len(values))] * 2, st.integers(-1, 21)), max_size=10))
    start, end, wanted = (
        (np.array(column, dtype=np.int64) for column in zip(*ranges, strict=True))
        if ranges
        else (np.zeros(0, np.int64) for _ in range(3))
    )
    start, end = np.minimum(start, end), np.maximum(start, end)

    found = lower_bound(values, start, end, wanted)

    expected = [s + int(np.searchsorted(values[s:e], w)) for s, e, w in zip(start, end, wanted, strict=True)]
    assert found.tolist() == expected


def test_a_range_without_live_records_is_a_slice_as_well():
    """It covers its offsets and holds nothing, so they need not be read again."""
    slice_ = Slice.nothing({3: (10, 20)}, since_ms=5)

    slice_.check()
    assert (len(slice_), slice_.offset_ranges) == (0, {3: (10, 20)})
    assert slice_.since(0) is None
    assert slice_.clipped({3: (12, 15)}).offset_ranges == {3: (12, 15)}


def test_the_checker_finds_what_is_out_of_order():
    """The checker is meaningful: swapped rows, hashes of other keys and foreign offsets are detected."""
    good = slice_of([(0, i, i, key) for i, key in enumerate([b"a", b"a", b"b", b"c"])])
    turned = Slice(good.frame[::-1], good.hashes[::-1], good.ignored_bits, good.offset_ranges, good.marks)
    foreign = Slice(good.frame, good.hashes, good.ignored_bits, {0: (0, 2)}, good.marks)
    alien = Slice(
        good.frame.with_columns(frame([(0, 0, 0, b"z")] * 4)["key"]), good.hashes, 3, good.offset_ranges, good.marks
    )

    for broken in (turned, foreign, alien):
        with pytest.raises(AssertionError):
            broken.check()
