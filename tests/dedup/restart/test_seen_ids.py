"""Hashes and the set of seen ids against Python's own set."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.restart.seen_ids import Hashes, SeenIds, first_ones, hashes_of

SMALL = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12)


def made(pairs):
    """Hashes that collide in either half: high ones spread over the whole range."""
    high = np.array([high << 61 for high, _ in pairs], np.uint64)
    return Hashes(high, np.array([low for _, low in pairs], np.uint64))


@given(st.lists(SMALL, max_size=8), SMALL)
def test_it_holds_what_was_added_and_nothing_else(added, asked):
    """Even if one half of two hashes is the same."""
    seen = SeenIds()
    for some in added:
        seen.add(made(some))

    found = seen.contains(made(asked))

    everything = {pair for some in added for pair in some}
    assert found.tolist() == [pair in everything for pair in asked]


@given(SMALL)
def test_the_first_of_equal_ids_is_distinguished_from_the_others(pairs):
    """In the order of the column."""
    first = first_ones(made(pairs))

    assert first.tolist() == [pair not in pairs[:i] for i, pair in enumerate(pairs)]


def test_large_merges_lose_nothing():
    """All that was added is found, and nothing else; 16 bytes per id."""
    ids = pl.Series([f"{i % 64}:{i}" for i in range(700_000)])
    hashes = hashes_of(ids)
    seen = SeenIds()
    for start in range(0, 600_000, 100_000):
        seen.add(hashes.at(np.arange(start, start + 100_000)))

    found = seen.contains(hashes)

    assert found[:600_000].all()
    assert not found[600_000:].any()
    assert len(seen) == 600_000
    assert seen.nbytes == 16 * 600_000


@pytest.mark.parametrize(
    ("here", "there"), [(50_000, 300_000), (300_000, 300_000), (300_000, 50_000), (1_000, 300_000), (5_000, 3_000)]
)
def test_a_merge_takes_at_most_forty_bytes_per_id(here, there):
    """At its peak, whatever the sizes: what is taken over is not stored twice."""
    random = np.random.default_rng(1)

    def filled(count):
        seen = SeenIds()
        for start in range(0, count, 10_000):
            halves = random.integers(0, 2**64, (2, min(10_000, count - start)), np.uint64)
            seen.add(Hashes(halves[0].copy(), halves[1].copy()))
        return seen

    tracemalloc.start()
    try:
        seen, other = filled(here), filled(there)
        tracemalloc.reset_peak()
        seen.take_over(other)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (len(seen), len(other)) == (here + there, 0)
    assert peak <= 40 * len(seen)


def test_the_halves_collide_independently():
    """Among 500,000 ids, pairs that agree in 18 bits of both halves are as rare as chance predicts."""
    count, bits = 500_000, 18
    hashes = hashes_of(pl.select(pl.format("3:{}|5:{}", pl.int_range(count), pl.int_range(count))).to_series())
    mask = np.uint64((1 << bits) - 1)

    both = (hashes.high & mask) << np.uint64(bits) | (hashes.low & mask)

    expected = count * count / 2 / 2 ** (2 * bits)
    assert expected * 0.3 < count - len(np.unique(both)) < expected * 3 + 10


def test_hashes_are_the_same_in_every_process():
    """In another interpreter, with another seed for Python's own hashes."""
    code = "import polars as pl; from dedup.restart.seen_ids import hashes_of as h; x = h(pl.Series([b'1:2|', b'']))"
    printed = subprocess.run(
        [sys.executable, "-c", f"{code}; print(x.high.tolist(), x.low.tolist())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    here = hashes_of(pl.Series(["1:2|", ""]))

    assert printed.strip() == f"{here.high.tolist()} {here.low.tolist()}"


def test_a_null_is_not_an_id():
    """It would equal every other null."""
    with pytest.raises(ValueError, match="1 of 2"):
        hashes_of(pl.Series([b"a", None]))
