"""The store of a chain loses something while records flow, in processes: no row is wrong, before and after.

What each store can lose, and how its own back end notices, is tried by `tests.teacup.storage.backends`; here feeder,
collector and join stand on it. A feeder that ends because of it feeds everything again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.aerospike_server import NEEDS_ASD, AerospikeProcess, aerospike_process
from tests.support.livechain import LiveChain, Traffic
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.waiting import wait_until

FULL_S = 3
IN_MEMORY = {"appendonly": "no"}
EVERY_SECOND = {"appendfsync": "everysec"}


@contextmanager
def redis_that(lose: Callable[[RedisProcess, Path], None], folder: Path, **settings: str) -> Iterator[tuple]:
    with redis_process(folder / "server", **settings) as server:
        yield server.url("?sync=no" if settings else ""), lambda: lose(server, folder)


@contextmanager
def aerospike_that(lose: Callable[[AerospikeProcess, Path], None], folder: Path) -> Iterator[tuple]:
    with aerospike_process(folder / "server") as server:
        yield server.url, lambda: lose(server, folder)


def is_killed(server: RedisProcess | AerospikeProcess, folder: Path) -> None:
    server.kill()
    server.start()


def is_restarted(server: RedisProcess, folder: Path) -> None:
    server.end()
    server.start()


def fails_over(server: RedisProcess, folder: Path) -> None:
    """To a copy that stood still for a while, and back: what was stored since then is gone."""
    with redis_process(folder / "copy") as copy, copy.client() as old, server.client() as new:
        old.replicaof("127.0.0.1", str(server.port))
        wait_until(lambda: old.info("replication")["master_link_status"] == "up")
        old.replicaof("NO", "ONE")
        stored = new.dbsize()
        wait_until(lambda: new.dbsize() > stored + 5)
        new.replicaof("127.0.0.1", str(copy.port))
        wait_until(lambda: new.info("replication")["master_link_status"] == "up")
        new.replicaof("NO", "ONE")


def evicts(server: AerospikeProcess, folder: Path) -> None:
    """All that it has."""
    server.says("eviction-reset:namespace=test;ttl=36000")


def is_full(server: AerospikeProcess, folder: Path) -> None:
    """For a while, in which the feeder tries to write."""
    server.set(stop_writes_sys_memory_pct="1")
    wait_until(lambda: ";stop_writes=true" in server.says("namespace/test"))
    time.sleep(FULL_S)
    server.set(stop_writes_sys_memory_pct="90")
    wait_until(lambda: ";stop_writes=false" in server.says("namespace/test"))


def is_full_redis(server: RedisProcess, folder: Path) -> None:
    with server.client() as client:
        client.config_set("maxmemory", "1mb")
        wait_until(lambda: "errorstat_OOM" in client.info("errorstats"))
        time.sleep(FULL_S)
        client.config_set("maxmemory", "0")


REDIS = [
    pytest.param(redis_that, is_killed, IN_MEMORY, True, id="redis in memory, killed"),
    pytest.param(redis_that, is_killed, EVERY_SECOND, True, id="redis without sync, killed"),
    pytest.param(redis_that, is_restarted, EVERY_SECOND, True, id="redis without sync, restarted"),
    pytest.param(redis_that, fails_over, {}, True, id="redis, failed over"),
    pytest.param(redis_that, is_full_redis, {}, False, id="redis, full"),
]
AEROSPIKE = [
    pytest.param(aerospike_that, is_killed, {}, True, id="aerospike, killed", marks=NEEDS_ASD),
    pytest.param(aerospike_that, evicts, {}, True, id="aerospike, evicting", marks=NEEDS_ASD),
    pytest.param(aerospike_that, is_full, {}, False, id="aerospike, full", marks=NEEDS_ASD),
]


@pytest.mark.slow
@pytest.mark.parametrize(("store_that", "happens", "settings", "loses"), [*REDIS, *AEROSPIKE])
def test_no_row_is_wrong_whatever_the_store_loses(
    tmp_path: Path,
    kafka: dict[str, str],
    topic_factory: Callable[..., str],
    store_that: Callable[..., Iterator[tuple]],
    happens: Callable[..., None],
    settings: dict[str, str],
    loses: bool,
) -> None:
    """A store that loses, or may have lost, something has another generation: feeder and join stop until it was fed
    again. One that is full for a while is waited for."""
    topics = topic_factory(prefix="left"), topic_factory(prefix="right")
    traffic = Traffic(kafka, *topics)
    with (
        store_that(happens, tmp_path, **settings) as (url, mishap),
        LiveChain(tmp_path, kafka, topics).running(url) as chain,
    ):
        with traffic.flowing():
            chain.wait_for(lambda: len(chain.rows) > 10)
            before = chain.generation()
            mishap()
            if loses:
                wait_until(chain.ended, lambda: chain.logged[-5_000:], 120)
                chain.feed_again()
            rows = len(chain.rows)
            chain.wait_for(lambda: len(chain.rows) > rows + 20)
        chain.wait_for(lambda: len(chain.rows) >= len(traffic.expected))
        found, after = sorted(chain.rows), chain.generation()

    assert found == traffic.expected
    assert (before != after) == loses
