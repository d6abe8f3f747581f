"""What a Redis server loses, and how that is noticed: kills, wipes, older copies, swapped databases.

Every test has a real server of its own.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from teacup.base.now import wall_ms
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Backend, Item, Status, WriteResult
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.storage_process import client, server_process
from tests.support.waiting import wait_until
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.backends.redis_stores import (
    NOW,
    SPACE,
    all_there,
    generation,
    numbered,
    redis_store,
    witnesses,
)

EVERYSEC = {"appendfsync": "everysec"}


@dataclass
class Writer:
    """Writes batches until the server is gone, and knows what was acknowledged."""

    store: Backend
    acknowledged: list[Item]

    def run(self, first: int) -> None:
        for start in itertools.count(first, 20):
            batch = numbered(start, 20)
            try:
                outcomes = self.store.write(SPACE, batch, NOW)
            except StorageUnavailable:
                return
            self.acknowledged += [sent for sent, outcome in zip(batch, outcomes, strict=True) if outcome.status == "ok"]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(own_redis: RedisProcess):
    """kill -9 while two threads write, twice; the same store object goes on, its generation stays."""
    acknowledged: list[Item] = []
    with redis_store(own_redis) as store:
        before = generation(store)
        for turn in range(2):
            goal = len(acknowledged) + 400
            threads = [
                threading.Thread(target=Writer(store, acknowledged).run, args=((2 * turn + number) * 1_000_000,))
                for number in range(2)
            ]
            for thread in threads:
                thread.start()
            wait_until(lambda goal=goal: len(acknowledged) >= goal)
            own_redis.kill()
            for thread in threads:
                thread.join(60)
            own_redis.start()

        assert generation(store) == before
        assert all_there(store, acknowledged)


def test_with_sync_no_every_other_run_of_the_server_is_another_generation(tmp_path: Path):
    """Also after a clean end: nobody can tell that from a crash."""
    with redis_process(tmp_path / "redis", **EVERYSEC) as server, redis_store(server, "?sync=no") as store:
        store.write(SPACE, numbered(0, 10), NOW)
        generations = [generation(store), generation(store)]
        for end in (server.end, server.kill):
            end()
            server.start()
            generations += [generation(store), generation(store)]

    assert [len(list(group)) for _, group in itertools.groupby(generations)] == [2, 2, 2]


def test_what_was_written_with_sync_no_does_not_become_safe_afterwards(tmp_path: Path):
    """When the server's configuration is corrected, its next start is one more generation, and the last."""
    with redis_process(tmp_path / "redis", **EVERYSEC) as server:
        with redis_store(server, "?sync=no") as store:
            first = generation(store)
        server.settings["appendfsync"] = "always"  # from its next start on
        with server.client() as redis:
            redis.config_set("appendfsync", "always")
        generations = []
        for _ in range(3):
            with redis_store(server) as store:
                generations.append(generation(store))
            server.kill()
            server.start()

    assert generations[0] == first
    assert generations[1] == generations[2] != first


def test_a_wiped_server_has_another_generation(own_redis: RedisProcess):
    """By a command, or because its files are gone."""
    with redis_store(own_redis) as store:
        generations = [generation(store)]
        with own_redis.client() as redis:
            redis.flushall()
        generations.append(generation(store))
        own_redis.kill()
        shutil.rmtree(own_redis.folder / "appendonlydir")
        own_redis.start()
        generations.append(generation(store))

    assert len(set(generations)) == 3


@pytest.mark.parametrize("first_call", ["state", "write"])
def test_a_log_that_lost_its_end_is_another_generation(own_redis: RedisProcess, tmp_path: Path, first_call: str):
    """An older copy of the files was restored: the process that wrote knows better, and says so only once."""
    with redis_store(own_redis) as store:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        shutil.copytree(own_redis.folder / "appendonlydir", tmp_path / "copy")
        store.write(SPACE, numbered(10, 10), NOW)
        own_redis.kill()
        shutil.rmtree(own_redis.folder / "appendonlydir")
        shutil.copytree(tmp_path / "copy", own_redis.folder / "appendonlydir")
        own_redis.start()

        if first_call == "write":
            for number in range(3):
                store.write(SPACE, numbered(20 + number, 1), NOW)
        after = [generation(store), generation(store)]
        store.write(SPACE, numbered(40, 1), NOW)
        after.append(generation(store))

    assert after[0] != before
    assert len(set(after)) == 1


@pytest.mark.parametrize("call", ["write", "delete", "read"])
def test_databases_that_are_swapped_and_swapped_back_are_another_generation(own_redis: RedisProcess, call: str):
    """What was written, deleted or not found meanwhile says nothing about the items that are back."""
    calls = {
        "write": lambda store: store.write(SPACE, numbered(10, 10), NOW),
        "delete": lambda store: store.delete(SPACE, [b"key-0"], NOW),
        "read": lambda store: store.read(SPACE, [b"key-0"], NOW),
    }
    with redis_store(own_redis) as store, own_redis.client() as redis:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        redis.swapdb(0, 1)
        outcomes = calls[call](store)
        redis.swapdb(0, 1)
        after = generation(store)

    assert after != before or Status.OK not in statuses(outcomes)
    assert call != "read" or after != before


def test_a_write_is_not_carried_out_where_the_witness_is_missing(own_redis: RedisProcess):
    """Everything was removed between reading and writing: nothing is acknowledged, nor left behind."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        carry_out = witnesses(store).carry_out

        def flushed_before(*arguments: object) -> object:
            redis.flushdb()
            return carry_out(*arguments)

        witnesses(store).carry_out = flushed_before  # type: ignore[assignment]
        written = store.write(SPACE, numbered(0, 2), NOW)
        left = redis.exists(b"teacup:space/key-0")

    assert statuses(written) == [Status.RETRYABLE] * 2
    assert "has begun another generation" in str(written[0].reason)
    assert not left


def test_a_write_that_was_held_back_on_its_way_is_no_loss(own_redis: RedisProcess):
    """It arrives after later ones, and would set the count of the process back."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        run_and_ask, sent = store._server.run_and_ask, []  # type: ignore[attr-defined]

        def noted(commands: list[tuple[object, ...]]) -> object:
            sent.extend(command for command in commands if command[0] == "EVAL")
            return run_and_ask(commands)

        store._server.run_and_ask = noted  # type: ignore[attr-defined]
        store.write(SPACE, numbered(0, 10), NOW)
        store.write(SPACE, numbered(10, 10), NOW)
        before = generation(store)
        redis.execute_command(*sent[0])

        assert generation(store) == before


@pytest.mark.parametrize("command", ["DEBUG RELOAD", "RESTORE"])
def test_data_that_a_command_brought_in_is_another_generation(tmp_path: Path, command: str):
    """The witness is there, on the same run, and items are missing; no process that wrote is left."""
    with redis_process(tmp_path / "redis", enable_debug_command="yes") as server, server.client() as redis:
        with redis_store(server) as store:
            store.write(SPACE, numbered(0, 10), NOW)
            redis.save()
            store.write(SPACE, numbered(10, 10), NOW)
            before = generation(store)
        if command == "RESTORE":
            witness = redis.dump(b"teacup:space")
            redis.flushdb()
            redis.restore(b"teacup:space", 0, witness)
        else:
            redis.execute_command(*command.split(), "NOSAVE")

        with redis_store(server) as store:
            there, after = all_there(store, numbered(0, 20)), generation(store)

    assert not there
    assert after != before


@pytest.mark.slow
def test_the_api_on_redis_survives_kill_9_of_both(own_redis: RedisProcess, tmp_path: Path):
    """Through the server as users run it, with two workers."""
    keys = [b"key-%d" % number for number in range(3_000)]
    items = [Item(key, 1, b"", key, wall_ms() + 3_600_000) for key in keys]
    with server_process(tmp_path / "api", store=own_redis.url(), workers=2) as (_, url), client(url) as storage:
        outcomes = storage.write("latest", items)
        before = storage.namespace("latest").generation
        own_redis.kill()
    own_redis.start()

    with server_process(tmp_path / "api", store=own_redis.url()) as (_, url), client(url) as storage:
        found = storage.read("latest", keys)
        after = storage.namespace("latest").generation

    assert outcomes == [WriteResult(Status.OK)] * len(items)
    assert [result.items for result in found] == [(sent,) for sent in items]
    assert before == after
