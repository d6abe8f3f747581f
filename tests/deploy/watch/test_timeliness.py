"""Records that came too late, or too much out of order: which values had been enough."""

from __future__ import annotations

import pytest

from deploy.watch.timeliness import timeliness
from joins.spec import Side
from teacup.base.times import rounded_up

LEFT = Side(topic="clicks", disorder_ms=10_000)
DAY = 86_400_000


@pytest.mark.parametrize(
    ("seen_ms", "records", "after_ms", "texts"),
    [
        (10_000, 0, 5_000, []),
        (
            19_000,
            0,
            5_000,
            ["Raise left.disorder to 20s (and producer_delay, if records are also written that late)"],
        ),
        (10_000, 7, 11_001, ["Raise producer_delay to 15s"]),
        (
            19_000,
            7,
            100_000,
            [
                "Raise left.disorder to 20s and producer_delay to 2m: one alone does not help",
                "Raise producer_delay to 2m",
            ],
        ),
        (365_000 * DAY, 1, 365_000 * DAY, ["check left.time, left.time_unit, and the producer"]),
    ],
)
def test_a_value_that_is_too_small_is_named_with_one_that_is_enough(
    seen_ms: int, records: int, after_ms: int, texts: list[str]
) -> None:
    """Of both where one alone does not help; no value is enough for a time that is wrong."""
    found = timeliness("left", LEFT, seen_ms, 3, records=records, after_ms=after_ms, producer_delay_ms=5_000)

    assert len(found) == len(texts)
    for concern, text in zip(found, texts, strict=True):
        assert concern.text.endswith(text)


@pytest.mark.parametrize(
    ("exact_ms", "rounded_ms"),
    [(0, 0), (1, 100), (19_000, 20_000), (5_000, 5_000), (61_000, 120_000), (3_600_001, 7_200_000)],
)
def test_values_are_those_that_people_would_write(exact_ms: int, rounded_ms: int) -> None:
    """Never smaller."""
    assert rounded_up(exact_ms) == rounded_ms
