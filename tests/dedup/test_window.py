"""The ids of a window of time, kept in generations."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from dedup.hashing import hashes_of
from dedup.window import SeenWindow, proven_ms


def one(number):
    return hashes_of(pl.Series([f"{number}"]))


def test_ids_are_known_for_the_window_and_not_much_longer():
    """A quarter longer at most."""
    window = SeenWindow(1_000, 1_000_000)
    for time_ms in range(0, 5_000, 10):
        window.add(one(time_ms), time_ms)

        assert window.contains(one(max(time_ms - 1_000, 0)))[0]
        assert not window.contains(one(time_ms - 1_270))[0]


def test_the_oldest_are_forgotten_at_the_limit():
    """The newest three quarters of it are always known."""
    window = SeenWindow(1_000_000, 100)
    for number in range(1_000):
        window.add(one(number), number)

        assert len(window) <= 100
        assert all(window.contains(one(i))[0] for i in range(max(number - 70, 0), number + 1, 10))


def test_ids_that_go_before_their_time_are_counted():
    """Those that the limit drives out, and not those whose time is over."""
    window = SeenWindow(1_000, 100)

    in_time = sum(window.add(one(number), 20 * number) for number in range(200))
    within_it = len(window)
    early = sum(window.add(one(number), 4_000) for number in range(200, 400))

    assert in_time == 0
    assert early == within_it + 200 - len(window)


def test_old_records_in_between_do_not_end_a_generation():
    """Or each piece with one old record in it would make a generation, and all of them are looked through."""
    window = SeenWindow(1_000, 1_000_000)

    for number in range(500):
        window.add(one(number), 5_000 - 4_000 * (number % 2))

    assert len(window._generations) == 1
    assert all(window.contains(one(number))[0] for number in range(500))


def test_records_without_a_time_count_as_the_newest():
    """They are known for the window from there on, and end it for nobody."""
    window = SeenWindow(1_000, 1_000_000)
    window.add(one(1), 5_000)
    window.add(one(2), None)
    window.add(one(3), 5_900)

    assert all(window.contains(one(number))[0] for number in (1, 2, 3))


@given(
    true=st.lists(st.integers(1_000, 2_000), min_size=17, max_size=60),
    lies=st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 2**40)), max_size=16),
)
def test_a_few_records_that_lie_do_not_move_the_clock(true, lies):
    """Sixteen in a block; times from the future, and none at all, do not even count."""
    times = sorted(true)
    for at, lie in lies:
        times.insert(min(at, len(times)), lie)

    proven = proven_ms(np.array(times, np.int64), 2**39)

    assert proven is not None
    assert min(true) <= proven <= max(true)


def test_a_batch_without_a_valid_time_proves_nothing():
    """Nor one that is empty."""
    assert proven_ms(np.array([-1, 5_001], np.int64), 5_000) is None
    assert proven_ms(np.array([], np.int64), 5_000) is None
