"""The whole in-memory join over a simulated log and clock: its output is the brute-force join, however it is run."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.progress import Idle
from joins.testing import oracle
from joins.testing.history import History
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories, specs

advancing = specs().filter(lambda spec: spec.idle is Idle.ADVANCE)


@st.composite
def joins_with_history(draw):
    spec = draw(advancing)
    return spec, draw(histories(spec, co_partitioned=True))


def never_joined(simulation):
    """The right records from where right was started on that stand in no row of the oracle's."""
    history, spec = History(simulation.left.history, simulation.right.history), simulation.spec
    start = simulation.started_at["right"]
    positions = oracle.unjoined(history, spec, oracle.join(history, spec))
    return sorted((p, offset) for p, offset in positions if offset >= start[p])


@settings(max_examples=150, deadline=None)
@given(joins_with_history(), cuts())
def test_output_equals_the_oracle_for_any_cut_and_restart(join, steps):
    """Any batches, any clock, any restart: every left record once, with what the brute force gives it."""
    spec, history = join

    simulation = Simulation(history, spec).play(steps)
    run = simulation.drain()

    assert run.sorted_results() == oracle.join(history, spec)
    assert sorted(run.unjoined) == never_joined(simulation)
    assert not run.late
    assert run.window == 0


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(joins_with_history(), cuts())
def test_running_a_batch_again_gives_the_same_rows(join, steps):
    """A batch is a function of its admission: a retry in the same or in another worker puts out the same."""
    spec, history = join
    simulation = Simulation(history, spec)

    for step in steps:
        simulation.play([step])
        first = simulation.retry()
        simulation.restart()
        assert [f.to_dicts() for f in simulation.retry()] == [f.to_dicts() for f in first]


@settings(max_examples=100, deadline=None)
@given(joins_with_history(), cuts())
def test_frontiers_never_go_back(join, steps):
    """Neither the frontier nor the expiry of any bucket."""
    spec, history = join

    run = Simulation(history, spec).play(steps).drain()

    for earlier, later in zip(run.frontiers, run.frontiers[1:], strict=False):
        for bucket, (frontier, expiry) in earlier.items():
            assert later[bucket][0] >= frontier
            assert later[bucket][1] >= expiry


@settings(max_examples=100, deadline=None)
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
