"""A look that found nothing says until when it stays right: nothing that a plan would find meanwhile is missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.plan.readable import list_ends
from joins.plan.sync_bolt import PLAN_EVERY_MS, Planned, SyncBolt
from joins.plan.wait_reasons import NotReady
from joins.spec import JoinPath
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories, specs
from tests.support.making import changed, join_spec, topic


@st.composite
def joins_with_history(draw):
    """On either path, whatever idle partitions prove, with and without `max_wait`."""
    shuffled = draw(st.booleans())
    changes = {"path": JoinPath.SHUFFLED, "buckets": None} if shuffled else {}
    spec = changed(draw(specs()), max_wait_ms=draw(st.none() | st.just(50)), **changes)
    return spec, draw(histories(spec, co_partitioned=not shuffled, wrong_times=draw(st.booleans())))


def at_rest(spec, left, right, start_ms):
    """A join that has read what it may, without moving the clock."""
    run = Simulation(History(topic("left", left), topic("right", right), start_ms), spec)
    while run.admit():
        pass
    return run


def look(run, at_ms):
    """What a plan finds at a time at which the topics still end where they do now."""
    end_offsets = replace(list_ends(run.left, run.right, at_ms), listed_ms=at_ms)
    return SyncBolt(run.spec, {"left": run.left, "right": run.right}).plan(run.between(), end_offsets)


@given(joins_with_history(), cuts(), st.data())
def test_until_then_a_plan_finds_nothing_either(join, steps, data):
    """However the join came there: the same ends, and any time before `until_ms`."""
    spec, history = join
    run = Simulation(history, spec).play(steps)
    while run.admit():
        pass
    held = look(run, run.clock.now_ms)
    assume(isinstance(held, NotReady) and held.until_ms > held.listed_ms)

    later_ms = data.draw(st.integers(held.listed_ms, held.until_ms - 1) | st.just(held.until_ms - 1))

    assert isinstance(look(run, later_ms), NotReady)


def test_left_that_waits_for_the_clock_goes_at_that_time():
    """And not a moment later."""
    spec = join_spec(producer_delay_ms=100, after_ms=5)
    run = at_rest(spec, [(1_000, b"a")], [(1_000, b"a")], 1_000)

    held = look(run, 1_000)

    assert held.left_waits
    assert held.until_ms == 1_000 + 5 + 100 + 1
    assert isinstance(look(run, held.until_ms - 1), NotReady)
    assert isinstance(look(run, held.until_ms), Planned)


def test_the_window_expires_at_that_time():
    """Once its oldest record matches nothing to come, if the last batch is long enough ago."""
    spec = join_spec(before_ms=300, after_ms=0, producer_delay_ms=100, watermark_every_ms=200)
    run = at_rest(spec, [(1_000, b"a")], [(1_000, b"a")], 1_200)

    held = look(run, 1_200)

    assert not held.left_waits
    assert held.until_ms == 1_000 + 300 + 100 + 1
    assert isinstance(look(run, held.until_ms), Planned)


def test_batches_that_only_expire_the_window_keep_their_distance():
    """What has expired waits for the time at which the next such batch may run."""
    spec = join_spec(before_ms=300, after_ms=0, producer_delay_ms=100, watermark_every_ms=900)
    run = at_rest(spec, [(1_000, b"a")], [(1_000, b"a")], 1_200)

    assert look(run, 1_200).until_ms == look(run, 1_500).until_ms == 1_200 + 900


def test_nothing_to_wait_for_is_looked_at_every_second():
    """A recreated topic is noticed that soon."""
    assert look(at_rest(join_spec(), [], [], 1_000), 1_000).until_ms == 1_000 + PLAN_EVERY_MS


@pytest.mark.parametrize(
    ("spec", "right"),
    [
        (join_spec(), [(1_000, b"b"), (1_001, b"a", 60_000)]),  # an open transaction
        (join_spec(max_wait_ms=500, producer_delay_ms=1_000), [(1_000, b"b")]),
    ],
)
def test_where_more_than_the_clock_decides_each_look_is_a_plan(spec, right):
    """The time is that of the look itself."""
    run = at_rest(spec, [(1_000, b"a")], right, 2_000)

    assert look(run, 1_900).until_ms == 1_900


def test_an_open_end_of_a_right_topic_that_nobody_waits_for_is_planned_for():
    """Its records come at any moment, without the topic growing."""
    run = at_rest(join_spec(idle=Idle.HOLD), [], [(1_000, b"b"), (1_001, b"a", 60_000)], 2_000)

    assert look(run, 2_000).until_ms == 2_000


def test_what_it_found_names_the_ends_that_it_saw():
    """Of every partition of both topics: a record more on either side ends the quiet."""
    run = at_rest(join_spec(), [(1_000, b"a")], [(1_000, b"a"), (1_001, b"b", 60_000)], 2_000)

    assert look(run, 2_000).highs == {"left": {0: 1}, "right": {0: 2}}
