"""What is specific to the back end on Redis: what the server loses and how that is noticed, a full one, its failures.

Every test has a real server of its own.
"""

from __future__ import annotations

import itertools
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from redis import Redis

from kafkaio.now import wall_ms
from storage.backends.opening import open_backend
from storage.errors import StorageConfigInvalid, StorageUnavailable
from storage.model import Backend, Item, Keep, Namespace, Status, WriteResult
from tests.storage.modelmachine import statuses
from tests.storage.stores import item_maker, opened
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.storage_process import client, free_port, server_process
from tests.support.waiting import wait_until

NOW = wall_ms()
item = item_maker(NOW)
SPACE = Namespace("space", Keep.ALL, 10, 1_000)
PAGE = (Path(__file__).parents[2] / "docs" / "storage-api.md").read_text(encoding="utf-8")
EVERYSEC = {"appendfsync": "everysec"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisProcess]:
    """That loses nothing."""
    with redis_process(tmp_path / "redis") as running:
        yield running


@contextmanager
def redis_store(server: RedisProcess, more: str = "") -> Iterator[Backend]:
    with opened(lambda *spaces: open_backend(server.url(more), spaces), SPACE) as store:
        yield store


def numbered(first: int, count: int) -> list[Item]:
    return [item(b"key-%d" % number, value=b"%d" % number) for number in range(first, first + count)]


def generation(store: Backend) -> str:
    return store.state(SPACE, NOW).generation


def all_there(store: Backend, items: list[Item]) -> bool:
    return [one.items for one in store.read(SPACE, [one.key for one in items], NOW)] == [(one,) for one in items]


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


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(server: RedisProcess):
    """kill -9 while two threads write, twice; the same store object goes on, its generation stays."""
    acknowledged: list[Item] = []
    with redis_store(server) as store:
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
            server.kill()
            for thread in threads:
                thread.join(20)
            server.start()

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


def test_a_wiped_server_has_another_generation(server: RedisProcess):
    """By a command, or because its files are gone."""
    with redis_store(server) as store:
        generations = [generation(store)]
        with server.client() as redis:
            redis.flushall()
        generations.append(generation(store))
        server.kill()
        shutil.rmtree(server.folder / "appendonlydir")
        server.start()
        generations.append(generation(store))

    assert len(set(generations)) == 3


@pytest.mark.parametrize("first_call", ["state", "write"])
def test_a_log_that_lost_its_end_is_another_generation(server: RedisProcess, tmp_path: Path, first_call: str):
    """An older copy of the files was restored: the process that wrote knows better, and says so only once."""
    with redis_store(server) as store:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        shutil.copytree(server.folder / "appendonlydir", tmp_path / "copy")
        store.write(SPACE, numbered(10, 10), NOW)
        server.kill()
        shutil.rmtree(server.folder / "appendonlydir")
        shutil.copytree(tmp_path / "copy", server.folder / "appendonlydir")
        server.start()

        if first_call == "write":
            for number in range(3):
                store.write(SPACE, numbered(20 + number, 1), NOW)
        after = [generation(store), generation(store)]
        store.write(SPACE, numbered(40, 1), NOW)
        after.append(generation(store))

    assert after[0] != before
    assert len(set(after)) == 1


def test_a_replica_is_refused_and_has_another_generation_once_it_is_promoted(server: RedisProcess, tmp_path: Path):
    """Nobody can tell what it has not received; also the old master, started again, is one more generation."""
    with redis_process(tmp_path / "replica", replicaof=f"127.0.0.1 {server.port}") as replica:
        with redis_store(server) as store, server.client() as redis:
            wait_until(lambda: redis.info("replication")["connected_slaves"] == 1)
            before = generation(store)
            wait_until(lambda: is_refused(replica, "it is a replica: name the master"))
        server.kill()
        with replica.client() as redis:
            redis.replicaof("NO", "ONE")
        with redis_store(replica) as store:
            promoted = generation(store)
        server.start()
        with redis_store(server) as store:
            restarted = generation(store)

    assert len({before, promoted, restarted}) == 3


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


def test_settings_that_change_at_run_time_hold_everything(server: RedisProcess):
    """Nothing is acknowledged meanwhile, not even what was stored before the change was noticed."""
    with redis_store(server) as store, server.client() as redis:
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


def test_evicted_keys_are_noticed_afterwards(server: RedisProcess):
    """Though the setting was corrected before anybody looked; also by a process that has written nothing."""
    with redis_store(server) as store, server.client() as redis:
        store.write(SPACE, numbered(0, 10), NOW)
        before = generation(store)
        redis.config_set("maxmemory-policy", "volatile-random")
        redis.config_set("maxmemory", 1)
        wait_until(lambda: evicts(redis))
        redis.config_set("maxmemory", 0)
        redis.config_set("maxmemory-policy", "noeviction")
        with redis_store(server) as other:
            after = [generation(other), generation(store)]

    assert after[0] == after[1] != before


def evicts(redis: Redis) -> bool:
    redis.get(b"any")
    return bool(redis.info("stats")["evicted_keys"])


def test_a_full_store_says_so_and_answers_look_ups(server: RedisProcess):
    """It publishes its state and deletes as well, and takes items again once there is room."""
    with redis_store(server) as store, server.client() as redis:
        store.write(SPACE, numbered(0, 10), NOW)
        used = redis.info("memory")["used_memory"]
        redis.config_set("maxmemory", used + 1)
        large = [item(b"large-%d" % number, value=bytes(50_000)) for number in range(20)]

        outcomes = store.write(SPACE, large, NOW)
        changed = store.write(SPACE, [item(b"key-0", version=1)], NOW)
        state = store.state(SPACE, NOW + 5_000)
        there = all_there(store, numbered(0, 10))
        deleted = store.delete(SPACE, [b"key-9"], NOW)
        redis.config_set("maxmemory", used + 10_000_000)
        again = store.write(SPACE, large, NOW)

    assert (outcomes[-1].status, changed[0].status) == (Status.RETRYABLE, Status.RETRYABLE)
    assert f"the store is full: the server may use {used + 1} bytes (maxmemory)" in str(outcomes[-1].reason)
    assert state.retained_from == NOW + 5_000 - 1_000 + 1
    assert there
    assert statuses(deleted) == [Status.OK]
    assert set(statuses(again)) == {Status.OK}


def test_a_server_that_does_not_answer_is_reported_and_reconnected(server: RedisProcess):
    """It is missing, or silent beyond the time-out; the same object goes on afterwards."""
    with redis_store(server, "?timeout_s=0.5") as store:
        store.write(SPACE, numbered(0, 1), NOW)
        server.kill()
        for call in (store.read, store.delete):
            with pytest.raises(StorageUnavailable, match=rf"127\.0\.0\.1:{server.port}.* does not answer"):
                call(SPACE, [b"key-0"], NOW)
        with pytest.raises(StorageUnavailable):
            store.write(SPACE, numbered(0, 1), NOW)
        server.start()
        assert all_there(store, numbered(0, 1))

        server.pause()
        begun_s = time.monotonic()
        with pytest.raises(StorageUnavailable, match="does not answer"):
            store.state(SPACE, NOW)
        waited_s = time.monotonic() - begun_s
        server.kill()
        server.start()
        assert statuses(store.write(SPACE, numbered(0, 2), NOW)) == [Status.OK] * 2

    assert waited_s >= 0.5


def test_a_missing_server_is_reported():
    """With its address."""
    port = free_port()

    with pytest.raises(StorageUnavailable, match=rf"Redis at 127\.0\.0\.1:{port}, database 0 does not answer"):
        open_backend(f"redis://127.0.0.1:{port}", [])


def test_the_server_keeps_a_key_as_long_as_its_longest_item(server: RedisProcess):
    """An item that expires earlier does not shorten its time to live, a repeated one does not prolong it."""
    with redis_store(server) as store, server.client() as redis:
        lives_ms = []
        for version, lives in ((1, 600_000), (0, 30_000), (1, 9_000_000)):
            store.write(SPACE, [item(b"ttl", version=version, lives_ms=lives)], NOW)
            lives_ms.append(redis.pttl(b"teacup:space/ttl"))

    assert 600_000 < lives_ms[0] <= 660_000
    assert lives_ms[0] - 60_000 < lives_ms[1] < lives_ms[0] + 60_000
    assert lives_ms[2] <= lives_ms[1]


def test_a_key_that_changed_since_it_was_read_is_not_overwritten(server: RedisProcess):
    """Another process writes between reading and writing; both items are kept."""
    with redis_store(server) as store, redis_store(server) as other:
        store.write(SPACE, [item(b"raced", version=1)], NOW)
        fetch, raced = store._fetch, []  # type: ignore[attr-defined]

        def fetched_early(*arguments: object) -> list[bytes | None]:
            kept = fetch(*arguments)
            if not raced:
                raced.append(other.write(SPACE, [item(b"raced", version=2), item(b"new", version=2)], NOW))
            return list(kept)

        store._fetch = fetched_early  # type: ignore[attr-defined]
        outcomes = store.write(SPACE, [item(b"raced", version=3), item(b"new", version=3)], NOW)
        found = store.read(SPACE, [b"raced", b"new"], NOW)

    assert outcomes == [WriteResult(Status.OK)] * 2
    assert [[one.version - NOW for one in each.items] for each in found] == [[1, 2, 3], [2, 3]]


def test_a_password_is_used_and_never_shown(tmp_path: Path):
    """The user needs no more than the page says."""
    (rights,) = re.findall(r"`(~teacup:\*[^`]*)`", PAGE)
    with redis_process(tmp_path / "redis") as server:
        with server.client() as redis:
            redis.execute_command("ACL", "SETUSER", "teacup", "on", ">s3cret/pass", *rights.split())
        good = f"redis://teacup:s3cret%2Fpass@127.0.0.1:{server.port}/0"
        with opened(lambda *spaces: open_backend(good, spaces), SPACE) as store:
            assert statuses(store.write(SPACE, [item(), item(version=1)], NOW)) == [Status.OK] * 2
            assert statuses(store.delete(SPACE, [b"k"], NOW)) == [Status.OK]

        with pytest.raises(StorageUnavailable, match="invalid username-password pair") as raised:
            open_backend(good.replace("s3cret", "an0ther"), [SPACE])
        with server.client() as redis:
            redis.execute_command("ACL", "SETUSER", "teacup", "-config|get")
        with pytest.raises(StorageUnavailable, match=r"config\|get.* the user needs \+info, \+config\|get"):
            open_backend(good, [SPACE])

    assert "an0ther" not in str(raised.value)


def test_tls_with_a_ca_of_ones_own(tmp_path: Path):
    """And with a certificate for the client, as the server wants it by default."""
    ours, other = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ours.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    certificate = ours.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    files = {
        "tls_cert_file": str(tmp_path / "server.pem"),
        "tls_key_file": str(tmp_path / "server.key"),
        "tls_ca_cert_file": str(tmp_path / "ours.pem"),
    }
    with redis_process(tmp_path / "redis", **files) as server:
        url = f"rediss://127.0.0.1:{server.port}/0?tls_certificate={tmp_path}/server.pem&tls_key={tmp_path}/server.key"
        with opened(lambda *spaces: open_backend(f"{url}&ca_bundle={tmp_path}/ours.pem", spaces), SPACE) as store:
            assert statuses(store.write(SPACE, [item()], NOW)) == [Status.OK]

        with pytest.raises(StorageUnavailable, match="certificate verify failed"):
            open_backend(f"{url}&ca_bundle={tmp_path}/other.pem", [SPACE])


def test_the_api_on_redis_survives_kill_9_of_both(server: RedisProcess, tmp_path: Path):
    """Through the server as users run it, with two workers."""
    keys = [b"key-%d" % number for number in range(3_000)]
    items = [Item(key, 1, b"", key, wall_ms() + 3_600_000) for key in keys]
    with server_process(tmp_path / "api", store=server.url(), workers=2) as (_, url), client(url) as storage:
        outcomes = storage.write("latest", items)
        before = storage.namespace("latest").generation
        server.kill()
    server.start()

    with server_process(tmp_path / "api", store=server.url()) as (_, url), client(url) as storage:
        found = storage.read("latest", keys)
        after = storage.namespace("latest").generation

    assert outcomes == [WriteResult(Status.OK)] * len(items)
    assert [one.items for one in found] == [(one,) for one in items]
    assert before == after
