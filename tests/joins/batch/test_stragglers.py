"""A partition is named as the one that holds a topic back only if it stands out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins.batch.stragglers import ALIKE, ALIKE_MS, holders, stragglers

NOW = 1_795_221_419_000
BEHIND = NOW - 3_600_000


@pytest.mark.parametrize(
    ("watermarks_ms", "named"),
    [
        ([], []),
        ([NOW], [0]),
        ([UNKNOWN], [0]),
        ([NOW, NOW], []),
        ([NOW, NOW - ALIKE_MS], []),
        ([NOW, NOW - ALIKE_MS - 1], [1]),
        ([NOW, UNKNOWN], [1]),
        ([UNKNOWN, UNKNOWN], []),
        ([NOW] * 4, []),  # evenly filled, or read to their ends: they advance by the clock
        ([NOW, NOW + 300, NOW + 900, NOW + 1_100], []),
        ([NOW, NOW, BEHIND, NOW + 10], [2]),
        ([NOW, NOW - 5_000, NOW + 4_000, NOW + 1_000], [1]),
        ([NOW, NOW - 5_000, NOW + 5_000, NOW + 1_000], []),
        ([BEHIND, NOW, BEHIND - 9, NOW], [2, 0]),
        ([NOW, NOW, NOW, BEHIND, BEHIND, BEHIND], [3, 4, 5]),
        ([NOW, NOW, BEHIND, BEHIND, BEHIND], []),  # most are behind, and alike
        ([NOW, NOW - 600_000, NOW - 1_200_000, NOW - 1_800_000], []),
    ],
)
def test_what_stands_out_is_named(watermarks_ms: list[int], named: list[int]) -> None:
    """One that is far behind, or a few together; never the first of equals."""
    assert stragglers(dict(enumerate(watermarks_ms))) == named


@given(st.dictionaries(st.integers(0, 99), st.integers(0, 20).map(lambda at: NOW + 700 * at), min_size=2))
def test_whoever_is_named_is_further_behind_than_the_others_are_apart(watermarks_ms: dict[int, int]) -> None:
    """And it is not the number that decides."""
    found = stragglers(watermarks_ms)

    others = [at_ms for p, at_ms in watermarks_ms.items() if p not in found]
    assert len(found) <= len(others)
    for p in found:
        assert min(others) - watermarks_ms[p] > max(max(others) - min(others), ALIKE_MS)
    assert [watermarks_ms[p] for p in found] == sorted(watermarks_ms[p] for p in found)
    assert {99 - p for p in stragglers({99 - p: at_ms for p, at_ms in watermarks_ms.items()})} == set(found)


def test_it_is_said_in_a_few_words() -> None:
    """However many partitions there are."""
    assert holders("orders", {0: NOW, 1: NOW, 2: NOW}) == ALIKE
    assert holders("orders", {0: NOW, 1: BEHIND, 2: NOW}) == "orders-1"
    assert holders("orders", dict.fromkeys(range(40), NOW) | dict.fromkeys(range(20), BEHIND)) == "orders-0 and 19 more"
