"""The lookup join while its parts fail: nothing is lost, no answer is made up, and it continues or says what to do.

Each join is driven here, against a broker, a storage API on its store and a Data Delay API; what goes wrong on the way
between them is done by a proxy. What it says is in test_lookup_held.py.
"""

import shutil
from contextlib import contextmanager

import pytest

from joins import DataLoss, DelayApi, Policy
from joins.errors import StoreChanged, StoreUnreachable
from joins.testing import oracle
from teacup.base.now import wall_ms
from teacup.storage.model import Namespace
from tests.joins.lookup.conftest import NAMESPACES, RETENTION_MS, events, put_left
from tests.support.dictbackend import DictBackend
from tests.support.faultyproxy import (
    answered_by,
    closed,
    half_a_body,
    nonsense,
    passed_on,
    running_proxy,
    shorter_body,
    slow,
    status,
)
from tests.support.making import changed
from tests.support.sparkjoin import Put, history
from tests.support.storage_process import client, server_here
from tests.support.storage_server import running_server

HOURS_MS = 3_600_000


@pytest.fixture
def proxy(world):
    """Between the join and its store."""
    with running_proxy(world.url) as running:
        yield running


@pytest.fixture
def delay_proxy(world):
    """Between the join and the Data Delay API."""
    with running_proxy(world.delays.url) as running:
        yield running


def asked_more(proxy, times):
    """A condition: this many requests have come since now."""
    before = len(proxy.seen)
    return lambda run: len(proxy.seen) >= before + times


def test_no_spoilt_answer_of_the_store_is_taken_for_an_answer(world, join, driven, proxy):
    """Errors, refusals, silence, half a body, a foreign page: each is retried, until all is as the oracle says."""
    left, right = events(wall_ms() - 600_000)
    spec = join(
        policy=Policy.ALL,
        max_records=100,
        storage={"url": proxy.url, "keys_per_request": 20, "read_timeout_s": 0.5},
    )
    put_left(spec, left)
    faults = [status(500), half_a_body, status(429, {"Retry-After": "1"}), slow, shorter_body, closed, nonsense]
    proxy.only, proxy.faults = "items:read", [*faults, passed_on, status(502), status(404), status(503), closed]

    with world.storage_here():
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        run = driven(spec).drain()

    assert not proxy.faults
    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_a_store_killed_under_way_is_waited_for_then_stops_the_join_which_continues_from_its_checkpoint(
    world, join, driven, proxy
):
    """Killed with batches to come: held for `unreachable_for`, reported, and in the end nothing is lost or invented."""
    left, right = events(wall_ms() - 600_000)
    spec = join(max_records=30, storage={"url": proxy.url, "unreachable_for_s": 0.5})
    put_left(spec, left)

    with world.storage_running() as process:

        def kill(handler, forward):
            process.kill()
            process.wait()
            passed_on(handler, forward)

        proxy.only, proxy.faults = "items:read", [passed_on, passed_on, kill]
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        run = driven(spec)
        with pytest.raises(StoreUnreachable, match="start the storage API"):
            run.until(lambda run: False, "the join gives up")
    before = run.results()
    run.restart()
    with world.storage_here():
        run.until_left(len(left))

    assert 0 < len(before) < len(left)
    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_without_the_delay_api_or_its_collector_left_holds_and_continues_by_itself(
    world, join, driven, proxy, delay_proxy
):
    """Unreachable from the start or later, and stale: what is not known to be stored waits, whatever `max_wait`."""
    start = wall_ms() - 600_000
    left, right = events(start)
    delay = DelayApi(url=delay_proxy.url, consumer="feeder", token=world.delays.secrets["reader"], read_timeout_s=1.0)
    spec = join(delay=delay)
    put_left(spec, left)
    known = [put for put in left if put.time_ms + spec.right.after_ms < start + 5_000]
    delay_proxy.faults = [closed, status(503), half_a_body, status(500)] * 1_000

    run = driven(spec)
    with world.storage_here():
        world.feed(right[:150])
        world.publish("stored", start + 5_000)
        run.until(asked_more(delay_proxy, 4), "it asks an unreachable API")
        assert not run.rows

        delay_proxy.faults = []
        run.until_left(len(known))
        delay_proxy.faults = [closed] * 1_000
        world.feed(right)
        world.publish("stored", start + 9_000)
        run.until(asked_more(delay_proxy, 4), "it asks an unreachable API again")
        world.delays.clock.now_ms = wall_ms() + HOURS_MS
        delay_proxy.faults = []
        run.until(asked_more(delay_proxy, 4), "it asks for a delay that is stale")
        assert len(run.results()) == len(known)

        world.publish("stored", wall_ms() - 1_000)
        run.until_left(len(left))

    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_a_feeder_stuck_for_longer_than_max_wait_gives_no_false_unmatched(world, join, driven, delay_proxy):
    """Rows without right say so in their reason; once the feeder continues, left is joined as usual."""
    start = wall_ms() - 600_000
    left, right = events(start)
    stored_until = start + 5_000
    delay = DelayApi(url=delay_proxy.url, consumer="feeder", token=world.delays.secrets["reader"])
    spec = join(max_wait_ms=1_000, delay=delay)
    put_left(spec, left)

    run = driven(spec)
    with world.storage_here():
        world.feed([put for put in right if put.time_ms < stored_until])
        world.publish("stored", stored_until)
        run.until_left(len(left))
        stalled = run.results()
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        run.until(asked_more(delay_proxy, 2), "it has heard that the feeder continues")
        later = [Put(0, put.key, put.time_ms + 1) for put in left]
        put_left(spec, later)
        run.until_left(len(left) + len(later))

    expected = oracle.join(history(spec, [*left, *later], right), spec)
    for found, wanted in zip(stalled, expected[: len(left)], strict=True):
        if left[found.left_offset].time_ms + spec.right.after_ms < stored_until:
            assert found == wanted
        elif left[found.left_offset].key is not None and found.outcome == "unmatched":
            assert found.reason == "right_stalled"
    assert any(found.reason == "right_stalled" for found in stalled)
    assert run.results()[len(left) :] == expected[len(left) :]


def test_a_store_wiped_between_batches_holds_left_until_its_new_generation_is_accepted(world, join, driven, proxy):
    """Even with `max_wait` nothing leaves: the new store has nothing of what was reported as stored."""
    start = wall_ms() - 600_000
    left, right = events(start)
    spec = join(storage={"url": proxy.url}, max_wait_ms=3_600_000)
    put_left(spec, left)

    run = driven(spec)
    with world.storage_here():
        world.feed(right)
        world.publish("stored", start + 5_000)
        run.until_left(sum(1 for put in left if put.time_ms + spec.right.after_ms < start + 5_000))
    before = run.results()
    shutil.rmtree(world.folder / "storage" / "store")
    with world.storage_here():
        world.publish("stored", wall_ms() - 1_000)
        run.until(asked_more(proxy, 3), "it looks at the new store")
        assert run.results() == before
        world.feed(right)
        with client(world.url) as storage:
            generation = storage.namespace("right").generation
        run.restart(spec=changed(spec, accepted_generations=(generation,)))
        run.until_left(len(left))

    assert run.results() == oracle.join(history(spec, left, right), spec)


@contextmanager
def wiped_at_the_first_look_up(backend):
    """A store that loses everything after a batch was admitted, and before it is looked up."""
    with (
        running_server(backend, namespaces=[{"name": "right", "keep": "all", "bound": 9}]) as server,
        running_proxy(server.url) as proxy,
    ):
        server.clock.now_ms = wall_ms()

        def wipe(handler, forward):
            backend.wipe()
            backend.raise_retained_from(Namespace("right"), 0)
            passed_on(handler, forward)

        proxy.only, proxy.faults = "items:read", [wipe]
        yield proxy, server.secrets["reader"]


def test_a_store_wiped_within_a_batch_gives_no_answer(world, join, driven):
    """The batch relies on the store that it was admitted for: not found in another one is not an outcome."""
    backend = DictBackend()
    backend.raise_retained_from(Namespace("right"), 0)
    with wiped_at_the_first_look_up(backend) as (proxy, token):
        spec = join(storage={"url": proxy.url, "token": token, "unreachable_for_s": 0.2})
        put_left(spec, [Put(0, b"k", wall_ms() - 60_000)])
        world.publish("stored", wall_ms() - 1_000)

        run = driven(spec)
        with pytest.raises(StoreChanged):
            run.until_left(1)

    assert not proxy.faults
    assert not run.rows


def test_look_ups_that_another_store_answers_are_no_answers(world, join, driven, proxy, tmp_path):
    """Of two servers of the API one has come to a store that lost everything; the other one tells the generation."""
    left, right = events(wall_ms() - 600_000)
    spec = join(policy=Policy.ALL, max_records=100, storage={"url": proxy.url, "keys_per_request": 20})
    put_left(spec, left)

    with world.storage_here(), server_here(tmp_path / "other", namespaces=NAMESPACES) as other:
        world.feed(right)
        world.publish("stored", wall_ms() - 1_000)
        proxy.only, proxy.faults = "items:read", [passed_on, *[answered_by(other)] * 6]
        run = driven(spec).drain()

    assert not proxy.faults
    assert run.results() == oracle.join(history(spec, left, right), spec)


def test_left_that_lags_longer_than_the_store_keeps_continues_by_choice_with_its_own_reason(world, join, driven):
    """The same checkpoint stops first, and continues once configured to; what the store still keeps is matched."""
    spec = join()
    time_ms = wall_ms()
    lagging, fresh = time_ms - RETENTION_MS - 60_000, time_ms - 60_000
    left = [Put(0, b"old", lagging), Put(0, None, lagging), Put(0, b"new", fresh)]
    put_left(spec, left)

    with world.storage_here():
        world.feed([Put(0, b"new", fresh)])
        world.publish("stored", time_ms - 1_000)
        run = driven(spec)
        with pytest.raises(DataLoss, match="on_expired: unmatched"):
            run.until_left(1)
        assert not run.rows
        run.restart(spec=changed(spec, on_expired="unmatched"))
        run.until_left(3)

    assert [(row["key"], row["outcome"], row["reason"]) for row in run.rows] == [
        (b"old", "unmatched", "no_longer_stored"),
        (None, "unmatched", "null_key"),
        (b"new", "matched", None),
    ]
