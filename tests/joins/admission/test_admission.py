"""What a batch may read: limits, waits, who waits for whom, and how far the window reaches."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.progress import UNKNOWN, Idle
from joins.admission.admission import Planned, admit
from joins.admission.holding import Held
from joins.admission.listing import list_ends
from joins.admission.readable import BLOCKS_AHEAD
from joins.spec import Format, Policy, Side
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories, specs
from joins.window.batch import find_facts
from kafkaio.blocksearch import block_size
from tests.support.making import join_spec, topic

DAY_MS = 86_400_000


def simulation(spec, left, right, start_ms):
    return Simulation(History(topic("left", *left), topic("right", *right), start_ms), spec)


def batches(run, rounds=500):
    """Admit without moving the clock until nothing more may be read: for each batch how many records went, and how many
    were read, including those held back."""
    sizes = []
    for _ in range(rounds):
        if not run.admit():
            return sizes
        after = run.between().buckets
        readings = [(n, s, p, r) for n, b in run.state.buckets.items() for s in SIDES for p, r in b.side(s).items()]
        went = sum(after[n].side(s)[p].start - r.start for n, s, p, r in readings)
        sizes.append((went, sum(r.records for *_, r in readings)))
    raise AssertionError(f"{rounds} batches, and still more: {sizes[-5:]}")


SIDES = ("left", "right")


def outcomes(run):
    return [(r.left_partition, r.left_offset, r.outcome, r.reason) for r in run.run.sorted_results()]


# The limit


def steady(records, first_ms=1_000, every_ms=1, key=b"a"):
    return [(first_ms + i * every_ms, key) for i in range(records)]


@pytest.mark.parametrize("outliers", [0, 2, 16])
@pytest.mark.parametrize("limit", [50, 200, 1_000])
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


def test_a_burst_of_one_millisecond_is_cut():
    """It is larger than the limit on either side: batches stay within a small multiple, and nothing is missed."""
    burst = [*steady(50), *[(2_000, b"a")] * 900, *steady(50, 3_000)]
    spec = join_spec(max_records=100, policy=Policy.FIRST)
    run = simulation(spec, [burst], [burst], DAY_MS)

    sizes = batches(run)

    assert sum(went for went, _ in sizes) == 2_000
    assert max(read for _, read in sizes) <= 4 * 100
    assert run.run.sorted_results() == oracle.join(History(run.left.history, run.right.history), spec)


@pytest.mark.parametrize("limit", [1, 3, 20])
@pytest.mark.parametrize("time", ["kafka", "$.t"])
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


def with_payload(one):
    """The same topic with its times also in the values."""
    parts = tuple(
        tuple(replace(e, value=json.dumps({"t": e.time_ms}).encode()) for e in events) for events in one.partitions
    )
    return replace(one, partitions=parts)


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


@settings(max_examples=40)
@given(st.data())
def test_any_limit_reaches_the_end(data):
    """However small: something may always be read while records are unread, and the output is the oracle's."""
    spec = data.draw(specs().filter(lambda spec: spec.idle is Idle.ADVANCE))
    spec = replace(spec, max_records=data.draw(st.sampled_from((1, 2, 3, 4, 6, 10, 20))))
    history = data.draw(histories(spec, co_partitioned=True, max_steps=20))

    run = Simulation(history, spec).drain(600)

    assert run.sorted_results() == oracle.join(history, spec)


# max_wait

WAITS = join_spec(max_wait_ms=500)
OPEN = ([(1_000, b"a")], [(1_000, b"b"), (1_001, b"a", 60_000)])
"""Left has one record; its match on the right is in a transaction that stays open."""


def stuck(spec=WAITS):
    run = Simulation(History(topic("left", OPEN[0]), topic("right", OPEN[1]), 1_000), spec)
    while run.admit():
        pass
    return run


def test_left_waits_for_a_right_that_makes_no_progress():
    """Without `max_wait` for ever: the match comes with the end of the transaction."""
    run = stuck(join_spec())

    run.clock.advance(58_000)
    assert not run.admit()
    run.clock.advance(2_000)
    run.drain()

    assert outcomes(run) == [(0, 0, "matched", None)]


def test_left_passes_after_max_wait_and_not_earlier():
    """The reason says that right made no progress."""
    run = stuck()
    moved_ms = run.state.buckets[0].moved_ms

    run.clock.advance(moved_ms + 499 - run.clock.now_ms)
    assert not run.admit()
    run.clock.advance(2)

    assert run.admit()
    assert outcomes(run) == [(0, 0, "unmatched", "right_stalled")]
    assert len(run.drain().results) == 1


def test_time_before_the_process_started_does_not_count():
    """Nobody looked then: right may long have moved."""
    run = stuck()
    run.clock.advance(400)
    run.restart()

    run.clock.advance(499)
    assert not run.admit()
    run.clock.advance(2)

    assert run.admit()
    assert outcomes(run) == [(0, 0, "unmatched", "right_stalled")]


def test_a_quiet_time_before_right_hangs_does_not_count():
    """Over idle topics the frontier follows the clock without any admission: the wait starts when that ends."""
    left, right = [(1_000, b"b"), (9_400, b"a", 10_010)], [(1_000, b"b"), (9_990, b"a", 12_000)]
    spec = join_spec(max_wait_ms=500, producer_delay_ms=1_000)
    run = Simulation(History(topic("left", left), topic("right", right), 1_000), spec)
    passed_at = []

    while len(run.run.results) < 2 and run.clock.now_ms < 20_000:
        run.clock.advance(10)
        if run.admit():
            passed_at.append(run.clock.now_ms)

    assert outcomes(run)[-1] == (0, 1, "unmatched", "right_stalled")
    assert 10_450 <= passed_at[-1] <= 10_550


def test_right_that_moves_is_waited_for():
    """However far behind it is: the wait starts over with each step of its frontier."""
    right = [(1_000 + 10 * i, b"b", 1_000 + 400 * i) for i in range(20)]
    run = Simulation(
        History(topic("left", [(1_150, b"b")]), topic("right", right), 1_150),
        join_spec(max_wait_ms=500, idle=Idle.HOLD),
    )

    while not run.run.results:
        run.clock.advance(200)
        run.admit()
        assert run.clock.now_ms < 60_000

    assert outcomes(run) == [(0, 0, "matched", None)]


def test_right_that_has_unread_records_is_not_stalled():
    """Its frontier stays for many batches of one millisecond: the limit holds it, not the topic."""
    right = [*[(2_000, b"a")] * 900, (2_000, b"b"), (2_100, b"a")]
    run = simulation(join_spec(max_wait_ms=1, max_records=50), [[(1_999, b"b")]], [right], DAY_MS)

    while run.admit():
        run.clock.advance(5)

    assert outcomes(run) == [(0, 0, "matched", None)]


def test_right_that_was_not_read_for_its_bytes_is_not_stalled():
    """Left waits for what the window had no room for in this batch, though the plan was to read right to its end."""
    right = [(2_100, b"a"), *[(2_095, b"a", 2_100)] * 20, (2_096, b"b", 2_100)]  # the first proves as much as all
    spec = join_spec(max_wait_ms=1, max_right_bytes=10, idle=Idle.HOLD)
    run = simulation(spec, [[(2_096, b"b")]], [right], DAY_MS)

    while run.admit():
        run.clock.advance(5)

    assert outcomes(run) == [(0, 0, "matched", None)]


def test_bytes_of_right_end_a_batch():
    """The record that uses up the room goes, the next one does not; a batch takes at least one record."""
    right = [(1_000 + at, b"k") for at in range(20)]
    run = simulation(join_spec(max_right_bytes=1), [[(1_010, b"k")]], [right], DAY_MS)
    ends = []
    while run.admit():
        ends.append(run.between().buckets[0].right[0].start)

    assert ends[:18] == list(range(1, 19))
    assert outcomes(run) == [(0, 0, "matched", None)]


def test_left_records_that_right_had_reached_are_not_called_stalled():
    """Only those beyond the point where right stalled, though they pass in the same batch."""
    left = [(1_000, b"a"), (900, b"x", 1_550)]
    spec = join_spec(max_wait_ms=500, left=Side(topic="left", disorder_ms=200))
    run = Simulation(History(topic("left", left), topic("right", OPEN[1]), 1_000), spec)
    while run.admit():
        pass
    run.clock.advance(600)
    run.admit()

    assert outcomes(run) == [(0, 0, "unmatched", "right_stalled"), (0, 1, "unmatched", "no_candidate")]


# Idle


@pytest.mark.parametrize(("idle", "admitted"), [(Idle.ADVANCE, True), (Idle.HOLD, False)])
def test_an_idle_right_holds_left_only_if_configured_to(idle, admitted):
    """`advance` concludes from the clock that nothing older comes; `hold` relies on records only."""
    run = simulation(join_spec(idle=idle), [steady(3, 5_000)], [steady(3, 1_000)], DAY_MS)

    batches(run)

    assert bool(run.run.results) is admitted


def test_under_hold_a_right_record_lets_left_go():
    """The first one that is beyond what left needs."""
    run = simulation(join_spec(idle=Idle.HOLD), [steady(3, 5_000)], [[*steady(3), (5_008, b"x")]], DAY_MS)

    batches(run)

    assert [left for _, left, _, _ in outcomes(run)] == [0, 1, 2]


def test_under_hold_right_is_read_no_further_than_left_needs():
    """Left has ended and its time is unknown: the window does not grow with a right that continues."""
    spec = join_spec(idle=Idle.HOLD, max_records=100)
    run = simulation(spec, [steady(100)], [steady(5_000)], DAY_MS)

    batches(run)

    assert len(run.run.results) == 100
    assert run.run.largest_window <= 100 + 2 * spec.max_records + spec.span_ms


# Far apart


def most_within(records, span_ms):
    """The most records of a topic that lie within a span."""
    times = sorted(t for t, *_ in records)
    return max(sum(1 for t in times if first <= t <= first + span_ms) for first in times)


@pytest.mark.parametrize(("left_first", "right_first"), [(1_000, 1_000), (200_000, 1_000), (1_000, 200_000)])
@pytest.mark.parametrize("disorder_ms", [0, 30])
def test_the_window_holds_the_joins_span_however_far_the_topics_are_apart(left_first, right_first, disorder_ms):
    """Close together, left far ahead, right far ahead: the window is bounded by interval, disorder and one batch."""
    sides = {name: Side(topic=name, disorder_ms=disorder_ms) for name in ("left", "right")}
    spec = join_spec(before_ms=100, after_ms=50, max_records=100, **sides)
    left, right = steady(1_500, left_first), steady(3_000, right_first, every_ms=2)
    run = simulation(spec, [left], [right], DAY_MS)

    run.drain()

    bound = most_within(right, spec.span_ms) + 2 * spec.max_records
    assert run.run.largest_window <= bound < 3_000 / 4
    assert run.run.sorted_results() == oracle.join(History(run.left.history, run.right.history), spec)


def test_right_is_not_read_while_left_does_not_need_it():
    """Right far ahead: left is read at once, and right waits."""
    run = simulation(join_spec(max_records=50), [steady(200)], [steady(2_000, 200_000)], DAY_MS)

    while run.between().buckets[0].left[0].end < 200:
        assert run.admit()

    assert run.between().buckets[0].right[0].end <= 2 * 50


# Batches without records


def live(**changes):
    """A live run whose window holds records that expire one by one, long after the last record was read."""
    spec = join_spec(before_ms=10_000, producer_delay_ms=100, frontier_every_ms=1_000, **changes)
    run = simulation(spec, [[(1_000, b"a")]], [[(1_000 + 90 * i, b"b") for i in range(40)]], 5_000)
    batches(run)
    return run


def test_batches_that_only_expire_keep_their_distance():
    """At most one per `frontier_every_ms`, and none once the window is empty."""
    run = live()
    assert run.run.window

    listed = [run.state.listed_ms]
    for _ in range(400):
        run.clock.advance(50)
        if run.admit():
            listed.append(run.state.listed_ms)

    assert all(b - a >= 1_000 for a, b in pairwise(listed))
    assert 3 <= len(listed) <= 20
    assert run.run.window == 0
    assert not run.admit()


def test_nothing_to_do_gives_no_admission():
    """So that Spark sees no new offset."""
    run = live()

    listing = list_ends(run.left, run.right, run.clock.now_ms + 500)

    found = admit(run.spec, run.between(), listing, run.left, run.right)

    assert isinstance(found, Held)
    assert not found.left_waits


def test_two_empty_topics_admit_nothing_ever():
    """The clock alone starts no batch."""
    run = simulation(join_spec(), [[], []], [[], []], 1_000)

    for _ in range(20):
        run.clock.advance(DAY_MS)
        assert not run.admit()

    assert run.state.number == 0


def test_a_job_without_records_has_one_batch_per_day():
    """It renews the receipts of its buckets, which Kafka expires after a week."""
    run = live()
    run.clock.advance(DAY_MS // 2)
    batches(run)
    number = run.state.number

    for _ in range(10):
        run.clock.advance(DAY_MS // 2)
        run.admit()

    assert run.state.number == number + 5


def test_right_is_listed_before_left():
    """A left record that came after right was listed would otherwise pass by a clock that right has not seen."""
    asked = []

    class Log:
        def __init__(self, name):
            self.name = name

        def ends(self):
            asked.append(self.name)
            return {}

    list_ends(Log("left"), Log("right"), 0)

    assert asked == ["right", "left"]


def test_the_frontier_is_unknown_until_right_says_something():
    """Right starts with an open transaction: left is looked at once, and stays where it is."""
    run = simulation(join_spec(), [steady(5)], [[(1_000, b"a", 2 * DAY_MS)]], DAY_MS)

    looked = run.admit()

    assert looked
    assert not run.admit()
    assert run.run.results == []
    assert run.between().buckets[0].frontier_ms == UNKNOWN
    left = run.between().buckets[0].left[0]
    assert (left.start, left.held_ms) == (0, 1_000)


# Hints and facts


def test_a_plan_says_how_far_to_read_and_what_will_most_likely_come_of_it():
    """Right up to what left needs, left up to where right admits it, and slightly further each."""
    run = simulation(join_spec(idle=Idle.HOLD), [steady(100)], [steady(2_000, 1_050)], DAY_MS)

    planned = run.plan(run.spec)
    run.admit()

    (bucket,), (expected,) = planned.admission.buckets.values(), planned.expected.values()
    assert planned.admission == run.state
    assert bucket.left[0].end == 100
    assert 50 <= bucket.right[0].end <= 50 + run.spec.after_ms + 2 + BLOCKS_AHEAD
    facts = run.facts(0)
    assert facts.left[0].end == expected.left[0].end == 100
    assert facts.right[0].end == expected.right[0].end == bucket.right[0].end
    assert abs(facts.frontier_ms - expected.frontier_ms) <= BLOCKS_AHEAD


def test_left_that_the_hint_reads_too_far_is_held_back_by_its_records():
    """One late record misled the search: what right has not reached waits, and goes with its match."""
    side = Side(topic="left", disorder_ms=0, time="$.t", format=Format.JSON)
    right_side = Side(topic="right", disorder_ms=0, time="$.t", format=Format.JSON)
    left = [(1_000 + i, b"a") for i in range(40)]
    right = [*[(1_000 + i, b"a") for i in range(20)], (1_040, b"b", 2 * DAY_MS)]
    spec = join_spec(left=side, right=right_side, outliers=1, after_ms=0)
    run = Simulation(History(with_payload(topic("left", left)), with_payload(topic("right", right)), DAY_MS), spec)
    run.admit()
    state = run.state
    bucket = state.buckets[0]
    wrong = replace(bucket, left={0: bucket.left[0].to(40)})

    run.state = replace(state, buckets={0: wrong})
    rows = [row["left_offset"] for frame in run.retry() for row in frame.iter_rows(named=True)]

    facts = run.facts(0)
    assert facts.right[0].progress_ms == 1_016  # the median of its last full block
    assert facts.left[0] == replace(facts.left[0], end=16, held_ms=1_016)
    assert rows == list(range(16))


def test_a_plan_made_ahead_is_set_on_what_the_batch_before_has_really_left():
    """The ranges' ends stay; their starts, the reports and the bounds are facts."""
    run = simulation(join_spec(max_records=100), [steady(500)], [steady(500)], DAY_MS)
    first = run.plan(run.spec)
    listing = list_ends(run.left, run.right, run.clock.now_ms)
    ahead = admit(run.spec, first.admission.after(first.expected, run.spec), listing, run.left, run.right)
    run.admit()

    rebased = ahead.rebased(run.between())

    (bucket,), (state,), (hint,) = (one.buckets.values() for one in (rebased.admission, run.between(), ahead.admission))
    for side in SIDES:
        now, known = bucket.side(side)[0], state.side(side)[0]
        assert now == replace(known, end=max(hint.side(side)[0].end, known.start), claim_ms=now.claim_ms)
    assert (bucket.frontier_ms, bucket.expiry_ms, bucket.oldest_ms) == (
        state.frontier_ms,
        state.expiry_ms,
        state.oldest_ms,
    )


class PlannedAhead(Simulation):
    """Each batch is planned while the previous one runs, from the facts expected of it, as the driver does."""

    ahead = None

    def plan(self, spec):
        ahead, self.ahead = self.ahead, None
        planned = None
        if ahead is not None:
            rebased = ahead.rebased(self.between())
            planned = rebased if any(b.reads for b in rebased.admission.buckets.values()) else None
        planned = planned or super().plan(spec)
        if planned is not None:
            listing = list_ends(self.left, self.right, self.clock.now_ms)
            state = planned.admission.after(planned.expected, spec)
            found = admit(spec, state, listing, self.left, self.right, self._watch)
            self.ahead = found if isinstance(found, Planned) else None
        return planned


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_plans_that_were_made_ahead_give_the_same_rows(data):
    """However wrong the expected facts were, and however old the plans: the output is the oracle's."""
    spec = data.draw(specs().filter(lambda spec: spec.idle is Idle.ADVANCE))
    history = data.draw(histories(spec, co_partitioned=True, max_steps=20))
    steps = data.draw(cuts())

    run = PlannedAhead(history, spec).play(steps).drain(600)

    assert run.sorted_results() == oracle.join(history, spec)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_facts_that_are_read_again_are_those_that_were_found(data):
    """For any batch: they depend only on the log and the admission; only whether the window is empty is unknown."""
    spec = data.draw(specs())
    history = data.draw(histories(spec, co_partitioned=True, max_steps=20, wrong_times=data.draw(st.booleans())))
    run = Simulation(history, spec)

    for step in data.draw(cuts()):
        run.play([step])
        for number, ticket in run._tickets(run.state).items() if run.state.number else ():
            again = find_facts(spec, ticket, run._read)
            assert again == replace(run.facts(number), oldest_ms=again.oldest_ms)
            kept = run.facts(number).oldest_ms
            assert kept is None or again.oldest_ms <= kept


def test_a_window_that_has_expired_is_not_expired_again_where_its_facts_are_lost():
    """Otherwise a batch of nothing would follow another one as fast as they go."""
    spec = join_spec(frontier_every_ms=1)
    run = simulation(spec, [[(1_000, b"a")]], [[(1_000, b"a"), (1_001, b"b")]], DAY_MS)
    for _ in range(5):
        run.admit()
        run.restart(lose_files=True)
        run.clock.advance(1_000)

    assert not run.admit()
    assert run.run.window == 0
