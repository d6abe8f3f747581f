"""The wait curve against a brute force: of every left record, what it would have matched had it waited otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joins.batch.wait_curve import HORIZON_MS, OF_A_KEY, REMEMBERED, WaitCurve
from joins.batch.waits import BOUNDS_MS, BatchWaits, WaitSample, histogram

BEFORE_MS, AFTER_MS = 60_000, 5_000
START_MS = 1_700_000_000_000
KEYS = st.integers(0, 3)


@dataclass(frozen=True)
class Left:
    """A left record: its key, its time, and the plan in which it leaves."""

    key: int
    time_ms: int
    plan: int


@dataclass(frozen=True)
class Right:
    """A right record: its key, its time, and the plan that reads it."""

    key: int
    time_ms: int
    plan: int


@dataclass(frozen=True)
class Story:
    """Plans at these times, and what each of them reads of right and lets go of left."""

    plans_ms: list[int]
    lefts: list[Left]
    rights: list[Right]

    def matched(self, left: Left, gone_ms: int, after_ms: int) -> list[Right]:
        """What a left record finds that leaves at this time."""
        return [
            right
            for right in self.rights
            if right.key == left.key
            and -BEFORE_MS <= right.time_ms - left.time_ms <= after_ms
            and self.plans_ms[right.plan] <= gone_ms
        ]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Plans some hundred milliseconds to some minutes apart, and records around them."""
    steps = draw(st.lists(st.sampled_from([300, 1_000, 1_700, 40_000, 200_000]), min_size=2, max_size=8))
    plans_ms = [START_MS + sum(steps[:n]) for n in range(len(steps) + 1)]
    last = len(plans_ms) - 1

    def record(kind: type) -> st.SearchStrategy:
        return st.builds(
            lambda key, plan, ago: kind(key, plans_ms[plan] - ago, plan),
            KEYS,
            st.integers(1, last),
            st.integers(-8_000, 20_000),
        )

    lefts, rights = draw(st.lists(record(Left), max_size=8)), draw(st.lists(record(Right), max_size=8))
    return Story(plans_ms, lefts, rights)


def hashed(key: int) -> int:
    """A hash of a key, as polars makes them: 64 bits."""
    return (key * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64


def batches(story: Story) -> list[BatchWaits]:
    """What the tasks would report of each plan, with a policy that takes the first match."""
    found = []
    right_at = {id(right): (0, n) for n, right in enumerate(sorted(story.rights, key=lambda right: right.plan))}
    read = 0
    for plan, listed_ms in enumerate(story.plans_ms):
        sample = WaitSample(listed_ms, follows=True)
        rights = [right for right in story.rights if right.plan == plan]
        read += len(rights)
        sample.add_right(
            np.array([hashed(right.key) for right in rights], np.uint64),
            np.array([right.time_ms for right in rights], np.int64),
            1_000,
        )
        alone = []
        for left in [left for left in story.lefts if left.plan == plan]:
            sample.rows += 1
            if chosen := story.matched(left, listed_ms, AFTER_MS)[:1]:
                sample.matched += 1
                sample.pairs.append((left.time_ms, chosen[0].time_ms, *right_at[id(chosen[0])], 1))
            else:
                alone.append(left)
        sample.add_missed(
            np.array([hashed(left.key) for left in alone], np.uint64),
            np.array([left.time_ms for left in alone], np.int64),
            1_000,
        )
        found.append(BatchWaits(BEFORE_MS, AFTER_MS, [sample], {0: read}))
    return found


def curve_of(story: Story) -> dict:
    curve = WaitCurve(BEFORE_MS, AFTER_MS)
    for batch in batches(story):
        curve.add(batch)
    return curve.drawn()


@given(stories())
def test_less_waiting_loses_the_pairs_whose_right_record_came_too_late_for_it(story: Story) -> None:
    """At every bound, of the pairs that the join has made: exactly those that the brute force finds."""
    drawn = curve_of(story)
    gone = [left for left in story.lefts if left.plan > 0]
    pairs = [(left, found[0]) for left in gone if (found := story.matched(left, story.plans_ms[left.plan], AFTER_MS))]

    assert (drawn["rows"], drawn["matched"]) == (len(gone), len(pairs))
    for less_ms, lost, lost_after in drawn["less"]:
        late = [story.plans_ms[right.plan] > story.plans_ms[left.plan] - less_ms for left, right in pairs]
        beyond = [right.time_ms > left.time_ms + AFTER_MS - less_ms for left, right in pairs]
        assert lost == pytest.approx(sum(late) / len(gone), abs=1e-6)
        assert lost_after == pytest.approx(sum(map(any, zip(late, beyond, strict=True))) / len(gone), abs=1e-6)


@given(stories())
def test_more_waiting_matches_what_comes_later(story: Story) -> None:
    """At every bound, of the left records that left without a match: exactly those that the brute force finds."""
    drawn = curve_of(story)
    gone = [left for left in story.lefts if left.plan > 0]
    alone = [left for left in gone if not story.matched(left, story.plans_ms[left.plan], AFTER_MS)]

    def matching(more_ms: int, after_ms: int) -> int:
        return sum(bool(story.matched(left, story.plans_ms[left.plan] + more_ms, after_ms)) for left in alone)

    for more_ms, gained, gained_after in drawn["more"]:
        if more_ms > HORIZON_MS - 1:
            continue
        assert gained == pytest.approx(matching(more_ms, AFTER_MS) / len(gone), abs=1e-6)
        assert gained_after == pytest.approx(matching(more_ms, AFTER_MS + more_ms) / len(gone), abs=1e-6)


def test_a_share_of_the_keys_stands_for_all() -> None:
    """Of 60,000 left records, each of a key of its own, whose right ones come 3 s later: the estimate is close."""
    rng = np.random.default_rng(7)
    curve, listed_ms, read = WaitCurve(BEFORE_MS, AFTER_MS), START_MS, 0
    hashes = rng.integers(0, 2**64 - 1, size=60_000, dtype=np.uint64)
    curve.add(BatchWaits(BEFORE_MS, AFTER_MS, [WaitSample(listed_ms, follows=True)], {0: 0}))
    for at in range(0, len(hashes), 2_000):
        listed_ms += 1_000
        sample = WaitSample(listed_ms, rows=2_000, follows=True)
        sample.add_missed(hashes[at : at + 2_000], np.full(2_000, listed_ms - 9_000), 256)
        if at >= 6_000:
            sample.add_right(hashes[at - 6_000 : at - 4_000], np.full(2_000, listed_ms - 12_000), 256)
            read += 2_000
        curve.add(BatchWaits(BEFORE_MS, AFTER_MS, [sample], {0: read}))

    more = {ms: gained for ms, gained, _ in curve.drawn()["more"]}

    assert more[2_000] == 0
    assert 0.7 < more[3_000] < 1.1  # those of the last three seconds are not there yet


def test_what_was_read_from_a_backlog_is_left_out() -> None:
    """Until two plans in a row follow the topics: before, records may have been readable for long."""
    curve = WaitCurve(BEFORE_MS, AFTER_MS)

    def batch(n: int, *, follows: bool, appended: bool = False) -> BatchWaits:
        listed_ms = START_MS + n * 1_000
        sample = WaitSample(listed_ms, rows=1, matched=1, follows=follows, appended=appended)
        sample.pairs.append((listed_ms - 7_000, listed_ms - 6_000, 0, n, 1))
        return BatchWaits(BEFORE_MS, AFTER_MS, [sample], {0: n + 1})

    curve.add(batch(0, follows=False))
    curve.add(batch(1, follows=True))
    assert (curve.drawn()["rows"], curve.drawn()["left_out"]) == (0, 2)
    curve.add(batch(2, follows=True))
    assert (curve.drawn()["rows"], curve.drawn()["left_out"]) == (1, 2)
    assert curve.drawn()["lag_ms"]["0.5"] == 7_000
    curve.add(batch(3, follows=False, appended=True))
    assert (curve.drawn()["rows"], curve.drawn()["left_out"]) == (1, 2), "a time of the broker is known at any rate"
    assert curve.drawn()["lag_ms"]["0.5"] == 1_000


def test_what_is_too_old_is_forgotten() -> None:
    """The counts of the last hour, or slightly less."""
    curve = WaitCurve(BEFORE_MS, AFTER_MS, kept_ms=12_000)
    for n in range(40):
        sample = WaitSample(START_MS + n * 1_000, rows=1, follows=True)
        curve.add(BatchWaits(BEFORE_MS, AFTER_MS, [sample], {}))

    assert 11 <= curve.drawn()["rows"] <= 12


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=2_000), st.integers(1, 50))
def test_a_sample_is_bounded_and_keeps_all_records_of_its_keys(hashes: list[int], most: int) -> None:
    """However the records come, in one piece or in many; those of other keys belong to no share of this size."""
    times = np.arange(len(hashes), dtype=np.int64)
    whole, parts = WaitSample(0), WaitSample(0)
    whole.add_right(np.array(hashes, np.uint64), times, most)
    for at in range(0, len(hashes), 100):
        parts.add_right(np.array(hashes[at : at + 100], np.uint64), times[at : at + 100], most)

    for sample in (whole, parts):
        assert len(sample.right) <= 2 * most
        inside = [(key >> 16, n) for n, key in enumerate(hashes) if key >> 64 - sample.right_bits == 0]
        assert sample.right == inside[: 2 * most]


def test_a_key_with_too_many_records_takes_no_memory() -> None:
    """Whatever its hash is; that of most keys drops out of the share."""
    for key in (0, 2**63):
        sample, curve = WaitSample(START_MS, follows=True), WaitCurve(BEFORE_MS, AFTER_MS)
        for _ in range(30):
            sample.listed_ms += 1
            sample.add_missed(np.full(9_000, key, np.uint64), np.full(9_000, START_MS), 1_000)
            sample.add_right(np.full(9_000, key, np.uint64), np.full(9_000, START_MS + 9_000), 1_000)
            curve.add(BatchWaits(BEFORE_MS, AFTER_MS, [sample], {}))

        assert len(sample.right) == len(sample.missed) == (2_000 if key == 0 else 0)
        assert sum(map(len, curve._missed.values())) == len(curve._gone) <= OF_A_KEY
        assert sum(map(len, curve._ahead.values())) <= OF_A_KEY


def test_many_keys_take_bounded_memory() -> None:
    """The share of the keys becomes smaller."""
    rng, curve = np.random.default_rng(3), WaitCurve(BEFORE_MS, AFTER_MS)
    for n in range(40):
        sample = WaitSample(START_MS + n, follows=True)
        for add in (sample.add_missed, sample.add_right):
            hashes = rng.integers(0, 2**64 - 1, size=2_000, dtype=np.uint64)
            add(hashes, np.full(2_000, START_MS + 9_000), 1_000)
        curve.add(BatchWaits(BEFORE_MS, AFTER_MS, [sample], {}))

    assert REMEMBERED / 4 < len(curve._gone) <= REMEMBERED
    assert sum(map(len, curve._missed.values())) == len(curve._gone)
    assert REMEMBERED / 4 < sum(map(len, curve._ahead.values())) <= 2 * REMEMBERED


def test_histogram_counts_each_duration_below_the_first_bound_that_holds_it() -> None:
    places = histogram(np.array([1, 100, 101, 86_400_001]))

    assert {BOUNDS_MS[at] if at < len(BOUNDS_MS) else None: n for at, n in places.items()} == {100: 2, 200: 1, None: 1}
