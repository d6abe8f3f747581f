"""How long left waits for right: `max_wait`, and a right that is idle."""

from __future__ import annotations

import pytest

from datadelay.watermark import Idle
from joins.spec import Side
from joins.testing.history import History
from joins.testing.simulation import Simulation
from tests.joins.testing.planning import DAY_MS, batches, outcomes, simulation, steady
from tests.support.making import join_spec, topic

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
    advanced_ms = run.state.buckets[0].advanced_ms

    run.clock.advance(advanced_ms + 499 - run.clock.now_ms)
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
    """Over idle topics the watermark follows the clock without any batch plan: the wait starts when that ends."""
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
    """However far behind it is: the wait starts over with each step of its watermark."""
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
    """Its watermark stays for many batches of one millisecond: the limit holds it, not the topic."""
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
