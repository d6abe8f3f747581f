"""The whole in-memory join over a simulated log and clock: its output is the brute-force join, however it is run."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from datadelay.watermark import UNKNOWN, Idle
from joins.batch import rules
from joins.batch.facts import low_end
from joins.plan import bucket_plan
from joins.plan.log_checks import is_whole
from joins.plan.readable import list_ends
from joins.read import range_gate
from joins.read.range_gate import WatermarkTracker
from joins.spec import JoinPath
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.play import Admit, Retry
from joins.testing.simulation import Simulation
from joins.testing.strategies import BASE_MS, LONG_AFTER_MS, cuts
from joins.window import restore
from joins.window.window import Window
from teacup.base.clock import ClockReading, Trust, WallClock
from tests.support.canary import searched
from tests.support.joinhistories import (
    check_rows_of_others,
    joins_with_history,
    of_left,
    rows_of_others,
)
from tests.support.making import join_spec, topic
from tests.support.profiles import share


def never_joined(simulation):
    """The right records from right's start on that appear in no row of the oracle."""
    history, spec = History(simulation.left.history, simulation.right.history), simulation.spec
    start = simulation.started_at["right"]
    positions = oracle.unjoined(history, spec, oracle.made(history, spec))
    return sorted((p, offset) for p, offset in positions if offset >= start[p])


@pytest.mark.parametrize("few", [(0, 0), (bucket_plan.FEW, bucket_plan.FEW_OF_A_PARTITION)])
@given(join=joins_with_history(), steps=cuts())
def test_output_equals_the_oracle_for_any_cut_and_restart(few, join, steps):
    """Any batches, any clock, any restart: every left record once, with what the brute force gives it.

    Whether plans look for where to stop, or not.
    """
    spec, history = join

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_plan, "FEW", few[0])
        patch.setattr(bucket_plan, "FEW_OF_A_PARTITION", few[1])
        check_output(spec, history, steps)


def check_output(spec, history, steps):
    simulation = Simulation(history, spec).play(steps)
    run = simulation.drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert sorted(run.unjoined) == never_joined(simulation)
    assert not run.late
    assert run.window == 0


@pytest.mark.parametrize("more", [{"filtered": True}, {"one_topic": True}])
@given(data=st.data(), steps=cuts())
def test_a_side_that_takes_some_records_joins_these_only(more, data, steps):
    """By a field or a header; each other one is skipped once, and counted. Of one topic no record matches itself."""
    spec, history = data.draw(joins_with_history(**more))

    simulation = Simulation(history, spec).play(steps)
    run = simulation.drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert sorted(run.unjoined) == never_joined(simulation)
    skipped = [
        (name, event.partition, event.offset)
        for name, topic in (("left", simulation.left.history), ("right", simulation.right.history))
        for event in topic.records()
        if not event.fits(spec.side(name)) and event.offset >= simulation.started_at[name][event.partition]
    ]
    assert sorted(run.skipped) == sorted(skipped)


def test_a_rare_kind_is_read_as_fast_as_any():
    """What is skipped proves how far its partition has come, for the plan as for the task: it waits for no clock."""
    busy = topic("right", [(100 + at, b"a") for at in range(1_000)])
    rare = tuple(replace(event, type="ab"[event.offset % 100 == 50]) for event in busy.partitions[0])
    left = topic("left", [(200 + 10 * at, b"a") for at in range(50)])
    spec = join_spec(before_ms=50, idle=Idle.HOLD)
    spec = replace(spec, right=replace(spec.right, where={"header:type": "b"}))
    simulation = Simulation(History(left, replace(busy, partitions=(rare,)), start_ms=2_000), spec)

    batches = 0
    while simulation.admit(200):
        batches += 1

    assert len(simulation.run.results) == 50
    assert batches < 20


def test_a_right_record_stays_until_left_is_beyond_it_by_before():
    """Left is known to have reached 106, and the record that comes next, of 110, still matches one of 101."""
    left, right = topic("left", [(90, b"x"), (110, b"a")]), topic("right", [(101, b"a")])
    simulation = Simulation(History(left, right, start_ms=106), join_spec(before_ms=10))
    while simulation.admit():
        pass

    simulation.clock.advance(20)
    run = simulation.drain()

    assert [result.outcome for result in run.sorted_results()] == ["unmatched", "matched"]


@given(joins_with_history(), cuts(), st.data())
def test_lost_slices_are_read_again_from_the_log(join, steps, data):
    """Restarts on empty disks change nothing: neither rows, nor which right records are unjoined."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        simulation.play([step])
        if data.draw(st.booleans()):
            simulation.restart(lose_files=True)
    run = simulation.drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert sorted(run.unjoined) == never_joined(simulation)


@given(joins_with_history(), cuts(), st.data())
def test_what_was_read_and_left_the_window_may_be_deleted(join, steps, data):
    """By retention, also if slices and marks are lost then: the rows are the same, and none is falsely `unjoined`."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        if not isinstance(step, Retry):
            simulation.play([step])
        if data.draw(st.booleans()):
            delete_what_the_guard_allows(simulation)
            simulation.restart()
            for store in simulation.stores.values():
                store._slices.clear()
                store._marks.clear()
    run = simulation.drain()

    results = oracle.join(history, spec)
    assert of_left(run.sorted_results()) == of_left(results)
    assert set(run.results) <= set(results)
    assert set(run.unjoined) <= set(never_joined(simulation))
    assert len(run.unjoined) == len(set(run.unjoined))


@given(joins_with_history(), cuts(), st.data())
def test_a_planned_batch_that_retention_overtakes_is_planned_again(join, steps, data):
    """A kill, deleted left records, and `on_data_loss: continue`: the rest has its rows, what is lost is counted."""
    spec, history = join
    spec = replace(spec, on_data_loss="continue")
    simulation = Simulation(history, spec)
    left = simulation.left

    for step in steps:
        if not isinstance(step, Admit):
            simulation.play(() if isinstance(step, Retry) else [step])
            continue
        planned = simulation.plan()
        if planned is None:
            continue
        if data.draw(st.booleans()):  # killed before it has run
            p = data.draw(st.sampled_from(sorted(left.ends())))
            left.delete_before(p, data.draw(st.integers(0, left.ends()[p].high)))
            simulation.restart()
            if not is_whole(spec, planned.batch_plan, list_ends(left, simulation.right, 0)):
                continue
        simulation.carry_on(planned)
    run = simulation.drain()

    rows, found = of_left(oracle.join(history, spec)), of_left(run.sorted_results())
    written = {(result.left_partition, result.left_offset) for result in found}
    lost = {(result.left_partition, result.left_offset) for result in rows} - written
    assert found == [result for result in rows if (result.left_partition, result.left_offset) in written]
    assert not {result.right for result in found} & set(run.unjoined)
    assert all(offset < left.ends()[p].start for p, offset in lost)
    assert simulation.state.skipped.get("left", 0) >= len(lost)


def test_that_all_unread_records_are_deleted_is_said_at_once():
    """Not with the next record, which may not come for a day: until then they would count as unread."""
    history = History(topic("left", [(at * 10, b"a") for at in range(5)]), topic("right", []), start_ms=100)
    simulation = Simulation(history, join_spec(on_data_loss="continue"))
    simulation.left.delete_before(0, 5)

    planned = simulation.plan()
    assert planned is not None
    simulation.carry_on(planned)

    assert (simulation.state.skipped, simulation.unread()) == ({"left": 5}, 0)
    assert simulation.plan() is None


def delete_what_the_guard_allows(simulation):
    for bucket in simulation.between().buckets.values():
        for p, partition_range in bucket.left.items():
            simulation.left.delete_before(p, partition_range.start)
        for p, partition_range in bucket.right.items():
            simulation.right.delete_before(p, low_end(partition_range.bounds, bucket.expiry_ms))


@given(joins_with_history(), cuts())
def test_running_a_batch_again_gives_the_same_rows(join, steps):
    """A batch is a function of its batch plan: a retry in the same or in another worker gives the same rows."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        simulation.play([step])
        first = simulation.retry()
        simulation.restart()
        assert [f.to_dicts() for f in simulation.retry()] == [f.to_dicts() for f in first]


@given(joins_with_history(), cuts())
def test_watermarks_never_go_back(join, steps):
    """Neither the watermark nor the expiry of any bucket."""
    spec, history = join

    check_watermarks(Simulation(history, spec).play(steps).drain())


def check_watermarks(run):
    for earlier, later in zip(run.watermarks, run.watermarks[1:], strict=False):
        for bucket, (watermark, expiry) in earlier.items():
            assert later[bucket][0] >= watermark
            assert later[bucket][1] >= expiry


@pytest.mark.canary
def test_canary_with_reports_that_are_forgotten_a_watermark_goes_back(monkeypatch):
    """Each batch says only what it has found out by itself, and the watermark is not held where it was."""
    facts, watermark = range_gate.RangeGate.facts, rules.watermark

    def of_this_batch(self):
        self.partition_range = structs.replace(self.partition_range, watermark_ms=UNKNOWN)
        return facts(self)

    monkeypatch.setattr(range_gate.RangeGate, "facts", of_this_batch)
    monkeypatch.setattr(rules, "watermark", lambda watermark_ms, _=UNKNOWN: watermark(watermark_ms))

    @searched(seed=5)
    @given(joins_with_history(), cuts())
    def property_holds(join, steps):
        check_watermarks(Simulation(join[1], join[0]).play(steps).run)

    with pytest.raises(AssertionError):
        property_holds()


@given(joins_with_history(), cuts())
def test_records_from_the_future_are_dead_letters_once(join, steps):
    """They take part in nothing, and each leaves once."""
    spec, history = join

    simulation = Simulation(history, spec).play(steps)
    run = simulation.drain()

    future = Counter(
        (side, e.partition, e.offset)
        for side, topic in (("left", history.left), ("right", history.right))
        for e in topic.records()
        if e.is_future(spec.max_future_skew_ms) and e.offset >= simulation.started_at[side][e.partition]
    )
    assert Counter(run.dead) == future


@given(joins_with_history(wrong_times=True), cuts(), st.data())
def test_records_with_wrong_times_do_not_change_the_rows_of_the_others(join, steps, data):
    """Late, of 1970, without a time, ahead, from a future that comes: however cut, restarted, and with lost files."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        simulation.play([step])
        if data.draw(st.booleans()):
            simulation.restart(lose_files=data.draw(st.booleans()))
    run = simulation.drain()

    check_rows_of_others(history, simulation, run)


@given(joins_with_history(wrong_times=True), cuts())
def test_live_and_replay_give_the_same_rows(join, steps):
    """The other records get the same rows whether they are read as they come, or long after the fact."""
    spec, history = join

    live = Simulation(replace(history, start_ms=min(history.start_ms, BASE_MS)), spec).play(steps).drain()
    replay = Simulation(replace(history, start_ms=history.end_ms + LONG_AFTER_MS), spec).drain()

    assert rows_of_others(history, live) == rows_of_others(history, replay)


@settings(max_examples=share(2))
@given(joins_with_history(wrong_times=True, wrong_times_key=None), cuts())
def test_a_batch_with_wrong_times_gives_the_same_rows_again(join, steps):
    """Also on machines that have lost everything, and where records with wrong times match others."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        simulation.play([step])
        first = [rows.to_dicts() for rows in simulation.retry()]
        simulation.restart(lose_files=True)
        again = [rows.to_dicts() for rows in simulation.retry()]
        assert [row for rows in again for row in rows] == [row for rows in first for row in rows]
    run = simulation.drain()

    assert not {result.right for result in of_left(run.results)} & set(run.unjoined)


@pytest.mark.canary
@pytest.mark.parametrize(("broken", "seed"), [("evidence", 4), ("cut", 6), ("bounds", 7), ("clock", 6)])
def test_canary_without_a_safeguard_rows_of_other_records_change(broken, seed, monkeypatch):
    """With samples in the place of facts, or a clock that is believed, the property above does not hold."""
    if broken == "evidence":  # every single record proves its time
        monkeypatch.setattr(range_gate, "WatermarkTracker", TrustsEverything)
    elif broken == "cut":  # left goes as far as was planned
        monkeypatch.setattr(range_gate.RangeGate, "admit", let_everything_go)
    elif broken == "clock":  # each look at it counts
        monkeypatch.setattr(WallClock, "read", lambda self, wall_ms, _: ClockReading(wall_ms, Trust.AGREED))
    else:  # a lost window is read again from where the last record seemed to be
        monkeypatch.setattr(restore, "low_end", lambda bounds, time_ms: bounds[-1].offset)

    @searched(seed)
    @given(joins_with_history(wrong_times=True), cuts())
    def property_holds(join, steps):
        spec, history = join
        simulation = Simulation(history, spec)
        for step in steps:
            simulation.play([step])
            simulation.restart(lose_files=True)
        check_rows_of_others(history, simulation, simulation.drain())

    with pytest.raises(AssertionError):
        property_holds()


def one_key(partition):
    """A left record, and a right one of the same key and time in this partition of two."""
    right = [[], []]
    right[partition] = [(BASE_MS, b"k")]
    return History(topic("left", [(BASE_MS, b"k")], []), topic("right", *right), BASE_MS)


@pytest.mark.parametrize("marked", [True, False])
def test_canary_without_marks_a_joined_record_is_unjoined(marked, monkeypatch):
    """It appears in a row, and would be reported as one that does not."""
    if not marked:
        monkeypatch.setattr(Window, "_mark", lambda *_: None)

    simulation = Simulation(one_key(0), join_spec())
    run = simulation.drain()

    assert len(run.results) == 1
    assert run.unjoined == ([] if marked else [(0, 0)])


@pytest.mark.canary
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("path", JoinPath)
def test_canary_with_marks_that_are_lost_a_full_join_writes_a_joined_record_again(path, marked, monkeypatch):
    """Each batch runs on an empty disk: marks of earlier ones are found again, or the record gets a row of its own."""
    if not marked:
        monkeypatch.setattr(restore._Restoring, "set_marks", lambda _: None)
    left, right = topic("left", [(100, b"a"), (130, b"b")]), topic("right", [(99, b"a"), (101, b"a"), (129, b"b")])
    history, spec = History(left, right, start_ms=100), join_spec(type="full", before_ms=40, path=path)
    simulation = Simulation(history, spec)

    for _ in range(60):
        simulation.admit()
        simulation.restart(lose_files=True)
        simulation.clock.advance(5)
    rows, expected = simulation.drain().sorted_results(), oracle.join(history, spec)

    assert [row.outcome for row in expected] == ["matched", "matched", "unjoined"]
    assert (rows == expected) is marked
    assert set(rows) >= set(expected)


@pytest.mark.parametrize(("path", "outcome"), [(JoinPath.SHUFFLED, "matched"), (JoinPath.DIRECT, "unmatched")])
def test_canary_on_the_direct_path_a_key_in_two_partitions_misses_its_match(path, outcome):
    """Left's record is in partition 0, right's in partition 1."""
    history, spec = one_key(1), join_spec(path=path)

    run = Simulation(history, spec).drain()

    assert [result.outcome for result in run.results] == [outcome]
    assert [result.outcome for result in oracle.join(history, spec)] == ["matched"]


class TrustsEverything(WatermarkTracker):
    def see(self, times):
        self.proved_ms = max(self.proved_ms, int(times.max())) if len(times) else self.proved_ms


def let_everything_go(self, taken):
    self._note(taken)
    return taken
