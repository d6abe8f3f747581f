"""What a real Aerospike server loses, and how that is noticed: killed, truncated, evicting, full, one node of several.

Each test starts servers of its own.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teacup.base.now import wall_ms
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Backend, Item, Keep, Namespace, Status
from tests.support.aerospike_server import NEEDS_ASD, AerospikeProcess, aerospike_cluster, aerospike_process
from tests.support.waiting import wait_until
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.stores import item_maker, opened

NOW = wall_ms()
item = item_maker(NOW)
SPACE = Namespace("space", Keep.ALL, 10, 1_000)
HOUR_MS = 3_600_000
pytestmark = NEEDS_ASD


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AerospikeProcess]:
    """Starts a server that keeps records in memory."""
    with aerospike_process(tmp_path / "aerospike") as running:
        yield running


@contextmanager
def aerospike_store(server: AerospikeProcess) -> Iterator[Backend]:
    with opened(lambda *spaces: open_backend(server.url, spaces), SPACE) as store:
        yield store


def numbered(first: int, count: int) -> list[Item]:
    return [item(b"key-%d" % number, lives_ms=HOUR_MS) for number in range(first, first + count)]


def generation(store: Backend) -> str:
    """Returns the generation; waits while the store says that it cannot tell."""
    found: list[str] = []

    def asked() -> bool:
        try:
            found.append(store.state(SPACE, wall_ms()).generation)
        except StorageUnavailable:
            return False
        return True

    wait_until(asked)
    return found[0]


def missing(store: Backend, items: list[Item]) -> int:
    return statuses(store.read(SPACE, [sent.key for sent in items], NOW)).count(Status.NOT_FOUND)


@pytest.mark.parametrize("on_a_file", [False, True])
def test_every_start_of_a_single_node_is_another_generation(
    tmp_path: Path, on_a_file: bool, caplog: pytest.LogCaptureFixture
):
    """Killed while it is written to, it has lost what it acknowledged last; nobody can tell that from a clean end."""
    with aerospike_process(tmp_path / "aerospike", on_a_file=on_a_file) as server, aerospike_store(server) as store:
        acknowledged: list[Item] = []

        def write() -> None:
            for start in itertools.count(0, 500):
                batch = numbered(start, 500)
                try:
                    done = statuses(store.write(SPACE, batch, NOW))
                except StorageUnavailable:
                    return
                acknowledged.extend(sent for sent, status in zip(batch, done, strict=True) if status is Status.OK)

        generations = [generation(store)]
        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(acknowledged) >= 3_000)
        generations.append(generation(store))
        for end in (server.kill, server.end):
            end()
            writer.join(30)
            server.start()
            generations += [generation(store), generation(store)]

        assert [len(list(group)) for _, group in itertools.groupby(generations)] == [2, 2, 2]
        assert missing(store, acknowledged) > 0 or on_a_file
        assert not on_a_file or "begins another generation: node A" in caplog.text


def test_a_truncated_set_is_noticed_though_the_namespaces_record_is_newer(server: AerospikeProcess):
    """That one is rewritten at nearly every call; a record that is written once goes with the others."""
    with aerospike_store(server) as store, server.client() as client:
        store.write(SPACE, numbered(0, 100), NOW)
        before_ns = time.time_ns()
        time.sleep(0.01)
        before = generation(store)
        client.truncate("test", SPACE.name, before_ns)
        wait_until(lambda: missing(store, numbered(0, 100)) == 100)

        assert generation(store) != before


def test_eviction_that_is_switched_on_holds_at_once_and_is_noticed_afterwards(server: AerospikeProcess):
    """By a limit of the namespace, or by a command; a limit that was corrected in time changed nothing."""
    with aerospike_store(server) as store:
        store.write(SPACE, numbered(0, 100), NOW)
        before = generation(store)
        for setting, words in (("evict_indexes_memory_pct", "evicts live records"), ("nsup_period", "never removes")):
            server.set(**{setting: "0" if setting == "nsup_period" else "50"})
            with pytest.raises(StorageUnavailable, match=words):
                store.state(SPACE, wall_ms())
            server.set(**{setting: "1" if setting == "nsup_period" else "0"})
        assert generation(store) == before

        server.says("eviction-reset:namespace=test;ttl=36000")  # the server frees items three hours after their end
        wait_until(lambda: missing(store, numbered(0, 100)) > 0)

        assert generation(store) != before


def test_a_full_store_says_so_and_answers_look_ups(server: AerospikeProcess):
    """It publishes its state and deletes as well, is not ready, and takes items again once there is room."""
    with aerospike_store(server) as store:
        store.write(SPACE, numbered(0, 100), NOW)
        before = generation(store)
        server.set(stop_writes_sys_memory_pct="1")
        wait_until(lambda: ";stop_writes=true" in server.says("namespace/test"))

        refused = store.write(SPACE, numbered(100, 2), NOW)
        later_ms = wall_ms() + 60_000
        state = store.state(SPACE, later_ms)
        there = missing(store, numbered(0, 100)) == 0
        with pytest.raises(StorageUnavailable, match="the store is full"):
            store.check(SPACE, later_ms)
        deleted = store.delete(SPACE, [b"key-1"], NOW)
        server.set(stop_writes_sys_memory_pct="90")
        wait_until(lambda: ";stop_writes=false" in server.says("namespace/test"))
        taken = store.write(SPACE, numbered(100, 2), NOW)

    assert statuses(refused) == [Status.RETRYABLE] * 2
    assert "the store is full" in str(refused[0].reason)
    assert state.generation == before
    assert state.retained_from == later_ms - 1_000 + 1
    assert there
    assert statuses(deleted) == [Status.OK]
    assert statuses(taken) == [Status.OK] * 2


def test_a_server_that_is_gone_is_reported(server: AerospikeProcess):
    """By every call, and nothing was done."""
    with aerospike_store(server) as store:
        store.write(SPACE, numbered(0, 1), NOW)
        server.kill()

        for call in (
            lambda: store.read(SPACE, [b"key-0"], NOW),
            lambda: store.write(SPACE, numbered(0, 1), NOW),
            lambda: store.delete(SPACE, [b"key-0"], NOW),
            lambda: store.state(SPACE, NOW),
        ):
            with pytest.raises(StorageUnavailable):
                call()


def test_two_nodes_are_restarted_one_after_the_other_and_not_hastily(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """While one is missing the other waits, though it has everything; both lost at a time are noticed."""
    caplog.set_level(logging.WARNING)
    with aerospike_cluster(tmp_path, nodes=2, copies=2) as (first, second), aerospike_store(first) as store:
        items = numbered(0, 2_000)
        assert set(statuses(store.write(SPACE, items, NOW))) == {Status.OK}
        before = generation(store)

        second.kill()
        wait_until(lambda: "1 of 2 nodes are missing" in refusal(store))
        second.start()
        wait_until(lambda: first.settled(2), within_s=240)
        settled = generation(store)
        there = missing(store, items) == 0
        for node in (second, first):
            node.kill()
            node.start()
        after = generation(store)

    assert settled == before
    assert there
    assert after != before


def test_three_nodes_go_on_without_one_and_lose_by_two(tmp_path: Path):
    """Each record has two copies: the others replace those of a lost node before a second one may go."""
    with aerospike_cluster(tmp_path, nodes=3, copies=2) as (first, second, third), aerospike_store(first) as store:
        items = numbered(0, 2_000)
        assert set(statuses(store.write(SPACE, items, NOW))) == {Status.OK}
        before = generation(store)

        third.kill()
        wait_until(lambda: first.settled(2), within_s=240)
        without_one = generation(store)
        taken = statuses(store.write(SPACE, numbered(2_000, 100), NOW))
        third.start()
        wait_until(lambda: first.settled(3), within_s=240)
        whole = generation(store)
        there = missing(store, numbered(0, 2_100)) == 0
        for node in (second, third):
            node.kill()
        without_two = generation(store)
        lost = missing(store, items)

    assert without_one == whole == before
    assert set(taken) == {Status.OK}
    assert there
    assert lost > 0
    assert without_two != before


def refusal(store: Backend) -> str:
    try:
        store.state(SPACE, wall_ms())
    except StorageUnavailable as error:
        return str(error)
    return ""
