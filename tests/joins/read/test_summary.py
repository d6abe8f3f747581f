"""What a task counts of the records that it reads."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from joins.read.parse import ParsedBatch
from joins.read.summary import BucketSummary, Newest
from teacup.base.times import LATEST_MS

NEWEST, CLOCK = 100_000, 105_000
"""The largest time that was read before, and the watermark of a partition that was read to its end."""


def read(times: list[int], watermark_ms: int, newest: Newest) -> BucketSummary:
    """The summary of a batch of right, with a disorder of 1 s."""
    found = np.array(times, np.int64)
    late, proves = pl.Series(found < watermark_ms), np.ones(len(times), np.bool_)
    summary = BucketSummary(0, 7, 1)
    summary.saw(
        ParsedBatch("right", pl.DataFrame({"time": found}), late, proves, pl.DataFrame(), LATEST_MS),
        *(0, newest, watermark_ms, 1_000),
    )
    return summary


@pytest.mark.parametrize(
    ("times", "watermark_ms", "late", "overdue", "overdue_ms"),
    [
        ([CLOCK, CLOCK + 1], CLOCK, 0, 0, 0),
        ([104_000, 103_500, CLOCK], CLOCK, 2, 2, 1_500),  # in order, and written too late
        ([98_000, NEWEST], NEWEST - 1_000, 1, 0, 0),  # out of order: records had proved the watermark
        ([90_000], CLOCK, 1, 1, 15_000),  # both
        ([90_000, 104_000, CLOCK], CLOCK, 2, 2, 15_000),
    ],
)
def test_late_records_that_only_the_clock_was_ahead_of_are_overdue(
    times: list[int], watermark_ms: int, late: int, overdue: int, overdue_ms: int
) -> None:
    """With so much more of `producer_delay` the clock's watermark would not have been above any of them."""
    summary = read(times, watermark_ms, {("right", 0): NEWEST})

    assert summary.late["right"] == late
    assert (summary.overdue.get("right", 0), summary.overdue_ms.get("right", 0)) == (overdue, overdue_ms)
    assert not overdue or watermark_ms - overdue_ms <= min(times)


def test_a_worker_that_has_read_nothing_of_a_partition_blames_nobody() -> None:
    """It does not know what the records before had proved."""
    summary = read([104_000], CLOCK, {})

    assert (summary.late["right"], summary.overdue) == (1, {})
