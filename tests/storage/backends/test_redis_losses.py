"""What a Redis server loses, and how that is noticed: kills, wipes, replicas, settings, eviction.

Every test has a real server of its own.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from kafkaio.now import wall_ms
from storage.backends.opening import open_backend
from storage.backends.redisserver import RedisAt, RedisServer
from storage.errors import GenerationChanged, StorageConfigInvalid, StorageUnavailable
from storage.model import Backend, Item, Namespace, Status, WriteResult
from tests.storage.backends.modelmachine import statuses
from tests.storage.backends.redisstores import NOW, SPACE, all_there, evicts, generation, numbered, redis_store
from tests.storage.stores import opened
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.storage_process import client, server_process
from tests.support.waiting import wait_until

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
            self.acknowledged += [one for one, outcome in zip(batch, outcomes, strict=True) if outcome.status == "ok"]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(own_redis: RedisProcess):
    """kill -9 while two threads write, twice; the same store object goes on, its generation stays."""
    acknowledged: list[Item] = []
    with redis_store(own_redis) as store:
        before = generation(store)
        for turn in range(2):
            goal = len(acknowledged) + 400
            threads = [
                threading.Thread(target=Writer(store, acknowledged).run, args=((2 * turn + one) * 1_000_000,))
                for one in range(2)
            ]
            for thread in threads:
                thread.start()
            wait_until(lambda goal=goal: len(acknowledged) >= goal)
            own_redis.kill()
            for thread in threads:
                thread.join(20)
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


def test_a_replica_is_refused_and_has_another_generation_once_it_is_promoted(own_redis: RedisProcess, tmp_path: Path):
    """Nobody can tell what it has not received; also the old master, started again, is one more generation."""
    with redis_process(tmp_path / "replica", replicaof=f"127.0.0.1 {own_redis.port}") as replica:
        with redis_store(own_redis) as store, own_redis.client() as redis:
            wait_until(lambda: redis.info("replication")["connected_slaves"] == 1)
            before = generation(store)
            wait_until(lambda: is_refused(replica, "it is a replica: name the master"))
        own_redis.kill()
        with replica.client() as redis:
            redis.replicaof("NO", "ONE")
        with redis_store(replica) as store:
            promoted = generation(store)
        own_redis.start()
        with redis_store(own_redis) as store:
            restarted = generation(store)

    assert len({before, promoted, restarted}) == 3


def test_a_server_that_was_a_replica_for_a_while_is_another_generation(own_redis: RedisProcess, tmp_path: Path):
    """It took over an older copy of its own data, on the same run, while nobody looked."""
    with redis_process(tmp_path / "copy") as copy:
        with redis_store(own_redis) as store:
            store.write(SPACE, numbered(0, 10), NOW)
            follow(copy, own_redis)
            promote(copy)
            wait_until(lambda: not replicas(own_redis))
            store.write(SPACE, numbered(10, 10), NOW)
            before = generation(store)
        follow(own_redis, copy)
        promote(own_redis)

        with redis_store(own_redis) as store:
            there, after = all_there(store, numbered(0, 20)), generation(store)

    assert not there
    assert after != before


def test_a_first_replica_changes_nothing(own_redis: RedisProcess, tmp_path: Path):
    """Though the server begins another history for it."""
    with redis_store(own_redis) as store, redis_process(tmp_path / "replica") as replica:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        follow(replica, own_redis)

        there, after = all_there(store, numbered(0, 10)), generation(store)

    assert there
    assert after == before


def test_look_ups_are_not_answered_by_a_replica(own_redis: RedisProcess, tmp_path: Path):
    """Though nobody has asked for the state of the namespace since the server became one."""
    with redis_process(tmp_path / "other") as other, redis_store(own_redis) as store:
        store.write(SPACE, numbered(0, 10), NOW)
        follow(own_redis, other)

        with pytest.raises(StorageUnavailable, match="it is a replica: name the master"):
            store.read(SPACE, [b"key-0"], NOW)


def test_a_look_up_is_not_answered_by_a_new_master_that_lacks_something(own_redis: RedisProcess, tmp_path: Path):
    """The old one is reached by another process of the API still, which answers for the generation."""
    with redis_process(tmp_path / "replica") as replica, redis_store(own_redis) as old:
        follow(replica, own_redis)
        relied_on = generation(old)
        wait_until(lambda: replica_has(replica, relied_on))
        promote(replica)
        old.write(SPACE, numbered(0, 10), NOW)
        with redis_store(replica) as new, pytest.raises(GenerationChanged):
            new.read(SPACE, [b"key-0"], NOW, relied_on)

        assert generation(old) == relied_on


@pytest.mark.parametrize("when", ["read", "carried out"])
def test_a_write_is_not_acknowledged_by_a_new_master_that_lacks_something(
    own_redis: RedisProcess, tmp_path: Path, when: str
):
    """Though its witness is a copy of the old one's; a feeder names the generation that it feeds."""
    with redis_process(tmp_path / "replica") as replica, redis_store(own_redis) as old, redis_store(own_redis) as store:
        follow(replica, own_redis)
        fed = generation(store)
        wait_until(lambda: replica_has(replica, fed))
        promote(replica)
        old.write(SPACE, numbered(0, 10), NOW)
        carry_out = store._carry_out  # type: ignore[attr-defined]

        def moved(*arguments: object) -> object:
            store._server = RedisServer(RedisAt("127.0.0.1", replica.port))  # type: ignore[attr-defined]
            return carry_out(*arguments)

        if when == "carried out":
            store._carry_out = moved  # type: ignore[attr-defined]
        else:
            store._server = RedisServer(RedisAt("127.0.0.1", replica.port))  # type: ignore[attr-defined]
        with pytest.raises(GenerationChanged):
            store.write(SPACE, numbered(10, 10), NOW, fed)

        assert generation(old) == fed
        assert generation(store) != fed


def replica_has(replica: RedisProcess, generation: str) -> bool:
    with replica.client() as redis:
        return generation.encode() in (redis.get(b"teacup:space") or b"")


def follow(replica: RedisProcess, master: RedisProcess) -> None:
    with replica.client() as redis:
        redis.replicaof("127.0.0.1", str(master.port))
        wait_until(lambda: redis.info("replication")["master_link_status"] == "up")


def promote(server: RedisProcess) -> None:
    with server.client() as redis:
        redis.replicaof("NO", "ONE")


def replicas(server: RedisProcess) -> int:
    with server.client() as redis:
        return int(redis.info("replication")["connected_slaves"])


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
        carry_out = store._carry_out  # type: ignore[attr-defined]

        def flushed_before(*arguments: object) -> object:
            redis.flushdb()
            return carry_out(*arguments)

        store._carry_out = flushed_before  # type: ignore[attr-defined]
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
            sent.extend(one for one in commands if one[0] == "EVAL")
            return run_and_ask(commands)

        store._server.run_and_ask = noted  # type: ignore[attr-defined]
        store.write(SPACE, numbered(0, 10), NOW)
        store.write(SPACE, numbered(10, 10), NOW)
        before = generation(store)
        redis.execute_command(*sent[0])

        assert generation(store) == before


def is_refused(server: RedisProcess, words: str) -> bool:
    try:
        with redis_store(server):
            return False
    except StorageUnavailable as error:
        return words in str(error)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"appendonly": "no"}, "appendonly is 'no', and a restart would lose what was acknowledged: set it to 'yes'"),
        (EVERYSEC, "appendfsync is 'everysec', .*set it to 'always'; or name the store with sync=no"),
        ({"save": "3600 1"}, "save is '3600 1', and a server that starts from a snapshot"),
        ({"maxmemory_policy": "volatile-ttl"}, "maxmemory-policy is 'volatile-ttl', and it would evict live items"),
    ],
)
def test_a_server_that_would_lose_records_is_refused(tmp_path: Path, settings: dict[str, str], words: str):
    """With the remedy, by setting."""
    with redis_process(tmp_path / "redis", **settings) as server, pytest.raises(StorageConfigInvalid, match=words):
        open_backend(server.url(), [SPACE])


OTHER = Namespace("other")


@pytest.mark.parametrize("seen_by", ["live process", "new process"])
def test_a_run_that_evicted_is_remembered_when_the_server_is_started_again(own_redis: RedisProcess, seen_by: str):
    """It was refused for its settings, for all namespaces; its count is gone with it."""
    url, spaces = own_redis.url(), (SPACE, OTHER)
    with opened(lambda *all: open_backend(url, all), *spaces) as store:
        before = [store.state(space, NOW).generation for space in spaces]
        for space in spaces:
            store.write(space, numbered(0, 100), NOW)
        own_redis.end()
        sound = own_redis.settings
        own_redis.settings = sound | {"maxmemory": "1", "maxmemory-policy": "volatile-ttl"}
        own_redis.start()
        with own_redis.client() as redis:
            wait_until(lambda: evicts(redis))
        if seen_by == "live process":
            with pytest.raises(StorageUnavailable, match="maxmemory-policy is 'volatile-ttl'"):
                store.state(SPACE, NOW)
        else:
            with pytest.raises(StorageConfigInvalid, match="maxmemory-policy is 'volatile-ttl'"):
                open_backend(url, spaces)
        own_redis.kill()
        own_redis.settings = sound
        own_redis.start()
    with opened(lambda *all: open_backend(url, all), *spaces) as store:
        after = [store.state(space, NOW).generation for space in spaces]

    assert not set(before) & set(after)


def test_what_one_namespace_shows_is_recorded_for_all(own_redis: RedisProcess):
    """The settings are right again, and the next run would not know of it."""
    url, spaces = own_redis.url(), (SPACE, OTHER)
    with opened(lambda *all: open_backend(url, all), *spaces) as store, own_redis.client() as redis:
        before = [store.state(space, NOW).generation for space in spaces]
        for space in spaces:
            store.write(space, numbered(0, 10), NOW)
        evict_for_a_while(redis)
        store.write(SPACE, numbered(0, 1), NOW)
    own_redis.kill()
    own_redis.start()
    with opened(lambda *all: open_backend(url, all), *spaces) as store:
        after = [store.state(space, NOW).generation for space in spaces]

    assert not set(before) & set(after)


@pytest.mark.parametrize("another_is_first", [False, True])
def test_a_replica_that_was_seen_is_remembered_until_it_can_be_recorded(
    own_redis: RedisProcess, tmp_path: Path, another_is_first: bool
):
    """It took over older data, and shows nothing of that once it is started again as a master."""
    with redis_process(tmp_path / "copy") as copy, redis_store(own_redis) as store:
        before = generation(store)
        follow(copy, own_redis)
        promote(copy)
        wait_until(lambda: not replicas(own_redis))
        with redis_store(own_redis) as other:
            other.write(SPACE, numbered(0, 10), NOW)
        own_redis.kill()
        own_redis.settings["replicaof"] = f"127.0.0.1 {copy.port}"
        own_redis.start()
        with own_redis.client() as redis:
            wait_until(lambda: redis.info("replication")["master_link_status"] == "up")
            wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
        with pytest.raises(StorageUnavailable, match="it is a replica"):
            store.state(SPACE, NOW)
        del own_redis.settings["replicaof"]
        own_redis.kill()
        own_redis.start()
        if another_is_first:
            with redis_store(own_redis) as other:
                assert generation(other) == before

        there, after = all_there(store, numbered(0, 10)), generation(store)

    assert not there
    assert after != before


def test_a_server_that_gets_its_settings_at_run_time_only_is_another_generation_when_it_is_started_again(
    tmp_path: Path,
):
    """It began with what its file says: here with an older snapshot, and without its log."""
    with redis_process(tmp_path / "redis", appendonly="no") as server, server.client() as redis:
        log_on(redis)
        with redis_store(server) as store:
            before = generation(store)
            redis.save()
            store.write(SPACE, numbered(0, 10), NOW)
        server.kill()
        server.start()
        log_on(redis)
        with redis_store(server) as store:
            there, after = all_there(store, numbered(0, 10)), generation(store)

    assert not there
    assert after != before


def log_on(redis: Redis) -> None:
    redis.config_set("appendonly", "yes")
    wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])


def test_settings_that_change_at_run_time_hold_everything(own_redis: RedisProcess):
    """Nothing is acknowledged meanwhile, not even what was stored before the change was noticed."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        store.write(SPACE, numbered(0, 1), NOW)
        before = generation(store)
        redis.config_set("appendfsync", "everysec")

        outcomes = [store.write(SPACE, numbered(1, 2), NOW), store.write(SPACE, numbered(0, 2), NOW)]
        with pytest.raises(StorageUnavailable, match="appendfsync is 'everysec'"):
            store.state(SPACE, NOW)
        with pytest.raises(StorageUnavailable, match="appendfsync is 'everysec'"):
            store.delete(SPACE, [b"key-0"], NOW)
        redis.config_set("appendfsync", "always")

        assert [set(statuses(one)) for one in outcomes] == [{Status.IN_DOUBT}] * 2
        assert set(statuses(store.write(SPACE, numbered(0, 2), NOW))) == {Status.OK}
        assert generation(store) == before


def test_nothing_is_acknowledged_while_a_log_that_was_switched_on_is_rewritten_first(tmp_path: Path):
    """It would be missing after a crash; a rewrite of a log that was always on is no such time."""
    slow = {"rdb_key_save_delay": "100000"}  # a key is saved in 0.1 s
    with redis_process(tmp_path / "redis", **slow) as server, redis_store(server) as store, server.client() as redis:
        store.write(SPACE, numbered(0, 30), NOW)
        before = generation(store)
        redis.bgrewriteaof()
        wait_until(lambda: redis.info("persistence")["aof_rewrite_in_progress"])
        usual = store.write(SPACE, numbered(30, 1), NOW)
        wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
        redis.config_set("appendonly", "no")
        redis.config_set("appendonly", "yes")
        with redis_store(server) as other:
            outcomes = [one.write(SPACE, numbered(40 + i, 1), NOW) for i, one in enumerate((store, other))]
        server.kill()
        server.start()
        redis.ping()  # the process that was rewriting the log has the connections open for a while
        after = generation(store)
        redis.config_set("rdb-key-save-delay", "0")

        assert after == before
        assert statuses(usual) == [Status.OK]
        assert [statuses(one) for one in outcomes] == [[Status.IN_DOUBT]] * 2
        assert "complete only after that" in str(outcomes[0][0].reason)
        assert all_there(store, numbered(0, 31))
        assert generation(store) == before
        assert statuses(store.write(SPACE, numbered(40, 2), NOW)) == [Status.OK] * 2


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


def evict_for_a_while(redis):
    """Until some keys are gone; then the settings are right again."""
    redis.config_set("maxmemory-policy", "volatile-random")
    redis.config_set("maxmemory", 1)
    wait_until(lambda: evicts(redis))
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")


@pytest.mark.parametrize("reset", [False, True])
def test_evicted_keys_are_noticed_afterwards(own_redis: RedisProcess, reset: bool):
    """Though the setting was corrected before anybody looked, and the count reset; also by a process that has written
    nothing."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        evict_for_a_while(redis)
        if reset:
            redis.config_resetstat()
        with redis_store(own_redis) as other:
            after = [generation(other), generation(store)]

    assert after[0] == after[1] != before


def test_evictions_are_noticed_though_every_reset_of_their_count_looks_the_same(own_redis: RedisProcess):
    """The call that did it took as long as the one before."""
    with own_redis.client() as redis:

        def reset() -> int:
            redis.config_resetstat()
            return int(redis.info("commandstats")["cmdstat_config|resetstat"]["usec"])

        usual = statistics.mode(reset() for _ in range(200))
        assert any(reset() == usual for _ in range(50_000))
        with redis_store(own_redis) as store:
            store.write(SPACE, numbered(0, 100), NOW)
            before = generation(store)
        evict_for_a_while(redis)
        assert any(reset() == usual for _ in range(50_000))
        with redis_store(own_redis) as store:
            after = generation(store)

    assert after != before


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
    assert [one.items for one in found] == [(one,) for one in items]
    assert before == after
