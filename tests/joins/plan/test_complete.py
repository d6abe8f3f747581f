"""Runs over topics that are complete, over a simulated log: no clock is waited for, and nothing is wrong silently."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.spec import JoinPath, JoinSpec
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import histories
from tests.support.making import Row, join_spec, topic

DAY_MS = 24 * 3_600_000
SPEC = join_spec(before_ms=10_000, after_ms=5_000, producer_delay_ms=100, complete=True)
SPECS = st.sampled_from(
    [
        SPEC,
        replace(SPEC, idle=Idle.HOLD),
        replace(SPEC, path=JoinPath.SHUFFLED, buckets=2),
        replace(SPEC, max_records=3),
    ]
)


def at_its_end(history: History) -> History:
    """The same, with a run that begins once all is there."""
    return replace(history, start_ms=history.end_ms)


@given(SPECS.flatmap(lambda spec: st.tuples(st.just(spec), histories(spec, co_partitioned=True))))
def test_one_run_gives_every_row_of_what_is_there_and_every_record_without_one(drawn: tuple[JoinSpec, History]) -> None:
    """As brute force does, in no time."""
    spec, history = drawn[0], at_its_end(drawn[1])
    run = Simulation(history, spec)
    began_ms = run.clock.now_ms

    run.available_now()

    assert run.run.sorted_results() == oracle.join(history, spec)
    rights = oracle.unjoined(history, spec, run.run.results)
    assert set(run.run.unjoined) == {(p, at) for p, at in rights if at >= run.started_at["right"][p]}
    assert run.run.late == []
    assert run.clock.now_ms == began_ms


@given(histories(SPEC, co_partitioned=True, wrong_times=True))
def test_records_with_wrong_times_take_part_as_ever(history: History) -> None:
    """Those that are far ahead of their neighbours, too: every record is in a row, unjoined, or a dead letter."""
    history = at_its_end(history)
    run = Simulation(history, SPEC)

    run.available_now()

    lefts = {(event.partition, event.offset) for event in history.left.records()}
    dead = {(p, at) for side, p, at in run.run.dead if side == "left"}
    assert {(row.left_partition, row.left_offset) for row in run.run.results} == lefts - dead


@given(
    st.sampled_from([SPEC, replace(SPEC, idle=Idle.HOLD)]).flatmap(
        lambda spec: st.tuples(st.just(spec), histories(spec, co_partitioned=True))
    ),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=10),
)
def test_what_comes_later_nevertheless_is_flagged_where_a_row_lacks_its_match(
    drawn: tuple[JoinSpec, History], gaps_ms: list[int]
) -> None:
    """Each run says that nothing follows, and more does: a row that differs is about a late record."""
    spec, history = drawn
    run = Simulation(history, spec)
    for gap_ms in gaps_ms:
        run.available_now()
        run.clock.advance(gap_ms)
    run.clock.advance(max(history.end_ms - run.clock.now_ms, 0))
    run.available_now()

    late = set(run.run.late)
    found, expected = run.run.sorted_results(), oracle.join(history, spec)
    assert [(row.left_partition, row.left_offset) for row in found] == [
        (row.left_partition, row.left_offset) for row in expected
    ]
    for row, right in zip(found, expected, strict=True):
        if row != right:
            sides = {("left", row.left_partition, row.left_offset), ("right", *(right.right or (None, None)))}
            assert sides & late, (row, right)


@pytest.mark.parametrize("idle", Idle)
def test_the_next_days_records_are_not_late(idle: Idle) -> None:
    """The watermark is one of the records, not the clock's: only what could match them is late."""
    left: list[Row] = [(1_000, b"a"), (DAY_MS + 1_000, b"a")]
    right: list[Row] = [(1_500, b"a"), (DAY_MS + 2_000, b"a"), (3_000, b"b")]
    run = Simulation(History(topic("left", left), topic("right", right), DAY_MS - 1), replace(SPEC, idle=idle))

    first = run.available_now()
    run.clock.advance(DAY_MS)
    run.available_now()

    assert first <= 2
    assert [row.outcome for row in run.run.sorted_results()] == ["matched", "matched"]
    assert set(run.run.late) == {("right", 0, 2)}


def test_an_open_transaction_is_waited_for() -> None:
    """What it hides belongs to the topic."""
    history = History(topic("left", [(1_000, b"a")]), topic("right", [(1_000, b"b"), (1_100, b"a", 4_000)]), 2_000)
    run = Simulation(history, SPEC)

    run.available_now()

    assert [row.outcome for row in run.run.sorted_results()] == ["matched"]
    assert 4_000 <= run.clock.now_ms < 5_000
