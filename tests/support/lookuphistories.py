"""Histories of lookup joins, and what may happen while one runs."""

from __future__ import annotations

from hypothesis import strategies as st

from datadelay.model import DelayState
from datadelay.watermark import Idle
from joins.spec import JoinType
from joins.testing import oracle
from joins.testing.strategies import histories, specs
from tests.support.simulatedlookup import Simulated, lookup_spec

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.sampled_from((1, 10, 60, 400, 20_000))),
        st.tuples(st.just("feed"), st.sampled_from((1, 3, 100))),
        st.tuples(
            st.just("publish"), st.sampled_from((DelayState.OK, DelayState.OK, DelayState.UNKNOWN, DelayState.STALE))
        ),
        st.tuples(st.just("admit"), st.sampled_from((1, 3, 100))),
        st.sampled_from((("rewind",), ("restart",), ("join_batch",))),
    ),
    max_size=25,
)

LOOKUPS = (
    specs().filter(lambda spec: spec.idle is Idle.ADVANCE and spec.right.type is not JoinType.FULL).map(lookup_spec)
)
"""Lookup joins of each type that there is."""


@st.composite
def joins_with_history(draw):
    spec = draw(LOOKUPS)
    return spec, draw(histories(spec))


def check_output(join, steps):
    """The rows are those of brute force, whatever happens in these steps."""
    spec, history = join
    run = Simulated(history, spec)

    for name, *values in steps:
        (run.clock.advance if name == "advance" else getattr(run, name))(*values)

    assert run.drain() == oracle.join(history, spec)
