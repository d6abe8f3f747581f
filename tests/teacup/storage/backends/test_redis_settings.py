"""Settings with which a Redis server loses or evicts records, and how that is noticed.

Every test has a real server of its own.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from redis import Redis

from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Namespace, Status
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.waiting import wait_until
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.backends.redis_stores import NOW, SPACE, all_there, evicts, generation, numbered, redis_store
from tests.teacup.storage.stores import opened

OTHER = Namespace("other")


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("appendonly", "no", "set it to 'yes'"),
        ("appendfsync", "everysec", "sync=no"),
        ("save", "3600 1", ""),
        ("maxmemory-policy", "volatile-ttl", ""),
    ],
)
def test_a_server_that_would_lose_records_is_refused(tmp_path: Path, setting: str, value: str, remedy: str):
    """With the remedy, by setting."""
    with (
        redis_process(tmp_path / "redis", **{setting: value}) as server,
        pytest.raises(StorageConfigInvalid, match=f"{setting} is '{value}'.*{remedy}"),
    ):
        open_backend(server.url(), [SPACE])


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

        assert [set(statuses(results)) for results in outcomes] == [{Status.IN_DOUBT}] * 2
        assert set(statuses(store.write(SPACE, numbered(0, 2), NOW))) == {Status.OK}
        assert generation(store) == before


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


def test_nothing_is_acknowledged_while_a_log_that_was_switched_on_is_rewritten_first(tmp_path: Path):
    """It would be missing after a crash; a rewrite of a log that was always on is no such time."""
    slow = {"rdb_key_save_delay": "50000"}  # a key is saved in 0.05 s
    with redis_process(tmp_path / "redis", **slow) as server, redis_store(server) as store, server.client() as redis:
        store.write(SPACE, numbered(0, 30), NOW)
        before = generation(store)
        redis.bgrewriteaof()
        usual = store.write(SPACE, numbered(30, 1), NOW)
        wait_until(lambda: not redis.info("persistence")["aof_rewrite_in_progress"])
        redis.config_set("appendonly", "no")
        redis.config_set("rdb-key-save-delay", "60000000")  # the rewrite that follows lasts until it is killed
        redis.config_set("appendonly", "yes")
        with redis_store(server) as other:
            outcomes = [writer.write(SPACE, numbered(40 + i, 1), NOW) for i, writer in enumerate((store, other))]
        server.kill()
        server.start()
        after = generation(store)
        redis.config_set("rdb-key-save-delay", "0")

        assert after == before
        assert statuses(usual) == [Status.OK]
        assert [statuses(results) for results in outcomes] == [[Status.IN_DOUBT]] * 2
        assert "complete only after that" in str(outcomes[0][0].reason)
        assert all_there(store, numbered(0, 31))
        assert generation(store) == before
        assert statuses(store.write(SPACE, numbered(40, 2), NOW)) == [Status.OK] * 2


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


def evict_for_a_while(redis):
    """Evicts until some keys are gone; then the settings are right again."""
    redis.config_set("maxmemory-policy", "volatile-random")
    redis.config_set("maxmemory", 1)
    wait_until(lambda: evicts(redis))
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")
