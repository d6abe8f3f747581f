"""What left waits for, as a batch plan says it, and when that is worth a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from datadelay.watermark import Idle
from joins.plan.available_now import AvailableNow
from joins.plan.readable import list_ends
from joins.plan.sync_bolt import StallTimer, SyncBolt
from joins.plan.wait_reasons import USUAL_MS, Cause, LeftWaits, NotReady, Waited, for_people
from joins.spec import JoinSpec
from joins.testing.history import History
from joins.testing.simulation import Simulation
from tests.support.making import join_spec, topic

HELD = LeftWaits(Cause.OPEN_TRANSACTION, 0, 0, 7, waiting={0: 3}, end=7)


def held(spec: JoinSpec, left: Any, right: Any, at_ms: int) -> NotReady:
    """What a join of these records, one partition each, waits for once nothing more may be read."""
    run = Simulation(History(topic("left", left), topic("right", right), at_ms), spec)
    while run.admit():
        pass
    end_offsets = list_ends(run.left, run.right, run.clock.now_ms)
    found = SyncBolt(run.spec, {"left": run.left, "right": run.right}).plan(run.between(), end_offsets)
    assert isinstance(found, NotReady)
    return found


def test_an_open_transaction_is_named() -> None:
    """With the partition, and the offset at which it holds the end."""
    spec = join_spec()
    (wait,) = held(spec, [(1_000, b"a")], [(1_000, b"b"), (1_001, b"a", 60_000)], 2_000).waits

    assert (wait.cause, wait.waiting) == (Cause.OPEN_TRANSACTION, {0: 1})
    assert for_people(spec, 0, [wait]) == (
        "holds since 1970-01-01T00:00:00.000Z: 1 left records in partitions [0] wait for right; "
        "right-0: an open transaction holds its end at offset 1"
    )


def test_a_held_idle_partition_is_named() -> None:
    """And the setting that makes it hold."""
    spec = join_spec(idle=Idle.HOLD)
    (wait,) = held(spec, [(5_000, b"a")], [(1_000, b"a")], 86_400_000).waits

    assert wait.cause is Cause.IDLE_HOLD
    assert "`idle: hold`" in for_people(spec, 0, [wait])


def test_left_that_only_waits_for_time_to_pass_says_so() -> None:
    """Right is read to its end; its next record may still belong to left's last one."""
    spec = join_spec(producer_delay_ms=1_000)
    (wait,) = held(spec, [(1_000, b"a")], [(1_000, b"a")], 1_000).waits

    assert wait.cause is Cause.CLOCK
    assert "right-0: nothing more to read at offset 1" in for_people(spec, 0, [wait])


def test_a_run_that_waits_for_the_clock_says_until_when() -> None:
    """When the next row comes, and when the last one does: the step for both, and the newest left record."""
    spec = join_spec(after_ms=60_000, producer_delay_ms=1_000)
    run = Simulation(
        History(topic("left", [(1_000, b"a"), (9_000, b"a")]), topic("right", [(1_000, b"a")]), 10_000), spec
    )
    now = AvailableNow()
    for _ in range(3):
        end_offsets = list_ends(run.left, run.right, run.clock.now_ms)
        state = run.between()
        end_offsets = now.in_steps(spec, now.cut(end_offsets, state), run.left, state)
        found = SyncBolt(spec, {"left": run.left, "right": run.right}).plan(state, end_offsets)
        if isinstance(found, NotReady):
            break
        run.carry_on(found)

    assert isinstance(found, NotReady)
    assert for_people(spec, 0, [*found.waits], found.last_ms).endswith(
        "next row at 1970-01-01T00:01:03.901Z; the last row at 1970-01-01T00:01:10.001Z"
    )
    other = replace(found.waits[0], cause=Cause.OPEN_TRANSACTION)
    assert "the last row" not in for_people(spec, 0, [*found.waits, other], found.last_ms)


def test_a_lookup_join_waits_for_the_feeder() -> None:
    """Up to when right is stored, and by whom, is in the line."""
    spec, right = join_spec(), topic("right", [])
    run = Simulation(History(topic("left", [(1_000, b"a")]), right, 1_000), spec)
    end_offsets = list_ends(run.left, run.right, run.clock.now_ms)
    state = run.between()
    state = replace(state, buckets={n: structs.replace(bucket, right={}) for n, bucket in state.buckets.items()})

    bolt = SyncBolt(spec, {"left": run.left}, StallTimer(0))
    found = bolt.plan_left(state, end_offsets, 500)
    for _ in range(3):  # left is examined first
        if isinstance(found, NotReady):
            break
        state = found.batch_plan.after(found.expected, spec)
        found = bolt.plan_left(state, end_offsets, 500)

    assert isinstance(found, NotReady)
    (wait,) = found.waits
    assert (wait.cause, wait.stored_ms) == (Cause.DATA_DELAY, 500)
    assert "'feeder' has stored 'right' only up to 1970-01-01T00:00:00.500Z" in for_people(
        spec, 0, [replace(wait, detail="feeder")]
    )


def test_left_that_is_read_to_its_end_waits_for_nothing() -> None:
    """A quiet topic is not a problem."""
    assert not held(join_spec(), [], [(1_000, b"b"), (1_001, b"a", 60_000)], 2_000).left_waits


def test_a_wait_is_reported_once_it_lasts_longer_than_usual() -> None:
    """With the time from which on left has waited for the same thing, however many records wait by now."""
    waited, usual_ms = Waited(), int(USUAL_MS[Cause.OPEN_TRANSACTION])
    more = replace(HELD, waiting={0: 99}, end=8)

    assert waited.unusual(NotReady(1_000, (HELD,))) == (1_000, [])
    assert waited.unusual(NotReady(1_000 + usual_ms - 1, (more,)))[1] == []
    assert waited.unusual(NotReady(1_000 + usual_ms, (more,))) == (1_000, [more])


def test_a_wait_that_has_moved_on_starts_over() -> None:
    """The next transaction is another one; so is the same one after left had nothing to wait for."""
    waited, usual_ms = Waited(), int(USUAL_MS[Cause.OPEN_TRANSACTION])
    later = replace(HELD, offset=8)
    waited.unusual(NotReady(0, (HELD,)))

    assert waited.unusual(NotReady(usual_ms, (later,)))[1] == []
    assert waited.unusual(NotReady(2 * usual_ms, (later,)))[1] == [later]
    assert waited.unusual(NotReady(2 * usual_ms))[1] == []
    assert waited.unusual(NotReady(3 * usual_ms, (later,)))[1] == []


@pytest.mark.parametrize(("all_causes", "lines"), [(False, 0), (True, 1)])
def test_waiting_for_the_clock_is_reported_only_on_request(all_causes: bool, lines: int) -> None:
    """It always ends; a run under `available_now` says so nevertheless, as nothing else happens."""
    waits = (LeftWaits(Cause.CLOCK, 0, 0, 7, waiting={0: 3}, end=7),)
    waited = Waited()
    waited.unusual(NotReady(0, waits))

    assert len(waited.unusual(NotReady(10**9, waits), all_causes=all_causes)[1]) == lines


def test_of_thousands_of_partitions_the_line_names_a_few() -> None:
    """It is logged every ten seconds."""
    waits = [LeftWaits(Cause.OPEN_TRANSACTION, p, p, 7, waiting={p: 3}, end=7) for p in range(1_000)]

    line = for_people(join_spec(), 0, waits)

    assert "3000 left records in partitions [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] and 990 more wait for right" in line
    assert line.endswith("right-9: an open transaction holds its end at offset 7 and 990 more")


def test_the_main_cause_is_what_most_left_records_wait_for() -> None:
    """The clock only if nothing else is in the way: it passes by itself."""
    clock, unread = LeftWaits(Cause.CLOCK, 0, waiting={0: 90}), LeftWaits(Cause.UNREAD, 1, waiting={1: 5})

    assert NotReady(0, (clock, unread)).main_cause is Cause.UNREAD
    assert NotReady(0, (clock, replace(unread, waiting={}))).main_cause is Cause.CLOCK
    assert NotReady(0, (HELD, replace(unread, waiting={1: 2}))).main_cause is HELD.cause
