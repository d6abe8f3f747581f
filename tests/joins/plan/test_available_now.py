"""What a run under `available_now` reads, and when it ends, over a simulated log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.plan import clock_steps
from joins.plan.available_now import AvailableNow
from joins.plan.clock_steps import ClockSteps, may_go_at
from joins.plan.readable import EndOffsets
from joins.plan.wait_reasons import USUAL_MS, Cause
from joins.spec import JoinSpec
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import histories
from teacup.kafka.headers import NO_CANDIDATE
from teacup.kafka.log.topic_log import Ends
from tests.support.making import Row, changed, join_spec, topic

SPAN_MS = 10_000
SPEC = join_spec(before_ms=SPAN_MS, producer_delay_ms=100, watermark_every_ms=1)
"""Batches may follow each other at once, and the window expires for ten seconds."""


def simulation(left: list[Row], right: list[Row], at_ms: int) -> Simulation:
    return Simulation(History(topic("left", left), topic("right", right), at_ms), SPEC)


def test_it_ends_when_left_is_read_and_the_window_is_left_to_the_next_run() -> None:
    """Every batch reads something; the right records that have not expired are reported by the next run."""
    right: list[Row] = [(1_000 + 90 * i, b"b") for i in range(40)]
    run = simulation([(1_000, b"a"), (60_000, b"a", 60_000)], [*right, (60_000, b"a", 60_000)], 5_000)

    assert run.available_now() <= 2
    assert len(run.run.results) == 1
    assert run.run.window
    assert run.available_now() == 0

    run.clock.advance(60_000)
    assert run.available_now() <= 2
    assert len(run.run.results) == 2
    assert sorted(run.run.unjoined) == [(0, i) for i in range(40)]


def test_records_that_come_meanwhile_are_left_to_the_next_run() -> None:
    """A live right topic does not keep the run going."""
    live: list[Row] = [(t, b"b") for t in range(1_000, 60_000, 50)]
    run = simulation([(5_000, b"a")], live, 5_000)

    run.available_now()

    assert run.clock.now_ms < 6_000
    assert run.between().buckets[0].right[0].end < 200


def test_right_is_read_although_left_is_silent() -> None:
    """To its end of the first look: retention would otherwise overtake the position."""
    run = simulation([(1_000, b"a")], [(t, b"b") for t in range(1_000, 60_000, 50)], 30_000)

    run.available_now()
    run.clock.advance(60_000)
    run.available_now()

    assert run.between().buckets[0].right[0].end == len(range(1_000, 60_000, 50))


def test_one_that_was_told_where_left_ends_reads_no_further_on_either_side() -> None:
    """However far the log goes, and wherever the run begins again."""
    end_offsets = EndOffsets(5, {0: Ends(0, 90, 90), 1: Ends(0, 4, 4), 2: Ends(7, 9, 9)}, {0: Ends(0, 80, 80)})
    nothing_read = begun_at(left={0: 0, 1: 0, 2: 7}, right={0: 0})
    all_read = begun_at(left={0: 50, 1: 4, 2: 7}, right={0: 30})
    run = AvailableNow({0: 50, 1: 50})

    first, last = run.cut(end_offsets, nothing_read), run.cut(end_offsets, all_read)

    assert {p: ends.stable for p, ends in first.left.items()} == {0: 50, 1: 4, 2: 7}
    assert first.right[0].stable == 80
    assert last.right[0].stable == 30


def begun_at(left: dict[int, int], right: dict[int, int]) -> BatchPlan:
    """The state in which both sides are read so far."""
    sides = ({p: PartitionRange.starting_at(at) for p, at in side.items()} for side in (left, right))
    return BatchPlan("g", 1, 0, 0, 0, {}, {}, {0: Bucket(0, *sides)})


def test_with_idle_hold_it_ends_once_right_has_been_silent_and_the_next_run_goes_on() -> None:
    """Left may wait for right records that never come: a run started by cron would never end."""
    spec = join_spec(before_ms=SPAN_MS, producer_delay_ms=1_000, idle=Idle.HOLD)
    left: list[Row] = [(1_000, b"a"), (2_000, b"a")]
    right: list[Row] = [(1_000, b"a"), (1_500, b"b"), (90_000, b"b", 90_000)]
    run = Simulation(History(topic("left", left), topic("right", right), 5_000), spec)

    run.available_now()
    ended_ms, decided = run.clock.now_ms, outcomes(run)
    run.clock.advance(90_000)
    run.available_now()

    assert USUAL_MS[Cause.IDLE_HOLD] <= ended_ms - 5_000 <= USUAL_MS[Cause.IDLE_HOLD] + 5_000
    assert decided == [(0, "matched")]
    assert outcomes(run) == [(0, "matched"), (1, "matched")]


def test_with_max_wait_it_waits_until_left_has_waited_long_enough() -> None:
    """Then all of left is decided."""
    spec = join_spec(before_ms=1, producer_delay_ms=1_000, idle=Idle.HOLD, max_wait_ms=60_000)
    run = Simulation(History(topic("left", [(2_000, b"a")]), topic("right", [(1_000, b"a")]), 5_000), spec)

    run.available_now()

    assert outcomes(run) == [(0, "unmatched")]


def outcomes(run: Simulation) -> list[tuple[int, str]]:
    return [(result.left_offset, result.outcome) for result in run.run.sorted_results()]


@given(histories(SPEC, co_partitioned=True), st.integers(1, 30))
def test_runs_one_after_another_give_the_rows_of_the_oracle(history: History, runs: int) -> None:
    """Wherever each one ends."""
    run = Simulation(history, SPEC)

    for _ in range(runs):
        run.available_now()
        run.clock.advance(SPAN_MS // 10)

    assert run.drain().results is run.run.results
    assert run.run.sorted_results() == oracle.join(history, SPEC)


MINUTE_MS = 60_000
WAITS = join_spec(before_ms=MINUTE_MS, after_ms=30 * MINUTE_MS, producer_delay_ms=MINUTE_MS)


def test_while_only_the_clock_is_waited_for_left_goes_in_a_few_batches() -> None:
    """A click a minute, the last one just now: nobody waits for single rows of a run that ends."""
    clicks: list[Row] = [(minute * MINUTE_MS, b"a") for minute in range(1, 37)]
    run = Simulation(History(topic("left", clicks), topic("right", [(1_000, b"a")]), 36 * MINUTE_MS), WAITS)

    batches = run.available_now()

    assert batches <= 2 + 10
    assert len(run.run.results) == 36
    assert run.clock.now_ms <= may_go_at(WAITS, 36 * MINUTE_MS) + WAITS.producer_delay_ms


def test_with_max_wait_right_that_follows_the_clock_has_not_stalled() -> None:
    """It would seem so between two steps, were they longer than `max_wait`."""
    spec = changed(WAITS, max_wait_ms=MINUTE_MS)
    clicks: list[Row] = [(minute * MINUTE_MS, b"a") for minute in range(1, 37)]
    run = Simulation(History(topic("left", clicks), topic("right", [(1_000, b"b")]), 36 * MINUTE_MS), spec)

    run.available_now()

    assert {result.reason for result in run.run.results} == {NO_CANDIDATE}


@given(
    histories(WAITS, co_partitioned=True),
    st.sampled_from([WAITS, changed(WAITS, max_wait_ms=5 * MINUTE_MS)]),
)
def test_a_run_in_steps_writes_the_same_rows_and_ends_at_the_same_time(history: History, spec: JoinSpec) -> None:
    """As one that reads what it may at each look, in no fewer batches."""
    in_steps, at_each_look = Simulation(history, spec), Simulation(history, spec)

    batches = in_steps.available_now()
    with pytest.MonkeyPatch.context() as without:
        without.setattr(clock_steps, "LONGEST_STEP_MS", 1)
        more_batches = at_each_look.available_now()

    assert batches <= more_batches
    assert in_steps.clock.now_ms == at_each_look.clock.now_ms
    assert in_steps.run.sorted_results() == at_each_look.run.sorted_results()
    assert in_steps.run.late == at_each_look.run.late


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(0, 12_000))
def test_steps_end_with_the_last_record_and_are_not_further_apart_than_said(last: int, every: int, now: int) -> None:
    """What the clock proves is never ahead of it, and the next step is the first time at which it proves more."""
    steps = ClockSteps(last, every)

    assert now - every < steps.at(now) <= now
    assert steps.at(last) == last
    assert steps.at(steps.next_from(now)) == steps.next_from(now) >= now
    assert steps.at(steps.next_from(now) - 1) < now
