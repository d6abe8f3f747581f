"""The wait curve against a brute force: of every left record, what it would have matched had it waited otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.watch.hour.wait_curve import HORIZON_MS, OF_A_KEY, REMEMBERED, BatchWaits, WaitCurve
from joins.read.waits import BOUNDS_MS, HASH_BITS, WaitSample, histogram
from joins.rows.frames import empty_rows, rows_about
from joins.spec import Policy
from joins.window.window import Window
from teacup.base.times import EARLIEST_MS
from teacup.kafka.headers import NO_CANDIDATE, NO_TIME
from tests.support.making import Record, frame, join_spec, rows, slice_of

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
        """What a left record finds that leaves at this time; the oracle does not know when a record was read."""
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


def batches(story: Story) -> list[BatchWaits]:
    """What the tasks would report of each plan, with a policy that takes the first match."""
    found = []
    right_at = {id(right): (0, n) for n, right in enumerate(sorted(story.rights, key=lambda right: right.plan))}
    read = 0
    for plan, listed_ms in enumerate(story.plans_ms):
        sample = WaitSample(listed_ms)
        sample.right = [(right.key, right.time_ms) for right in story.rights if right.plan == plan]
        read += len(sample.right)
        lefts = [left for left in story.lefts if left.plan == plan]
        for left in lefts:
            if chosen := story.matched(left, listed_ms, AFTER_MS)[:1]:
                sample.pairs.append((left.time_ms, chosen[0].time_ms, *right_at[id(chosen[0])], 1))
            else:
                sample.missed.append((left.key, left.time_ms))
        found.append(batch_of(sample, read, len(lefts), len(sample.pairs)))
    return found


def batch_of(sample: WaitSample, read: int, rows: int = 0, matched: int = 0, *, follows: bool = True) -> BatchWaits:
    """A batch of one bucket, that read right's only partition up to there."""
    return BatchWaits(BEFORE_MS, AFTER_MS, [sample], {0: read}, rows, matched, follows)


def records(keys: list[bytes], time_ms: int) -> pl.DataFrame:
    """Records of these keys and one time."""
    return frame((0, n, time_ms, key) for n, key in enumerate(keys))


def unmatched(keys: list[bytes], time_ms: int) -> pl.DataFrame:
    """The rows of left records without a match."""
    return rows_about("left", records(keys, time_ms), "unmatched", NO_CANDIDATE, late=False)


def curve_of(story: Story) -> dict:
    curve = WaitCurve(BEFORE_MS, AFTER_MS, 3_600_000)
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
    curve, listed_ms = WaitCurve(BEFORE_MS, AFTER_MS, 3_600_000), START_MS
    keys = [b"%d" % n for n in range(60_000)]
    curve.add(batch_of(WaitSample(listed_ms), 0))
    for at in range(0, len(keys), 2_000):
        listed_ms += 1_000
        sample = WaitSample(listed_ms, bits=3 + at % 3, most=256)
        sample.saw_rows(unmatched(keys[at : at + 2_000], listed_ms - 9_000))
        if at >= 6_000:
            sample.saw_right(records(keys[at - 6_000 : at - 4_000], listed_ms - 12_000))
        curve.add(batch_of(sample, at, 2_000))

    more = {ms: gained for ms, gained, _ in curve.drawn()["more"]}

    assert more[2_000] == 0
    assert 0.8 < more[3_000] < 1.0  # those of the last three seconds are not there yet


def test_what_was_read_from_a_backlog_is_left_out() -> None:
    """Until two plans in a row follow the topics: before, records may have been readable for long."""
    curve = WaitCurve(BEFORE_MS, AFTER_MS, 3_600_000)

    def batch(n: int, *, follows: bool, appended: bool = False) -> BatchWaits:
        listed_ms = START_MS + n * 1_000
        sample = WaitSample(listed_ms, appended=appended, pairs=[(listed_ms - 7_000, listed_ms - 6_000, 0, n, 1)])
        return batch_of(sample, n + 1, rows=1, matched=1, follows=follows)

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
        curve.add(batch_of(WaitSample(START_MS + n * 1_000), 0, rows=1))

    assert 11 <= curve.drawn()["rows"] <= 12


def test_a_key_with_too_many_records_takes_neither_memory_nor_time() -> None:
    """A batch keeps some of its records, and few of those meet each other."""
    curve = WaitCurve(BEFORE_MS, AFTER_MS, 3_600_000)
    for n in range(400):
        sample = WaitSample(START_MS + n, most=8)
        for _ in range(3):
            sample.saw_rows(unmatched([b"a"] * 90, START_MS))
            sample.saw_right(records([b"a"] * 90, START_MS + 9_000))
        assert len(sample.right) == len(sample.missed) == 64
        curve.add(batch_of(sample, 0, 270))

    more = {ms: (gained, gained_after) for ms, gained, gained_after in curve.drawn()["more"]}

    assert more[5_000] == (0, pytest.approx(OF_A_KEY / (399 * 270), abs=1e-6))


def test_many_records_take_bounded_memory() -> None:
    """What is remembered is a shorter time, rows and all, so that shares stay right."""
    curve = WaitCurve(BEFORE_MS, AFTER_MS, 3_600_000)
    for n in range(300):
        sample = WaitSample(START_MS + n * 1_000)
        sample.missed = [(1_000 * n + key, START_MS + n * 1_000) for key in range(1_000)]
        sample.right = [(1_000 * (n - 1) + key, START_MS + n * 1_000 - 1_000) for key in range(1_000)]
        curve.add(batch_of(sample, 0, 1_000))

    drawn = curve.drawn()

    assert REMEMBERED * 0.9 < 2 * drawn["rows"] <= REMEMBERED
    assert {ms: gained for ms, gained, _ in drawn["more"]}[1_000] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("policy", Policy)
@given(lefts=rows(null_keys=True), rights=rows(null_keys=True), most=st.integers(1, 40))
def test_samples_what_the_window_says(policy: Policy, lefts: list[Record], rights: list[Record], most: int) -> None:
    """Of rows with a match each n-th, and which left records have none."""
    window, sample = Window(join_spec(policy=policy).right), WaitSample(START_MS, most=most)
    window.add(slice_of([record for record in rights if record[3] is not None]))

    sample.saw_right(frame(rights))
    made = pl.concat([empty_rows(), *window.join(frame(lefts), late=False, expiry_ms=EARLIEST_MS)])
    sample.saw_rows(made)
    sample.saw_rows(rows_about("left", frame(lefts), "dead_letter", NO_TIME, late=False))

    matched, alone = made.filter(outcome="matched"), made.filter(reason=NO_CANDIDATE)
    every = -(-len(matched) // most)
    pairs = matched.select("left_time", "right_time", "right_partition", "right_offset").rows()
    assert sample.pairs == [(*pair, every) for pair in pairs[every // 2 :: every or 1]]
    assert [time_ms for _, time_ms in sample.missed] == alone["left_time"].to_list()[: 8 * most]
    assert [time_ms for _, time_ms in sample.right] == [t for _, _, t, key in rights if key is not None][: 8 * most]


@given(st.integers(0, 4))
def test_left_and_right_records_of_the_same_keys_are_sampled(bits: int) -> None:
    keys, sample = [b"%d" % n for n in range(500)], WaitSample(START_MS, bits, most=500)

    sample.saw_right(records(keys, START_MS))
    sample.saw_rows(unmatched(keys, START_MS))

    assert sample.missed == sample.right
    assert 250 / 2**bits < len(sample.missed) <= 1_000 / 2**bits
    assert max(key for key, _ in sample.missed) < 2 ** (HASH_BITS - bits)


def test_histogram_counts_each_duration_below_the_first_bound_that_holds_it() -> None:
    places = histogram(np.array([1, 100, 101, 86_400_001]))

    assert {BOUNDS_MS[at] if at < len(BOUNDS_MS) else None: n for at, n in places.items()} == {100: 2, 200: 1, None: 1}
