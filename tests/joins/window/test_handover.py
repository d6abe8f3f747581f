"""A new checkpoint that goes on with left where another one ended, as another join: every record once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.batch.handover import as_it_was
from joins.spec import JoinPath, JoinSpec, Policy
from joins.testing import oracle
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories, specs
from tests.support.joinhistories import of_left
from tests.support.making import changed
from tests.support.profiles import share


@st.composite
def moved_joins(draw):
    """A join and what it becomes: interval, policy and buckets differ, disorder may grow, and the path may change."""
    was = draw(specs().filter(lambda spec: spec.idle is Idle.ADVANCE))
    alike = draw(st.booleans())
    history = draw(histories(was, co_partitioned=alike))

    def on_a_path(spec: JoinSpec) -> JoinSpec:
        if alike and draw(st.booleans()):
            return spec
        return replace(spec, path=JoinPath.SHUFFLED, buckets=draw(st.none() | st.integers(1, 5)))

    becomes = changed(
        was,
        before_ms=draw(st.integers(0, 80)),
        after_ms=draw(st.integers(0, 80)),
        policy=draw(
            st.sampled_from([each for each in Policy if each is not Policy.ALL or not was.right.type.left_alone])
        ),
        left=replace(was.left, disorder_ms=was.left.disorder_ms + draw(st.integers(0, 20))),
        right=replace(was.right, disorder_ms=was.right.disorder_ms + draw(st.integers(0, 20))),
    )
    return on_a_path(was), on_a_path(becomes), history


@settings(max_examples=share(2))
@given(moved_joins(), cuts(), st.booleans())
def test_left_goes_on_where_it_was_and_is_joined_as_the_new_join_says(moved, steps, lost):
    """Every record once: those before the move as the old join has them, those after it as the new one.

    Also if the facts of the last batch are lost: then they are found again by what the checkpoint says of the old join.
    """
    was, becomes, history = moved
    old = Simulation(history, was).play(steps)
    if lost:
        old.restart(lose_files=True)
        old.spec = as_it_was(becomes, old.state)
    reached = {p: r.start for bucket in old.between().buckets.values() for p, r in bucket.left.items()}

    new = Simulation(history, replace(becomes, start=reached), old.clock.now_ms)
    results = of_left([*old.run.results, *new.drain().results])

    def before(result: oracle.Result) -> bool:
        return result.left_offset < reached[result.left_partition]

    expected = [result for result in of_left(oracle.join(history, was)) if before(result)]
    expected += [result for result in of_left(oracle.join(history, becomes)) if not before(result)]
    assert sorted(map(repr, results)) == sorted(map(repr, expected))
