"""What a batch may read: the limits, and how far the window reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.state import Bucket, PartitionRange
from joins.plan.bucket_plan import BucketPlanner
from joins.plan.readable import BLOCKS_AHEAD, Answers, Ask, EndOffsets
from joins.spec import Format, Policy, Side
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import histories, specs
from teacup.kafka.log.time_search import block_size
from teacup.kafka.log.topic_log import Ends, TimeAnswer
from tests.joins.testing.planning import DAY_MS, batches, outcomes, simulation, steady, with_payload
from tests.support.making import join_spec, topic

# The limit


@pytest.mark.parametrize(("limit", "outliers"), [(50, 16), (200, 0), (200, 2), (1_000, 16)])
def test_a_backlog_is_read_in_batches_near_the_limit(limit, outliers):
    """None exceeds it by much more than the look-ahead, few are much smaller, and little is read twice."""
    spec = join_spec(max_records=limit, outliers=outliers)
    run = simulation(spec, [steady(2_000)], [steady(2_000)], DAY_MS)

    sizes = batches(run)

    look_ahead = 2 * BLOCKS_AHEAD * block_size(outliers)
    assert sum(went for went, _ in sizes) == 4_000
    assert max(read for _, read in sizes) <= min(1.2 * limit + look_ahead, 4 * limit)
    assert sum(read for _, read in sizes) <= 1.25 * 4_000
    assert len(sizes) <= 2 * 4_000 / limit + 2
    assert outcomes(run) == [(0, i, "matched", None) for i in range(2_000)]


@pytest.mark.parametrize(
    ("limit", "path"), [(200, "direct"), (10_000, "direct"), (200, "shuffled"), (10_000, "shuffled")]
)
def test_a_partition_that_has_all_records_of_its_bucket_is_read_as_fast(limit, path):
    """Those that have none need none of the limit, whether all is within it or not."""
    empty = [steady(0)] * 19
    run = simulation(
        join_spec(max_records=limit, outliers=0, buckets=1, path=path),
        [steady(2_000), *empty],
        [steady(2_000), *empty],
        DAY_MS,
    )

    sizes = batches(run)

    assert sum(went for went, _ in sizes) == 4_000
    assert max(read for _, read in sizes) <= 1.2 * limit
    assert len(sizes) <= 2 * 4_000 / limit + 2
    assert outcomes(run) == [(0, i, "matched", None) for i in range(2_000)]


def test_each_of_many_buckets_has_its_share_unless_a_limit_was_given(monkeypatch):
    """Within bounds: a batch whose limit nobody gave is as large as its buckets need."""
    for name, records in (("RECORDS_PER_BATCH", 60), ("RECORDS_OF_A_BUCKET", 40), ("MOST_RECORDS_PER_BATCH", 240)):
        monkeypatch.setattr(f"joins.spec.{name}", records)

    def largest(buckets, **given):
        run = simulation(join_spec(outliers=0, **given), [steady(80)] * buckets, [steady(80)] * buckets, DAY_MS)
        return max(read for _, read in batches(run))

    for buckets, limit in ((1, 60), (4, 160), (10, 240)):
        assert limit <= largest(buckets) <= 1.2 * limit
    assert largest(4, max_records=20) < 60


def planned_with(spec, left, right, *, newest_ms, listed_ms=DAY_MS, held_ms=None):
    """The plan of a bucket of four partitions with these ends, and what it asked the log for.

    newest_ms   the answer for each partition that is looked at; no search for a time finds any
    """
    ranges = {p: PartitionRange(0, 0) for p in range(4)}
    held = {p: structs.replace(r, held_ms=held_ms) for p, r in ranges.items()}
    ends = [{p: Ends(0, high, high, 0) for p, high in enumerate(side)} for side in (left, right)]
    planner = BucketPlanner(spec, Bucket(0, held, ranges), EndOffsets(listed_ms, *ends), 100_000, UNKNOWN)
    plan, asked = planner.plan(), []
    try:
        asked.append(next(plan))
        while True:
            newest = {side: dict.fromkeys(of, newest_ms) for side, of in asked[-1].newest.items()}
            find = {
                side: {p: TimeAnswer(q.hi, q.time_ms, False) for p, q in of.items()}
                for side, of in asked[-1].find.items()
            }
            asked.append(plan.send(Answers(newest, {}, {}, find)))
    except StopIteration as ended:
        return ended.value, asked


def test_a_little_is_read_without_looking_for_where_to_stop():
    """However many partitions there are: one of each side is looked at, the one with the most to read."""
    plan, asked = planned_with(join_spec(), [3, 9, 0, 4], [0, 0, 7, 2], newest_ms=DAY_MS - 5)

    assert asked == [Ask(newest={"left": {1: 9}, "right": {2: 7}})]
    assert [r.end for r in plan.bucket.left.values()] == [3, 9, 0, 4]
    assert [r.end for r in plan.bucket.right.values()] == [0, 0, 7, 2]
    assert not plan.ahead


def test_left_that_is_known_to_wait_is_read_only_if_right_has_more():
    """What right's next records prove is not known before they are read; without any the clock says whether it goes."""
    waits = {"newest_ms": DAY_MS - 5, "held_ms": DAY_MS}

    without, _ = planned_with(join_spec(), [3, 9, 0, 4], [0, 0, 0, 0], **waits)
    with_some, _ = planned_with(join_spec(), [3, 9, 0, 4], [1, 0, 0, 0], **waits)

    assert not without.bucket.reads
    assert [r.end for r in with_some.bucket.left.values()] == [3, 9, 0, 4]


@pytest.mark.parametrize("newest_ms", [DAY_MS + 1, None])
def test_a_record_that_is_ahead_of_the_clock_has_all_partitions_looked_at(newest_ms):
    """The clock may be behind: then most are."""
    plan, asked = planned_with(join_spec(), [3, 9, 0, 4], [0, 0, 7, 2], newest_ms=newest_ms)

    assert set(asked[1].newest["left"]) == set(range(4))
    assert plan.ahead == {("left", 0), ("left", 1), ("left", 3), ("right", 2), ("right", 3)}


def test_a_burst_of_one_millisecond_is_cut():
    """It is larger than the limit on either side: batches stay within a small multiple, and nothing is missed."""
    burst = [*steady(50), *[(2_000, b"a")] * 900, *steady(50, 3_000)]
    spec = join_spec(max_records=100, policy=Policy.FIRST)
    run = simulation(spec, [burst], [burst], DAY_MS)

    sizes = batches(run)

    assert sum(went for went, _ in sizes) == 2_000
    assert max(read for _, read in sizes) <= 4 * 100
    assert run.run.sorted_results() == oracle.join(History(run.left.history, run.right.history), spec)


@pytest.mark.parametrize(("limit", "time"), [(1, "kafka"), (3, "$.t"), (20, "kafka"), (20, "$.t")])
def test_disorder_that_hides_every_record_does_not_stop_the_join(limit, time):
    """No record exceeds the target by the whole disorder: a share of right is read, whatever its times are."""
    disordered = [(1_000 + 7 * i % 500, b"a") for i in range(120)]
    sides = {
        name: Side(topic=name, disorder_ms=600, time=time, format=Format.JSON if time != "kafka" else Format.BYTES)
        for name in ("left", "right")
    }
    spec = join_spec(max_records=limit, **sides)
    history = History(with_payload(topic("left", disordered)), with_payload(topic("right", disordered)), DAY_MS)
    run = Simulation(history, spec)

    sizes = batches(run)

    assert sum(went for went, _ in sizes) == 240
    assert max(read for _, read in sizes) <= 4 * limit
    assert run.run.sorted_results() == oracle.join(history, spec)


def test_skewed_buckets_share_the_limit():
    """A small bucket is done at once; the large one gets what the small ones leave."""
    spec = join_spec(max_records=300)
    run = simulation(spec, [steady(1_000), steady(10, key=b"b")], [steady(1_000), steady(10, key=b"b")], DAY_MS)

    run.admit()
    small = run.between().buckets[1]
    sizes = batches(run)

    assert (small.left[1].end, small.right[1].end) == (10, 10)
    assert max(read for _, read in sizes) <= 1.2 * 300
    assert len(sizes) <= 2 * 2_000 / 300 + 2


@given(st.data())
def test_any_limit_reaches_the_end(data):
    """However small: something may always be read while records are unread, and the output is the oracle's."""
    spec = data.draw(specs().filter(lambda spec: spec.idle is Idle.ADVANCE))
    spec = replace(spec, max_records=data.draw(st.sampled_from((1, 2, 3, 4, 6, 10, 20))))
    history = data.draw(histories(spec, co_partitioned=True, max_steps=20))

    run = Simulation(history, spec).drain(600)

    assert run.sorted_results() == oracle.join(history, spec)


def test_bytes_of_right_end_a_batch():
    """The record that uses up the room goes, the next one does not; a batch takes at least one record."""
    right = [(1_000 + at, b"k") for at in range(20)]
    run = simulation(join_spec(max_right_bytes=1), [[(1_010, b"k")]], [right], DAY_MS)
    ends = []
    while run.admit():
        ends.append(run.between().buckets[0].right[0].start)

    assert ends[:18] == list(range(1, 19))
    assert outcomes(run) == [(0, 0, "matched", None)]


# Far apart


def most_within(records, span_ms):
    """The most records of a topic that lie within a span."""
    times = sorted(t for t, *_ in records)
    return max(sum(1 for t in times if first <= t <= first + span_ms) for first in times)


@pytest.mark.parametrize(
    ("left_first", "right_first", "disorder_ms"), [(1_000, 1_000, 30), (200_000, 1_000, 0), (1_000, 200_000, 30)]
)
def test_the_window_holds_the_joins_span_however_far_the_topics_are_apart(left_first, right_first, disorder_ms):
    """Close together, left far ahead, right far ahead: the window is bounded by interval, disorder and one batch."""
    sides = {name: Side(topic=name, disorder_ms=disorder_ms) for name in ("left", "right")}
    spec = join_spec(before_ms=100, after_ms=50, max_records=60, **sides)
    left, right = steady(500, left_first), steady(1_000, right_first, every_ms=2)
    run = simulation(spec, [left], [right], DAY_MS)

    run.drain()

    bound = most_within(right, spec.span_ms) + 2 * spec.max_records
    assert run.run.largest_window <= bound < 1_000 / 4
    assert run.run.sorted_results() == oracle.join(History(run.left.history, run.right.history), spec)


def test_right_is_not_read_while_left_does_not_need_it():
    """Right far ahead: left is read at once, and right waits."""
    run = simulation(join_spec(max_records=50), [steady(200)], [steady(2_000, 200_000)], DAY_MS)

    while run.between().buckets[0].left[0].end < 200:
        assert run.admit()

    assert run.between().buckets[0].right[0].end <= 2 * 50


def test_the_watermark_is_unknown_until_right_says_something():
    """Right starts with an open transaction: left is looked at once, and stays where it is."""
    run = simulation(join_spec(), [steady(5)], [[(1_000, b"a", 2 * DAY_MS)]], DAY_MS)

    looked = run.admit()

    assert looked
    assert not run.admit()
    assert run.run.results == []
    assert run.between().buckets[0].watermark_ms == UNKNOWN
    left = run.between().buckets[0].left[0]
    assert (left.start, left.held_ms) == (0, 1_000)
