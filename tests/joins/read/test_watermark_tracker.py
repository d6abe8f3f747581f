"""What times prove: in whatever batches they come, and never more because a few are wrong."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins.read.range_gate import WatermarkTracker
from teacup.kafka.log.time_search import block_size

TIMES = st.lists(st.integers(0, 50), max_size=60)
OUTLIERS = st.integers(0, 3)


def seen(outliers, *batches, tail=()):
    tracker = WatermarkTracker.carried(outliers, tail)
    for batch in batches:
        tracker.see(np.array(batch, dtype=np.int64))
    return tracker


def test_the_median_of_a_full_block_is_what_it_proves():
    """The largest median; what does not fill a block proves nothing yet."""
    tracker = seen(1, [5, 99, 7, 3, 4, 2, 88, 90])

    assert (tracker.proved_ms, tracker.tail.tolist()) == (7, [88, 90])
    assert seen(1, [5, 99]).proved_ms == UNKNOWN


def test_more_records_than_can_be_wrong_prove_what_one_of_them_has_reached():
    """Before they fill a block; as many as can be wrong prove nothing."""
    assert seen(1, [5, 99]).reached_ms == 5
    assert seen(1, [5, 9, 7, 88, 90]).reached_ms == 88
    assert seen(1, [99]).reached_ms == UNKNOWN
    assert seen(2, [7, 99, 98]).reached_ms == 7


@given(OUTLIERS, TIMES)
def test_what_is_reached_never_goes_back(outliers, times):
    """A block has reached what its beginning has."""
    reached = [seen(outliers, times[:end]).reached_ms for end in range(len(times) + 1)]

    assert reached == sorted(reached)


def test_without_outliers_each_record_proves_by_itself():
    """And nothing is carried along."""
    tracker = seen(0, [5, 9, 7])

    assert (tracker.proved_ms, tracker.tail.tolist()) == (9, [])


@given(OUTLIERS, TIMES, st.lists(st.integers(0, 60), max_size=5))
def test_any_cut_into_batches_proves_the_same(outliers, times, cuts):
    """Also when the tail is carried from one batch plan to the next."""
    at = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    batches = [times[a:b] for a, b in pairwise(at)]

    in_one = seen(outliers, times)
    in_many = seen(outliers, *batches)
    proved, tail = UNKNOWN, ()
    for batch in batches:
        carried = seen(outliers, batch, tail=tail)
        proved, tail = max(proved, carried.proved_ms), carried.carries

    assert in_many.proved_ms == in_one.proved_ms == proved
    assert in_many.tail.tolist() == in_one.tail.tolist() == carried.tail.tolist()
    assert len(tail) < block_size(outliers)


@given(OUTLIERS, TIMES, st.data())
def test_a_few_wrong_times_never_prove_more_than_the_others(outliers, true, data):
    """At most `outliers` of any block are ahead, by any amount, anywhere: the largest true time is the bound."""
    times, block = list(true), block_size(outliers)
    for first in range(0, len(times), block):
        places = range(first, min(first + block, len(times)))
        for place in data.draw(st.sets(st.sampled_from(places), max_size=outliers)):
            times[place] = data.draw(st.sampled_from((60, 10**9, 2**60)))

    proved_ms = seen(outliers, times).reached_ms

    timely = [t for t, was in zip(times, true, strict=True) if t == was]
    assert proved_ms <= max(timely, default=UNKNOWN)


@given(OUTLIERS, st.integers(1, 5), st.data())
def test_a_few_that_are_late_do_not_hide_how_far_the_others_are(outliers, blocks, data):
    """At most `outliers` of a block are wrong: it proves at least its smallest true time."""
    block = block_size(outliers)
    true = [100 + i for i in range(blocks * block)]
    times = list(true)
    for first in range(0, len(times), block):
        for place in data.draw(st.sets(st.sampled_from(range(first, first + block)), max_size=outliers)):
            times[place] = 0

    assert seen(outliers, times).proved_ms >= true[-block]


def test_a_copy_continues_by_itself():
    """What is only looked at leaves no trace."""
    tracker = seen(1, [1, 2])
    copy = tracker.copy()

    copy.see(np.array([9, 9], dtype=np.int64))

    assert (copy.proved_ms, copy.tail.tolist()) == (2, [9])
    assert (tracker.proved_ms, tracker.tail.tolist()) == (UNKNOWN, [1, 2])
