"""Feeder and lookup join with injected faults on a real storage API and its store: rows are the oracle's, or none.

Answers are lost, late, cut or something else's, requests are lost or refused, the API or its store is killed, or the
store loses everything. None of it makes a row wrong, or loses or repeats one: either all rows come, or the join is held
with a message, and what it has written until then is right. Right is a stream, or a table that changes: versions and
deletes. `make soak` injects into a hundred and sixty runs per store.
"""

from dataclasses import replace
from random import Random

import pytest

from joins import Policy
from joins.testing import oracle
from joins.testing.history import History, TopicHistory
from teacup.base.now import wall_ms
from tests.support.aerospike_server import NEEDS_ASD, aerospike_process
from tests.support.faultylookup import Faulty, NotReady, Stored
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
from tests.support.simulatedtable import table_spec
from tests.support.storage_process import client

SPOILT = [half_a_body, shorter_body, closed, dropped, late, nonsense, slow]
REFUSED = [status(429), status(500), status(502), status(503), status(429, {"Retry-After": "1"})]
ON_THE_WAY = [*[passed_on] * 10 * len(SPOILT + REFUSED), *SPOILT, *REFUSED]
IN_THE_STORE = ["store_wiped", "store_killed", "api_killed", None]
"""In turn; it hits one of the first requests, when some of right is stored and most is not looked up."""

FIRST, LAST = 4, 24
PER_PARTITION = 16
SPAN_MS = 400
DAY_MS = 86_400_000


NOT_SYNCED = pytest.param("redis, not synced", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["lmdb", "redis", NOT_SYNCED, pytest.param("aerospike", marks=NEEDS_ASD)])
def stored(request, tmp_path_factory):
    """A storage API for all runs of this module."""
    folder = tmp_path_factory.mktemp("stored")
    if request.param.startswith("redis"):
        synced = request.param == "redis"
        settings = {} if synced else {"appendonly": "no"}
        with (
            redis_process(folder / "redis", **settings) as server,
            Stored(folder, server.url("" if synced else "?sync=no"), server).running() as running,
        ):
            yield running
    elif request.param == "aerospike":
        at = folder / "aerospike"
        with aerospike_process(at, on_a_file=True) as server, Stored(folder, server.url, server).running() as running:
            yield running
    else:
        with Stored(folder, f"lmdb://{folder / 'store'}").running() as running:
            yield running


def made(number, of_versions=False):
    """Spec, history, steps, faults on the way and the request that the one in the store hits: all from the number."""
    random = Random(number)
    before_ms, after_ms = random.choice((40, SPAN_MS)), random.choice((0, 20))
    spec = join_spec(before_ms=before_ms, after_ms=after_ms, policy=random.choice(list(Policy)))
    begin_ms = wall_ms() - DAY_MS if of_versions else 0  # what is older, a store of versions does not answer
    left, right = ([records(random, begin_ms) for _ in range(2)] for _ in range(2))
    history = History(topic("left", *left), topic("right", *right), start_ms=begin_ms)
    if of_versions:
        spec = table_spec(after_ms=after_ms)
        history = replace(history, right=TopicHistory("right", tuple(map(with_deletes, history.right.partitions))))
    on_the_way = random.choices(ON_THE_WAY, k=200)
    return spec, history, [step(random) for _ in range(12)], on_the_way, random.randrange(FIRST, LAST)


def records(random, begin_ms):
    """Of a partition, in the order of their times; few keys, and sometimes none."""
    times = sorted(begin_ms + random.randrange(SPAN_MS) for _ in range(PER_PARTITION))
    return [(time_ms, random.choice((*(b"a", b"b", b"c", b"d") * 3, None))) for time_ms in times]


def with_deletes(events):
    """Every third record has no value."""
    return tuple(replace(event, value=None) if at % 3 == 2 else event for at, event in enumerate(events))


def step(random):
    """What feeder, collector, join and clock do next; in the end all is read."""
    some = random.choice((1, 3, 100))
    steps = [("advance", random.choice((10, 60, 400))), ("feed", some), ("publish",), ("admit", some)]
    return random.choice([*steps * 3, ("rewind",), ("restart",), ("join_batch",)])


def check_runs(stored, numbers, of_versions=False):
    """The runs of these numbers: each goes on beyond its fault in the store, and some that lose right are held."""
    held = []
    for number in numbers:
        spec, history, steps, on_the_way, at = made(number, of_versions)
        fault = IN_THE_STORE[number % len(IN_THE_STORE)]
        run = Faulty(history, spec, stored)
        stored.proxy.faults = faults = with_one_in_the_store(stored, on_the_way, fault, at)
        try:
            held_by = carried_out(run, steps)
            requests = len(on_the_way) - len(faults)
        finally:
            stored.proxy.faults = []
            run.close()

        check_rows(run, oracle.join(history, run.spec), held_by, may_be_held=fault in stored.may_lose_by)
        assert requests >= at, f"run {number} ended before {fault}"
        held += [number] * (held_by is not None)
    assert held


def with_one_in_the_store(stored, on_the_way, fault, at):
    """The faults of a run."""
    if fault is None:
        return list(on_the_way)

    def in_between(handler, forward):
        getattr(stored, fault)()
        passed_on(handler, forward)

    return [*on_the_way[:at], in_between, *on_the_way[at:]]


def carried_out(run, steps):
    """To the end of left, or to where the join is held: why."""
    try:
        for name, *values in steps:
            (run.clock.advance if name == "advance" else getattr(run, name))(*values)
        run.drain()
    except NotReady as held:
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
    """One run for each fault in the store."""
    check_runs(stored, range(4))


def test_rows_are_those_of_the_versions_or_the_join_is_held(stored):
    """Right is a table that changes; the store is wiped, or the API killed."""
    check_runs(stored, (200, 202), of_versions=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", [300, 320, 340])
def test_rows_are_those_of_the_versions_in_sixty_runs(stored, first):
    """A third of them."""
    check_runs(stored, range(first, first + 20), of_versions=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", [100, 125, 150, 175])
def test_rows_are_those_of_the_oracle_in_a_hundred_runs(stored, first):
    """A quarter of them."""
    check_runs(stored, range(first, first + 25))


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
