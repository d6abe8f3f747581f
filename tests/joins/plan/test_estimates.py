"""Ranges and expected facts are estimates: plans made ahead, and facts that are read again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from datadelay.watermark import Idle
from joins.plan.readable import BLOCKS_AHEAD, list_ends
from joins.plan.sync_bolt import SyncBolt
from joins.read.batch_reader import find_facts
from joins.spec import Format, Side
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories, specs
from tests.joins.testing.planning import DAY_MS, SIDES, simulation, steady, with_payload
from tests.support.making import join_spec, topic


def test_a_plan_says_how_far_to_read_and_what_will_most_likely_come_of_it():
    """Right up to what left needs, left up to where right admits it, and slightly further each."""
    run = simulation(join_spec(idle=Idle.HOLD), [steady(100)], [steady(2_000, 1_050)], DAY_MS)

    planned = run.plan()
    run.admit()

    (bucket,), (expected,) = planned.batch_plan.buckets.values(), planned.expected.values()
    assert planned.batch_plan == run.state
    assert bucket.left[0].end == 100
    assert 50 <= bucket.right[0].end <= 50 + run.spec.right.after_ms + 2 + BLOCKS_AHEAD
    facts = run.facts(0)
    assert facts.left[0].end == expected.left[0].end == 100
    assert facts.right[0].end == expected.right[0].end == bucket.right[0].end
    assert abs(facts.watermark_ms - expected.watermark_ms) <= BLOCKS_AHEAD


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
    wrong = structs.replace(bucket, left={0: bucket.left[0].to(40)})

    run.state = replace(state, buckets={0: wrong})
    rows = [row["left_offset"] for frame in run.retry() for row in frame.iter_rows(named=True)]

    facts = run.facts(0)
    assert facts.right[0].watermark_ms == 1_018  # what all but one of the last records have reached
    assert facts.left[0] == structs.replace(facts.left[0], end=18, held_ms=1_018)
    assert rows == list(range(18))


def test_a_plan_made_ahead_is_set_on_what_the_batch_before_has_really_left():
    """The ranges' ends stay; their starts, the reports and the bounds are facts."""
    run = simulation(join_spec(max_records=100), [steady(500)], [steady(500)], DAY_MS)
    first = run.plan()
    end_offsets = list_ends(run.left, run.right, run.clock.now_ms)
    ahead = SyncBolt(run.spec, {"left": run.left, "right": run.right}).plan(
        first.batch_plan.after(first.expected, run.spec), end_offsets
    )
    run.admit()

    rebased = ahead.rebased(run.between())

    (bucket,), (state,), (estimate,) = (
        plan.buckets.values() for plan in (rebased.batch_plan, run.between(), ahead.batch_plan)
    )
    for side in SIDES:
        now, known = bucket.side(side)[0], state.side(side)[0]
        assert now == structs.replace(known, end=max(estimate.side(side)[0].end, known.start), claim_ms=now.claim_ms)
    assert (bucket.watermark_ms, bucket.expiry_ms, bucket.oldest_ms) == (
        state.watermark_ms,
        state.expiry_ms,
        state.oldest_ms,
    )


@given(st.data())
def test_facts_that_are_read_again_are_those_that_were_found(data):
    """For any batch: they depend only on the log and the batch plan; only whether the window is empty is unknown."""
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
    spec = join_spec(watermark_every_ms=1)
    run = simulation(spec, [[(1_000, b"a")]], [[(1_000, b"a"), (1_001, b"b")]], DAY_MS)
    for _ in range(5):
        run.admit()
        run.restart(lose_files=True)
        run.clock.advance(1_000)

    assert not run.admit()
    assert run.run.window == 0
