"""The ids of a window of record times: what a row knows, what is kept, and what wrong times can do."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.restart.seen_ids import Hashes
from dedup.topic.read_back import NO_TIME, SeenWindow, with_valid_times

WINDOW_MS = 1_000
RECORD = st.tuples(st.integers(0, 8), st.integers(0, 300))


def hashes(ids):
    return Hashes(*(np.array([zlib.crc32(f"{half}{number}".encode()) for number in ids], np.uint64) for half in "ab"))


def add(window, ids, times):
    return window.add(hashes(ids), np.array(times, np.int64))


def knows(window, record_id, at_ms):
    return bool(window.contains(hashes([record_id]), np.array([at_ms], np.int64))[0])


@given(st.lists(st.lists(RECORD, min_size=1, max_size=60), max_size=8), st.integers(0, 40))
def test_an_id_is_known_for_the_window_and_at_most_a_quarter_longer(steps, ahead):
    """Any order of times within a few hundred milliseconds, any cut into pieces; sixteen may lie in a block."""
    window, seen, now_ms = SeenWindow(WINDOW_MS, 1_000_000), [], 5_000
    for piece in steps:
        times = [now_ms + ahead for _, ahead in piece]
        add(window, [number for number, _ in piece], times)
        if ahead:
            add(window, ["ahead"], [now_ms + ahead * WINDOW_MS])
        seen += [(number, at) for (number, _), at in zip(piece, times, strict=True)]
        now_ms += 200
        for number in range(9):
            times_of = [at for seen_number, at in seen if seen_number == number]
            for row_ms in (now_ms, now_ms + 300):
                if any(at >= row_ms - WINDOW_MS for at in times_of):
                    assert knows(window, number, row_ms)
                if all(at < row_ms - WINDOW_MS - WINDOW_MS // 4 for at in times_of):
                    assert not knows(window, number, row_ms)


@pytest.mark.parametrize("block", [[5_000] * 40, [0, *[5_000] * 40, 0]])
def test_what_is_older_than_the_window_is_forgotten(block):
    """Decided by what a block proves, not by single records."""
    window = SeenWindow(WINDOW_MS, 1_000_000)
    add(window, range(100), [1_000] * 100)

    add(window, ["ahead"] * 16, [10**6] * 16)
    kept = len(window)
    add(window, ["new"] * len(block), block)

    assert kept == 116
    assert len(window) == 16 + len(block)


def test_records_without_a_time_and_late_ones_count_as_of_the_clock():
    """They are known as long as those added at the same time."""
    window = SeenWindow(WINDOW_MS, 1_000_000)
    add(window, ["a"] * 40, [50_000] * 40)
    add(window, ["late", "none"], [7, NO_TIME])

    for number in ("late", "none", "a"):
        assert knows(window, number, 50_900)
        assert knows(window, number, NO_TIME)
        assert not knows(window, number, 51_300)


def test_the_oldest_are_forgotten_at_the_limit_and_counted():
    """The newest three quarters of the limit are always known; ids whose time is over are not counted."""
    window = SeenWindow(1_000_000, 100)
    forgotten = 0
    for number in range(1_000):
        forgotten += add(window, [number], [number])
        assert len(window) <= 100
        assert all(knows(window, i, number) for i in range(max(number - 70, 0), number + 1, 10))

    assert forgotten == 1_000 - len(window)


def test_scattered_times_do_not_make_buckets_without_end():
    """Each look-up searches all of them."""
    window = SeenWindow(WINDOW_MS, 1_000_000)

    forgotten = add(window, range(1_000), [number * WINDOW_MS for number in range(1_000)])

    assert len(window._buckets) <= 256
    assert len(window) + forgotten <= 1_000
    assert knows(window, 999, 999 * WINDOW_MS)


def test_times_from_the_future_do_not_count():
    """Nor are negative ones."""
    assert with_valid_times(np.array([-5, 0, 10, 11]), 10).tolist() == [NO_TIME, 0, 10, NO_TIME]
