"""How far right is complete, how far left may go, and what expires, by a few numbers and by what they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN
from joins.batch.rules import (
    Limit,
    earliest_left,
    earliest_right,
    expiry,
    give_up,
    latest_left,
    latest_right,
    left_limit,
    left_watermark,
    right_watermark,
)
from joins.spec import JoinPath, JoinSpec
from tests.support.making import changed, join_spec

SPEC = join_spec()
"""`before` is 10 and `after` is 5 milliseconds."""
SHUFFLED = join_spec(path=JoinPath.SHUFFLED)

TIMES = st.integers(-100, 100)
WATERMARKS = TIMES | st.just(UNKNOWN)
SEVERAL = st.lists(WATERMARKS, min_size=1, max_size=4)


@st.composite
def specs(draw: st.DrawFn) -> JoinSpec:
    span = st.integers(0, 30)
    path = draw(st.sampled_from([JoinPath.DIRECT, JoinPath.SHUFFLED]))
    return join_spec(before_ms=draw(span), after_ms=draw(span), path=path)


def matches(spec: JoinSpec, left_ms: int, right_ms: int) -> bool:
    """The definition of a match, written once more: both ends are included."""
    return left_ms - spec.right.before_ms <= right_ms <= left_ms + spec.right.after_ms


# Right watermark


@pytest.mark.parametrize(
    ("watermark_ms", "known_ms", "stored_ms", "expected"),
    [
        ([70, 60], UNKNOWN, None, 60),
        ([70, 60], 50, None, 60),
        ([40], 50, None, 50),
        ([UNKNOWN, 70, 60], 50, None, 50),
        ([], 50, None, 50),
        ([], UNKNOWN, None, UNKNOWN),
        ([70, 60], 50, 80, 80),
        ([70, 60], 50, UNKNOWN, 50),
    ],
)
def test_right_is_complete_as_far_as_its_slowest_partition(
    watermark_ms: list[int], known_ms: int, stored_ms: int | None, expected: int
) -> None:
    """And never less far than before; where a feeder stores right, as far as that is stored."""
    assert right_watermark(watermark_ms, known_ms, stored_ms) == expected


# Left limit


@pytest.mark.parametrize(
    ("give_up_ms", "right_ms", "expected"),
    [
        (None, 100, Limit(95)),
        (None, UNKNOWN, Limit(UNKNOWN)),
        (90, 100, Limit(95)),
        (95, 100, Limit(95)),
        (200, 100, Limit(200, 95)),
        (200, UNKNOWN, Limit(200, UNKNOWN)),
    ],
)
def test_left_may_go_below_right_watermark_less_after_or_what_was_given_up(
    give_up_ms: int | None, right_ms: int, expected: Limit
) -> None:
    """What goes only because `max_wait` is over is identified."""
    assert left_limit(SPEC, UNKNOWN, right_ms, give_up_ms) == expected


def test_on_the_shuffled_path_left_goes_by_what_was_known_before_the_batch() -> None:
    """Right is read by other tasks at the same time; elsewhere it is read first."""
    assert left_limit(SHUFFLED, 60, 100) == Limit(55)
    assert left_limit(SPEC, 60, 100) == Limit(95)
    assert left_limit(SHUFFLED, UNKNOWN, 100, give_up_ms=70) == Limit(70, UNKNOWN)


@pytest.mark.parametrize(
    ("max_wait_ms", "stuck_since_ms", "expected"),
    [(None, 0, None), (300, 701, None), (300, 700, 700), (300, 0, 700)],
)
def test_left_is_given_up_once_right_has_stood_still_for_max_wait(
    max_wait_ms: int | None, stuck_since_ms: int, expected: int | None
) -> None:
    """Left that is younger than that goes on waiting."""
    spec = changed(SPEC, max_wait_ms=max_wait_ms)

    assert give_up(spec.right, 1_000, stuck_since_ms) == expected


@given(specs(), SEVERAL, WATERMARKS, st.data())
def test_no_left_record_that_may_go_can_still_get_an_unread_right_one(
    spec: JoinSpec, watermark_ms: list[int], known_ms: int, data: st.DataObject
) -> None:
    """And the limit is the largest such time: a left record at it may match a right one at the watermark."""
    before_ms = right_watermark([], known_ms)
    read_ms = right_watermark(watermark_ms, known_ms)
    limit_ms = left_limit(spec, before_ms, read_ms).limit_ms
    unread_from_ms = before_ms if spec.path is JoinPath.SHUFFLED else read_ms

    if unread_from_ms == UNKNOWN:
        assert limit_ms == UNKNOWN
        return
    goes_ms = data.draw(st.integers(max_value=limit_ms - 1))
    unread_ms = data.draw(st.integers(min_value=unread_from_ms))

    assert not matches(spec, goes_ms, unread_ms)
    assert matches(spec, limit_ms, unread_from_ms)


@given(specs(), WATERMARKS, SEVERAL, SEVERAL)
def test_the_limit_and_the_watermark_never_go_back(
    spec: JoinSpec, known_ms: int, watermark_ms: list[int], later_ms: list[int]
) -> None:
    """Whatever the partitions report: the next batch takes what this one knew."""
    first = right_watermark(watermark_ms, known_ms)
    second = right_watermark(later_ms, first)

    assert known_ms <= first <= second
    assert left_limit(spec, known_ms, first).limit_ms <= left_limit(spec, first, second).limit_ms


# Expiry


@pytest.mark.parametrize(
    ("watermark_ms", "known_ms", "expected"),
    [
        ([70, 60], 20, 50),
        ([25], 20, 20),
        ([UNKNOWN], 20, 20),
        ([UNKNOWN, 70], 20, 20),
        ([70], UNKNOWN, 60),
        ([], UNKNOWN, UNKNOWN),
    ],
)
def test_right_expires_below_left_watermark_less_before(watermark_ms: list[int], known_ms: int, expected: int) -> None:
    """By the slowest left partition, whether its records have gone or not; it never goes back."""
    assert expiry(SPEC.right, watermark_ms, known_ms) == expected


@given(specs(), st.lists(TIMES, min_size=1, max_size=4), st.data())
def test_no_expired_right_record_can_match_an_unread_left_one(
    spec: JoinSpec, watermark_ms: list[int], data: st.DataObject
) -> None:
    """And nothing is kept for longer: a right record at the expiry may match a left one at the watermark."""
    expiry_ms = expiry(spec.right, watermark_ms, UNKNOWN)
    expired_ms = data.draw(st.integers(max_value=expiry_ms - 1))
    unread_ms = data.draw(st.integers(min_value=min(watermark_ms)))

    assert not matches(spec, unread_ms, expired_ms)
    assert matches(spec, min(watermark_ms), expiry_ms)


@given(specs(), WATERMARKS, SEVERAL, SEVERAL)
def test_the_expiry_never_goes_back(
    spec: JoinSpec, known_ms: int, watermark_ms: list[int], later_ms: list[int]
) -> None:
    """Whatever the partitions report."""
    first = expiry(spec.right, watermark_ms, known_ms)

    assert known_ms <= first <= expiry(spec.right, later_ms, first)


@given(specs(), TIMES)
def test_the_left_watermark_of_an_expiry_gives_that_expiry(spec: JoinSpec, expiry_ms: int) -> None:
    """Of an unknown expiry it is unknown."""
    assert expiry(spec.right, [left_watermark(spec.right, expiry_ms)], UNKNOWN) == expiry_ms
    assert left_watermark(spec.right, UNKNOWN) == UNKNOWN


# What matches


@given(specs(), TIMES, TIMES)
def test_the_four_ends_of_a_match_agree_with_its_definition(spec: JoinSpec, left_ms: int, right_ms: int) -> None:
    """Seen from left, and from right."""
    of_left = earliest_right(spec.right, left_ms) <= right_ms <= latest_right(spec.right, left_ms)
    of_right = earliest_left(spec.right, right_ms) <= left_ms <= latest_left(spec.right, right_ms)

    assert of_left == of_right == matches(spec, left_ms, right_ms)
