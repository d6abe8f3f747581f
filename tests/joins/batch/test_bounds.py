"""Bounds: from where a lost window is read again, and which of its records took part the first time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins.batch.facts import MOST_SEGMENTS, Bound, below_within, low_end, starting_at, thinned, turned_away_from
from teacup.base.times import EARLIEST_MS, LATEST_MS
from tests.support.making import bounds, segments

TIMES = st.integers(0, 900)


@pytest.mark.parametrize(("time_ms", "offset"), [(UNKNOWN, 3), (9, 3), (10, 7), (19, 7), (20, 9), (10**9, 9)])
def test_the_low_end_is_the_largest_offset_that_is_known_to_be_below(time_ms, offset):
    """The start where nothing is known."""
    assert low_end((Bound(3), Bound(7, 10), Bound(9, 20)), time_ms) == offset


def test_a_segment_with_later_times_hides_those_behind_it():
    """Everything below the low end is below the time, not only its last segment."""
    assert low_end((Bound(3), Bound(7, 30), Bound(9, 20)), 25) == 3


@pytest.mark.parametrize(
    ("start", "end", "below_ms"),
    [(3, 7, 30), (5, 6, 30), (7, 9, 20), (6, 8, 30), (8, 12, 20), (9, 12, EARLIEST_MS), (11, 13, LATEST_MS)],
)
def test_the_time_that_a_range_is_below(start, end, below_ms):
    """The largest of all batches that read some of it; unknown beyond what was read."""
    some = (Bound(3, 50), Bound(7, 30), Bound(9, 20), Bound(12))

    assert below_within(some, start, end) == below_ms


@pytest.mark.parametrize(
    ("offset", "from_ms"), [(3, 100), (10, 100), (11, 250), (19, 250), (20, LATEST_MS), (99, LATEST_MS)]
)
def test_what_was_rejected_is_reported_by_the_batch_that_read_it(offset, from_ms):
    """[3, 11) was read by the first batch, [11, 20) by the second; nothing was read after that."""
    some = (Bound(3), Bound(11, 90, 100), Bound(20, 190, 250))

    assert turned_away_from(some, np.array([offset])).tolist() == [from_ms]


def test_bounds_of_a_log_that_has_lost_its_beginning():
    """They start where the log starts; its first segment keeps what was known about it."""
    some = (Bound(3), Bound(11, 90, 100), Bound(20, 190, 250))

    assert starting_at(some, 15) == (Bound(15, 90), Bound(20, 190, 250))
    assert starting_at(some, 20) == (Bound(20, 190),)
    assert starting_at(some, 25) == (Bound(25, 190),)
    assert starting_at(some, 3) == (Bound(3, UNKNOWN), *some[1:])


@given(bounds())
def test_bounds_ascend_by_offset(some):
    """No offset occurs twice, however often they are thinned."""
    assert all(a.offset < b.offset for a, b in pairwise(some))


@given(segments(), TIMES, st.integers(1, 150))
def test_thinned_bounds_separate_exactly_what_took_part_from_what_was_rejected(read, needed_from_ms, spacing_ms):
    """For every record from the low end on, in any segment: read again, it is in or out as it first was."""
    some, records = read
    kept = thinned(some, needed_from_ms, spacing_ms)
    low = low_end(some, needed_from_ms)

    for offset, time_ms, took_part in records:
        if offset >= low:
            assert (time_ms < turned_away_from(kept, np.array([offset]))[0]) is np.bool_(took_part)


@given(segments(), TIMES, st.integers(1, 150), st.lists(TIMES, max_size=5))
def test_thinned_bounds_never_lose_what_may_be_asked_for(read, needed_from_ms, spacing_ms, later):
    """For every time that may be needed: what lies below the low end is below the time, so nothing is missed."""
    some, records = read
    kept = thinned(some, needed_from_ms, spacing_ms)

    assert kept[-1].offset == some[-1].offset
    for time_ms in [needed_from_ms, *(needed_from_ms + t for t in later)]:
        assert low_end(kept, time_ms) <= low_end(some, time_ms)
        assert not [o for o, t, took_part in records if took_part and o < low_end(kept, time_ms) and t >= time_ms]


@given(segments(), st.integers(1, 150), st.lists(TIMES, min_size=1, max_size=6))
def test_thinning_after_each_batch_is_as_good_as_thinning_once(read, spacing_ms, needed):
    """A bound that was merged away is never missed later, because what is needed only moves forward."""
    some, records = read
    kept = some
    for needed_from_ms in sorted(needed):
        kept = thinned(kept, needed_from_ms, spacing_ms)

    low = low_end(some, max(needed))
    assert low_end(kept, max(needed)) <= low
    for offset, time_ms, took_part in records:
        if offset >= low:
            assert (time_ms < turned_away_from(kept, np.array([offset]))[0]) is np.bool_(took_part)


@given(bounds(), TIMES, st.integers(1, 150))
def test_thinned_bounds_are_few(some, needed_from_ms, spacing_ms):
    """Two neighbours together span less than a spacing only if times from the future keep them apart."""
    kept = thinned(some, needed_from_ms, spacing_ms)

    for before, bound, other in zip(kept, kept[1:], kept[2:], strict=False):
        together_ms = max(bound.below_ms, other.below_ms)
        if together_ms - before.below_ms <= spacing_ms:
            assert together_ms > min(bound.future_ms, other.future_ms)


def test_bounds_stay_few_though_each_batch_has_late_records():
    """An hour's window and a batch per second; accepted and rejected records are distinguished nevertheless."""
    some, most = (Bound(0),), 0
    for second in range(1, 3_600):
        now_ms = 1_000 * second
        read = Bound(10 * second, now_ms, now_ms + 60_000, expiry_ms=now_ms - 500)
        some = thinned((*some, read), UNKNOWN, 900_000)
        most = max(most, len(some))

    assert most <= MOST_SEGMENTS + 1
    assert low_end(some, 3_000_000) > 10_000
    assert all(bound.below_ms <= bound.future_ms for bound in some)
