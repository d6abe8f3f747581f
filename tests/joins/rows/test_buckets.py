"""A key's bucket never changes, and is that of Java's partitioner, but for long keys."""

from __future__ import annotations

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from joins.plan.start import copartition
from joins.rows.buckets import LONG, buckets_of, murmur2


@given(st.lists(st.binary(max_size=LONG)))
@example([b"", b"a", b"ab", b"abc", b"abcd", b"\xff" * LONG])
def test_the_hash_of_a_key_that_is_not_long_is_that_of_the_java_client(keys: list[bytes]) -> None:
    hashes = murmur2(pl.Series(keys, dtype=pl.Binary))

    assert [int(h) & 0x7FFFFFFF for h in hashes] == [copartition.murmur2(key) for key in keys]


@given(st.lists(st.none() | st.binary(max_size=3 * LONG), min_size=1), st.integers(1, 50), st.data())
def test_a_place_depends_on_the_key_alone(keys: list[bytes | None], buckets: int, data: st.DataObject) -> None:
    """Not on its neighbours, nor on where in an Arrow buffer it is."""
    records = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Binary), "partition": pl.Series([7] * len(keys))})
    places = buckets_of(records, buckets).tolist()
    at = data.draw(st.integers(0, len(keys) - 1))

    assert buckets_of(records[at:], buckets).tolist() == places[at:]
    assert buckets_of(records[at : at + 1].clone(), buckets).tolist() == [places[at]]
    assert all(place == 7 % buckets for key, place in zip(keys, places, strict=True) if key is None)
    assert set(places) <= set(range(buckets))


def test_places_are_the_same_for_ever() -> None:
    """Rows of a batch that runs again after an upgrade go out in the transactions in which they went out before."""
    keys = [b"", b"a", b"user-1", b"user-12345678", b"x" * LONG, b"x" * (LONG + 1), None]
    records = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Binary), "partition": [3] * len(keys)})

    assert buckets_of(records, 1000).tolist() == [681, 524, 828, 830, 685, 568, 3]
