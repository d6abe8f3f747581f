"""Joins with histories of their topics; rows of records beside others whose times are wrong."""

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.spec import JoinPath, Policy
from joins.testing import oracle
from joins.testing.play import WRONG_TIMES_KEY
from joins.testing.strategies import histories, specs

advancing = specs().filter(lambda spec: spec.idle is Idle.ADVANCE)


@st.composite
def joins_with_history(draw, *, wrong_times=False, reordered=False, wrong_times_key=WRONG_TIMES_KEY, **more):
    """On either path: topics that are partitioned alike or, shuffled, any two. `more` as in `specs`."""
    spec = draw(specs(**more).filter(lambda spec: spec.idle is Idle.ADVANCE) if more else advancing)
    shuffled = draw(st.booleans())
    if shuffled:
        spec = replace(spec, path=JoinPath.SHUFFLED, buckets=draw(st.none() | st.integers(1, 5)))
    return spec, draw(
        histories(
            spec,
            co_partitioned=not shuffled,
            wrong_times=wrong_times,
            reordered=reordered,
            wrong_times_key=wrong_times_key,
        )
    )


def of_other_records(history, positions):
    """Those of (side, partition, offset) that are of the other records."""
    others = {
        (side, e.partition, e.offset)
        for side, topic in (("left", history.left), ("right", history.right))
        for e in topic.without_wrong_times().records()
    }
    return [position for position in positions if position in others]


def of_left(results):
    """The rows of left records."""
    return [result for result in results if result.left_offset is not None]


def rows_of_others(history, run):
    """The rows about the other records."""

    def about(row):
        return ("right", *row.right) if row.left_offset is None else ("left", row.left_partition, row.left_offset)

    return [row for row in run.sorted_results() if of_other_records(history, [about(row)])]


def check_rows_of_others(history, simulation, run):
    """The rows of the other records are those that they would get without the others: each once, none lost.

    Right records that a producer sends again may hide where right begins: then those before are said not to be read.
    """
    spec, others = simulation.spec, history.without_wrong_times()
    if any("will be unmatched" in warning for warning in simulation.warnings):
        others = replace(others, right=others.right.read_from(simulation.started_at["right"]))
    expected = oracle.join(others, spec)
    rows = Counter((r.left_partition, r.left_offset) for r in of_left(run.results))
    dead = Counter(run.dead)

    assert rows_of_others(history, run) == expected
    unjoined = of_other_records(history, [("right", *position) for position in run.unjoined])
    started_at = simulation.started_at["right"]
    assert sorted((p, offset) for _, p, offset in unjoined) == sorted(
        (p, offset) for p, offset in oracle.unjoined(others, spec, oracle.made(others, spec)) if offset >= started_at[p]
    )
    assert not of_other_records(history, run.late)
    for event in history.left.records():
        if not spec.right.type.left_out:
            assert rows[event.partition, event.offset] + dead["left", event.partition, event.offset] >= 1
        assert not (rows[event.partition, event.offset] and dead["left", event.partition, event.offset])
        found = {r.right for r in run.results if (r.left_partition, r.left_offset) == (event.partition, event.offset)}
        assert found <= oracle.possible(event, history, spec)
    if spec.right.policy is not Policy.ALL:
        assert max(rows.values(), default=1) == 1
    assert max(Counter(run.results).values(), default=1) == 1
    assert max(Counter(run.unjoined).values(), default=1) == 1
    assert run.window == 0
