"""Feeder and lookup join with injected faults on a real storage API and its store: rows are the oracle's, or none.

Answers are lost, late, cut or something else's, requests are lost or refused, the API or its store is killed, or the
store loses everything. None of it makes a row wrong, or loses or repeats one: either all rows come, or the join is held
with a message, and what it has written until then is right. `make soak` injects into a hundred runs per store.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from joins.testing import oracle
from joins.testing.history import History
from tests.joins.lookup.test_lookup_properties import STEPS, joins_with_history
from tests.support.aerospike_server import NEEDS_ASD, aerospike_process
from tests.support.faultylookup import Faulty, Held, Stored
from tests.support.faultyproxy import (
    closed,
    dropped,
    half_a_body,
    late,
    nonsense,
    passed_on,
    shorter_body,
    slow,
    status,
)
from tests.support.making import join_spec, topic
from tests.support.redis_server import redis_process
from tests.support.storage_process import client

SPOILT = [half_a_body, shorter_body, closed, dropped, late, nonsense, slow]
REFUSED = [status(429), status(500), status(502), status(503), status(429, {"Retry-After": "1"})]
ON_THE_WAY = st.lists(st.sampled_from([passed_on] * 20 + SPOILT + REFUSED), min_size=10, max_size=60)
"""One for each of the first requests."""

IN_THE_STORE = st.sampled_from(["api_killed", "store_killed", "store_wiped"] + [None] * 5)


@pytest.fixture(scope="module", params=["lmdb", "redis", pytest.param("aerospike", marks=NEEDS_ASD)])
def stored(request, tmp_path_factory):
    """A storage API for all runs of this module."""
    folder = tmp_path_factory.mktemp("stored")
    if request.param == "redis":
        with redis_process(folder / "redis") as server, Stored(folder, server.url(), server).running() as running:
            yield running
    elif request.param == "aerospike":
        at = folder / "aerospike"
        with aerospike_process(at, on_a_file=True) as server, Stored(folder, server.url, server).running() as running:
            yield running
    else:
        with Stored(folder, f"lmdb://{folder / 'store'}").running() as running:
            yield running


def check_runs(stored, runs, number):
    """So many, drawn with a seed."""
    felt = []

    @seed(number)
    @settings(
        max_examples=runs, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=HealthCheck
    )
    @given(joins_with_history(), STEPS, ON_THE_WAY, IN_THE_STORE, st.integers(0, 9))
    def rows_are_right(join, steps, on_the_way, in_the_store, at):
        spec, history = join
        run = Faulty(history, spec, stored)
        stored.proxy.faults = with_one_in_the_store(stored, on_the_way, in_the_store, at)
        try:
            held_by = carried_out(run, steps)
        finally:
            stored.proxy.faults = []
            run.close()

        check_rows(run, oracle.join(history, run.spec), held_by, may_be_held=in_the_store in stored.may_lose_by)
        felt.extend(run.waited if held_by is None else [held_by])

    rows_are_right()
    assert felt, "no run felt a fault"


def with_one_in_the_store(stored, on_the_way, in_the_store, at):
    """The faults of a run."""

    def in_between(handler, forward):
        getattr(stored, in_the_store)()
        passed_on(handler, forward)

    return [*on_the_way[:at], *([] if in_the_store is None else [in_between]), *on_the_way[at:]]


def carried_out(run, steps):
    """To the end of left, or to where the join is held: why."""
    try:
        for name, *values in steps:
            (run.clock.advance if name == "advance" else getattr(run, name))(*values)
        run.drain()
    except Held as held:
        return str(held)
    return None


def check_rows(run, expected, held_by, *, may_be_held):
    """All of them; or, of a join that is held, those that it had written."""
    found = sorted(run.results, key=lambda r: (r.left_partition, r.left_offset))
    if held_by is None:
        assert found == expected
        return
    assert may_be_held, held_by
    assert "generation" in held_by
    assert [row for row in expected if row in set(found)] == found


def test_rows_are_those_of_the_oracle_or_the_join_is_held(stored):
    """A few runs."""
    check_runs(stored, runs=6, number=1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_rows_are_those_of_the_oracle_in_a_hundred_runs(stored, number):
    """A quarter of them; each has a seed of its own."""
    check_runs(stored, runs=25, number=number)


def test_canary_a_store_that_loses_an_acknowledged_record_unnoticed_gives_a_wrong_row(stored):
    """Then the comparison above fails."""
    history = History(topic("left", [(50, b"a")]), topic("right", [(45, b"a")]), start_ms=100_000)
    run = Faulty(history, join_spec(), stored)
    run.feed()
    with client(stored.url) as storage:
        storage.delete(run.name, [b"a"])

    rows = run.drain()
    run.close()

    assert rows != oracle.join(history, run.spec)
