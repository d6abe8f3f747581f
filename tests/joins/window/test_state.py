"""Admissions as JSON, and the bounds that tell from where a lost window is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.progress import UNKNOWN
from joins.spec import Policy, Side, SpecChanged
from joins.window.state import FORMAT, Admission, Bucket, Reading, low_end, mark_bound, rebuild_from, thinned
from tests.joins.window.making import join_spec

TIMES = st.integers(0, 400)


@st.composite
def bounds(draw: st.DrawFn):
    """As they come to be: from an unknown start, offsets and times that never go back."""
    made, at_ms = ((draw(st.integers(0, 5)), UNKNOWN),), 0
    for step, step_ms in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(-20, 60)), max_size=20)):
        at_ms += step_ms
        made = mark_bound(made, made[-1][0] + step, at_ms)
    return made


@st.composite
def readings(draw: st.DrawFn):
    start = draw(st.integers(0, 100))
    times = sorted(draw(st.lists(st.integers(UNKNOWN, 2**50), min_size=2, max_size=2)))
    return Reading(start, start + draw(st.integers(0, 50)), times[1], times[0], draw(bounds()))


@st.composite
def admissions(draw: st.DrawFn):
    def bucket(number: int) -> Bucket:
        times = sorted(draw(st.lists(st.integers(UNKNOWN, 2**50), min_size=3, max_size=3)))
        partitions = draw(st.permutations([number, number + 10]))
        return Bucket(
            number=number,
            left={p: draw(readings()) for p in partitions},
            right={p: draw(readings()) for p in partitions},
            frontier_ms=times[2],
            expiry_ms=times[1],
            expiry_before_ms=times[0],
            moved_ms=draw(TIMES),
            stalled_from_ms=draw(st.none() | TIMES),
        )

    numbers = draw(st.permutations(range(draw(st.integers(1, 3)))))
    return Admission(
        generation="a1",
        number=draw(st.integers(0, 9)),
        listed_ms=draw(TIMES),
        identity=join_spec().identity(),
        topics={"right": ("r", 3), "left": ("l", 3)},
        buckets={number: bucket(number) for number in numbers},
        skipped=draw(st.sampled_from([{}, {"right": 3, "left": 1}])),
    )


@settings(max_examples=50)
@given(admissions())
def test_an_admission_survives_json(admission):
    """The text of what was read is the text that was written: Spark would take another one for a new batch."""
    text = json.dumps(admission.to_json())

    back = Admission.from_json(json.loads(text))

    assert back == admission
    assert json.dumps(back.to_json()) == text


@settings(max_examples=30)
@given(admissions(), st.randoms())
def test_equal_admissions_are_equal_texts(admission, chance):
    """Whatever order buckets, partitions and counts came in."""

    def shuffled(mapping):
        items = list(mapping.items())
        chance.shuffle(items)
        return dict(items)

    other = replace(
        admission,
        buckets=shuffled(
            {n: replace(b, left=shuffled(b.left), right=shuffled(b.right)) for n, b in admission.buckets.items()}
        ),
        topics=shuffled(admission.topics),
        identity=shuffled(admission.identity),
        skipped=shuffled(admission.skipped),
    )

    assert other == admission
    assert json.dumps(other.to_json()) == json.dumps(admission.to_json())


@settings(max_examples=30)
@given(admissions())
def test_any_difference_shows_in_the_text(admission):
    """An admission that reads on is another offset."""
    number = max(admission.buckets)
    bucket = admission.buckets[number]
    others = [
        replace(admission, number=admission.number + 1),
        replace(admission, buckets={**admission.buckets, number: replace(bucket, expiry_ms=bucket.expiry_ms + 1)}),
        replace(admission, buckets={**admission.buckets, number: bucket.carried_on()}),
    ]

    for other in others:
        assert (other.to_json() == admission.to_json()) == (other == admission)


def test_an_admission_of_another_format_is_refused():
    """It says which format, and how to go on."""
    data = Admission("g", 1, 0, {}, {}).to_json() | {"format": FORMAT + 1}

    with pytest.raises(SpecChanged, match=rf"format {FORMAT + 1}, this version reads {FORMAT}.*start: TIME"):
        Admission.from_json(data)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"before_ms": 11}, "before_ms: 10 -> 11"),
        ({"after_ms": 6}, "after_ms: 5 -> 6"),
        ({"policy": Policy.ALL}, "policy: 'nearest' -> 'all'"),
        ({"left": Side(topic="other", disorder_ms=0)}, "left.topic: 'left' -> 'other'"),
        ({"right": Side(topic="right", disorder_ms=7)}, "right.disorder_ms: 0 -> 7"),
    ],
)
def test_a_checkpoint_of_another_join_is_refused(change, named):
    """Every value that differs is named; limits and delays may change."""
    admission = Admission("g", 1, 0, json.loads(json.dumps(join_spec().identity())), {})

    admission.check_belongs_to(join_spec(max_records=5, producer_delay_ms=7, max_wait_ms=9, start="latest"))
    with pytest.raises(SpecChanged, match=named):
        admission.check_belongs_to(join_spec(**change))


@given(bounds())
def test_bounds_never_go_back(some):
    """Neither offsets nor times, and no offset stands twice."""
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(some))


@settings(max_examples=300)
@given(bounds(), TIMES, st.integers(1, 150), st.lists(TIMES, max_size=5))
def test_thinned_bounds_never_lose_what_may_be_asked_for(some, needed_from_ms, spacing_ms, later):
    """For every time that may be asked for: not above the offset that all bounds would give, so nothing is missed."""
    kept = thinned(some, needed_from_ms, spacing_ms)

    assert set(kept) <= set(some)
    assert kept[-1] == some[-1]
    for time_ms in [needed_from_ms, *(needed_from_ms + t for t in later)]:
        assert low_end(kept, time_ms) <= low_end(some, time_ms)


@settings(max_examples=300)
@given(bounds(), TIMES, st.integers(1, 150), st.integers(0, 400))
def test_thinned_bounds_cost_a_spacing_at_most(some, needed_from_ms, spacing_ms, ahead_ms):
    """What is read too much lies within one spacing of time: a bound at most so far below the best one is kept."""
    kept = thinned(some, needed_from_ms, spacing_ms)
    time_ms = needed_from_ms + ahead_ms
    best = max((b for _, b in some if b <= time_ms), default=UNKNOWN)

    found = [b for _, b in kept if b <= time_ms]

    if best > UNKNOWN and found and found[-1] > UNKNOWN:
        assert best - found[-1] <= spacing_ms


@settings(max_examples=200)
@given(bounds(), TIMES, st.integers(1, 150))
def test_thinned_bounds_are_few(some, needed_from_ms, spacing_ms):
    """About one a spacing, whatever their number was; thinning again changes nothing."""
    kept = thinned(some, needed_from_ms, spacing_ms)

    span = some[-1][1] - max(needed_from_ms, min((b for _, b in some if b > UNKNOWN), default=0))
    assert len(kept) <= 4 + 2 * max(span, 0) / spacing_ms
    assert thinned(kept, needed_from_ms, spacing_ms) == kept


@pytest.mark.parametrize(("time_ms", "offset"), [(UNKNOWN, 3), (9, 3), (10, 7), (19, 7), (20, 9), (10**9, 9)])
def test_the_low_end_is_the_largest_offset_that_is_known_to_be_below(time_ms, offset):
    """The start where nothing is known."""
    assert low_end(((3, UNKNOWN), (7, 10), (9, 20)), time_ms) == offset


def test_a_window_is_rebuilt_from_further_back_than_it_reaches():
    """Its records are marked by left records from `after` before it on, which chose among right `before` earlier."""
    assert rebuild_from(join_spec(), 100) == (95, 85)
    assert rebuild_from(join_spec(), UNKNOWN) == (UNKNOWN, UNKNOWN)


@pytest.mark.parametrize(
    ("expiry", "some", "expected"),
    [
        ((50, 60), ((0, UNKNOWN), (9, 70)), True),
        ((50, 60), ((0, UNKNOWN), (9, 50)), False),
        ((60, 60), ((0, UNKNOWN), (9, 70)), False),
        ((50, 60), ((0, UNKNOWN),), False),
        ((50, 60), ((9, 70),), False),
    ],
)
def test_an_expiry_is_worth_a_batch_only_if_the_window_may_hold_something(expiry, some, expected):
    """The expiry went on, and records that may be above the old one were read."""
    bucket = Bucket(0, {}, {0: Reading(9, 9, bounds=some)}, expiry_before_ms=expiry[0], expiry_ms=expiry[1])

    assert bucket.expires_records is expected
