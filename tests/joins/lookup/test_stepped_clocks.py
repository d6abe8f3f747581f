"""One clock of a whole chain steps, and others move the feeder's positions: no row changes. The clocks are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay import publish
from joins.errors import DataLoss
from joins.lookup import gate
from joins.plan import clock_checks
from joins.plan.clock_checks import PlanClock
from joins.testing import oracle
from joins.testing.history import History
from teacup.http.server.serving import SteadyClock
from teacup.storage.backends.aerospike import store as aerospikestore
from teacup.storage.backends.aerospike.store import AerospikeStore
from teacup.storage.backends.opening import open_backend
from tests.support.aerospikedict import Records
from tests.support.canary import searched
from tests.support.lookuphistories import joins_with_history
from tests.support.making import join_spec, topic
from tests.support.steppedlookup import AGAIN_MS, PARTS, STEP_MS, OpenStore, SteppedLookup

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.sampled_from((STEP_MS, -STEP_MS, 0))),
        st.tuples(st.just("advance"), st.sampled_from((1, 60, 500, 30_000, AGAIN_MS))),
        st.tuples(st.just("feed"), st.sampled_from((1, 3, 100))),
        st.tuples(st.just("admit"), st.sampled_from((1, 3, 100))),
        st.sampled_from((("publish",), ("publish",), ("restart",), ("move",))),
    ),
    max_size=25,
)


@pytest.fixture(params=["lmdb", "aerospike"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[OpenStore, bool]:
    """Opens a store without a clock of its own, or one with; and whether the API then believes a clock set ahead."""
    if request.param == "lmdb":
        return lambda space, clock, _: open_backend(
            f"lmdb://{tmp_path / 'store'}?map_size=64MiB", [space], clock
        ), False
    monkeypatch.setattr(Records, "kept", {}, raising=False)
    monkeypatch.setattr(aerospikestore, "AerospikeRecords", Records)

    def opened(space: Any, clock: Any, server: Any) -> Any:
        monkeypatch.setattr(Records, "clock_ms", staticmethod(server))
        found = AerospikeStore([("host", 3000)], "records", clock_ms=clock)
        found.declare(space)
        return found

    return opened, True


def property_of(store: tuple[OpenStore, bool], parts: Sequence[str]) -> Callable[[], None]:
    """Twice the retention ahead or behind, at any moments, with feeder, collector and join in any order."""
    opens, believes_ahead = store
    names = count()

    @given(joins_with_history(), st.sampled_from(parts), st.booleans(), STEPS)
    def rows_are_right(join: Any, part: str, judged: bool, steps: Any) -> None:
        spec, history = join
        name = f"right-{next(names)}"
        run = SteppedLookup(history, spec, opens, name, believes_ahead=believes_ahead, judged=judged)
        try:
            for step, *values in steps:
                if step == "step":
                    run.step(part, *values)
                else:
                    (run.clock.advance if step == "advance" else getattr(run, step))(*values)
            run.settle()
            rows = run.drain()
        finally:
            run.close()
        assert rows == oracle.join(history, run.spec)

    return rows_are_right


def test_whatever_one_clock_does_no_row_changes(store: tuple[OpenStore, bool]) -> None:
    """Of storage API, store server, Data Delay API, collector, feeder, join."""
    property_of(store, PARTS)()


def believe_planners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanClock, "now_ms", lambda self, listed_ms=None: clock_checks.read_clocks()[0])
    monkeypatch.setattr("tests.support.steppedlookup.check_last_times", lambda *_: None)


def believe_collectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_refuse_future", lambda *_: None)
    monkeypatch.setattr(gate, "CLOCK_TOLERANCE_MS", 10**15)


def believe_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SteadyClock, "__call__", lambda self: self._read()[0])


@pytest.mark.slow
@pytest.mark.canary
@pytest.mark.parametrize(
    ("part", "without"),
    [
        ("feeder", believe_planners),
        ("join", believe_planners),
        ("collector", believe_collectors),
        ("api", believe_the_api),
    ],
)
@pytest.mark.parametrize("store", ["lmdb"], indirect=True)
def test_canary_with_a_clock_that_is_believed_a_row_changes(
    store: tuple[OpenStore, bool], part: str, without: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safeguards against the clock of this part are switched off: a row is wrong or missing, or left is lost."""
    without(monkeypatch)

    with pytest.raises((AssertionError, DataLoss)):
        searched(seed=1)(property_of(store, [part]))()


def rows_are_right_after_the_joins_clock_was_set_ahead(opens: OpenStore) -> None:
    """Left goes on coming for minutes, and its records are not late: reported right records match them."""
    seconds = (1, 100, 200, 300)
    left, right = ([(1_000 * at - lead, b"%d" % at) for at in seconds] for lead in (0, 5))
    history = History(topic("left", left), topic("right", right), start_ms=100)
    run = SteppedLookup(history, join_spec(), opens, "right", believes_ahead=False, judged=True)
    try:
        for second in range(0, 400, 20):
            if second == 20:
                run.step("join", STEP_MS)
            run.feed()
            run.publish()
            run.admit()
            run.clock.advance(20_000)
        run.settle()
        rows = run.drain()
    finally:
        run.close()
    assert rows == oracle.join(history, run.spec)


@pytest.mark.parametrize("store", ["lmdb"], indirect=True)
def test_a_join_whose_clock_was_set_ahead_takes_no_left_record_for_late(store: tuple[OpenStore, bool]) -> None:
    """It is steady for longer than a minute, and both APIs contradict it."""
    rows_are_right_after_the_joins_clock_was_set_ahead(store[0])


@pytest.mark.canary
@pytest.mark.parametrize("store", ["lmdb"], indirect=True)
def test_canary_without_a_look_at_the_apis_clocks_left_records_are_falsely_unmatched(
    store: tuple[OpenStore, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The safeguard is switched off."""
    monkeypatch.setattr("tests.support.steppedlookup.clock_ahead", lambda *_: None)

    with pytest.raises(AssertionError):
        rows_are_right_after_the_joins_clock_was_set_ahead(store[0])
