"""What else is specific to the back end on Redis: a full server, one that does not answer, expiry, passwords, TLS.

Every test has a real server of its own.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import trustme

from deploy.broker.lifeline import free_port
from teacup.base.now import wall_ms
from teacup.storage.backends.namespaces import FREED_AFTER_MS
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageConfigInvalid, StorageUnavailable
from teacup.storage.model import Status, WriteResult
from tests.support.redis_server import RedisProcess, redis_process
from tests.teacup.storage.backends.model_machine import statuses
from tests.teacup.storage.backends.redis_stores import NOW, SPACE, all_there, item, numbered, redis_store, witnesses
from tests.teacup.storage.stores import opened

PAGE = (Path(__file__).parents[5] / "docs" / "storage-api.md").read_text(encoding="utf-8")


def test_a_full_store_says_so_and_answers_look_ups(own_redis: RedisProcess):
    """It publishes its state and deletes as well, and takes items again once there is room."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
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
    assert f"may use {used + 1} bytes (maxmemory)" in str(outcomes[-1].reason)
    assert state.retained_from == NOW + 5_000 - 1_000 + 1
    assert there
    assert statuses(deleted) == [Status.OK]
    assert set(statuses(again)) == {Status.OK}


def test_a_server_that_does_not_answer_is_reported_and_reconnected(own_redis: RedisProcess):
    """It is missing, or silent beyond the time-out; the same object goes on afterwards."""
    with redis_store(own_redis, "?timeout_s=2") as store:
        store.write(SPACE, numbered(0, 1), NOW)
        own_redis.kill()
        for call in (store.read, store.delete):
            with pytest.raises(StorageUnavailable, match=rf"127\.0\.0\.1:{own_redis.port}.* does not answer"):
                call(SPACE, [b"key-0"], NOW)
        with pytest.raises(StorageUnavailable):
            store.write(SPACE, numbered(0, 1), NOW)
        own_redis.start()
        assert all_there(store, numbered(0, 1))

        own_redis.pause()
        begun_s = time.monotonic()
        with pytest.raises(StorageUnavailable, match="does not answer"):
            store.state(SPACE, NOW)
        waited_s = time.monotonic() - begun_s
        own_redis.kill()
        own_redis.start()
        assert statuses(store.write(SPACE, numbered(0, 2), NOW)) == [Status.OK] * 2

    assert waited_s >= 2


def test_a_missing_server_is_reported():
    """With its address."""
    port = free_port()

    with pytest.raises(StorageUnavailable, match=rf"127\.0\.0\.1:{port}, database 0 does not answer"):
        open_backend(f"redis://127.0.0.1:{port}", [])


def test_the_server_keeps_a_key_as_long_as_its_longest_item(own_redis: RedisProcess):
    """An item that expires earlier does not shorten its time to live, a repeated one does not prolong it."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        lives_ms = []
        for version, lives in ((1, 600_000), (0, 30_000), (1, 9_000_000)):
            store.write(SPACE, [item(b"ttl", version=version, lives_ms=lives)], NOW)
            lives_ms.append(redis.pttl(b"teacup:space/ttl") + wall_ms() - NOW)

    assert lives_ms == [pytest.approx(600_000 + FREED_AFTER_MS, abs=60_000)] * 3


def test_a_key_that_changed_since_it_was_read_is_not_overwritten(own_redis: RedisProcess):
    """Another process writes between reading and writing; both items are kept."""
    with redis_store(own_redis) as store, redis_store(own_redis) as other:
        store.write(SPACE, [item(b"raced", version=1)], NOW)
        carry_out, raced = witnesses(store).carry_out, []

        def overtaken(*arguments: object) -> object:
            if not raced:
                raced.append(other.write(SPACE, [item(b"raced", version=2), item(b"new", version=2)], NOW))
            return carry_out(*arguments)

        witnesses(store).carry_out = overtaken  # type: ignore[assignment]
        outcomes = store.write(SPACE, [item(b"raced", version=3), item(b"new", version=3)], NOW)
        found = store.read(SPACE, [b"raced", b"new"], NOW)

    assert outcomes == [WriteResult(Status.OK)] * 2
    assert [[kept.version - NOW for kept in result.items] for result in found] == [[1, 2, 3], [2, 3]]


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

        with pytest.raises(StorageConfigInvalid, match=r"username-password pair.*; correct") as raised:
            open_backend(good.replace("s3cret", "an0ther"), [SPACE])
        with server.client() as redis:
            redis.execute_command("ACL", "SETUSER", "teacup", "-config|get")
        with pytest.raises(StorageConfigInvalid, match=r"config\|get.* needs \+info, \+config\|get"):
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

        with pytest.raises(StorageUnavailable, match="speaks TLS, write rediss:"):
            open_backend(server.url(), [SPACE])
        with pytest.raises(StorageConfigInvalid, match=r"verify failed.*; correct ca_bundle"):
            open_backend(f"{url}&ca_bundle={tmp_path}/other.pem", [SPACE])
        with pytest.raises(StorageConfigInvalid, match=r"; correct .* tls_certificate and tls_key"):
            open_backend(f"{url.replace('server.key', 'ours.pem')}&ca_bundle={tmp_path}/ours.pem", [SPACE])


def test_tls_that_the_server_does_not_speak_is_a_hint(own_redis: RedisProcess):
    """It waits for the end of a command, until the time is over."""
    with pytest.raises(StorageUnavailable, match="not speak TLS, write redis:"):
        open_backend(own_redis.url("?timeout_s=0.5").replace("redis:", "rediss:"), [SPACE])


def test_a_database_that_the_server_does_not_have_is_an_error_of_the_configuration(own_redis: RedisProcess):
    """It would be refused again, unlike a server that is not there yet."""
    with pytest.raises(StorageConfigInvalid, match=r"^store: .*, database 99 refuses this: DB index"):
        open_backend(own_redis.url().replace("/0", "/99"), [])


def test_a_password_may_be_withdrawn_while_the_store_is_open(own_redis: RedisProcess):
    """That holds everything, as if the server did not answer; it is no fault of a request."""
    with redis_store(own_redis) as store, own_redis.client() as redis:
        redis.config_set("requirepass", "changed")
        redis.client_kill_filter(_type="normal", skipme=True)

        with pytest.raises(StorageUnavailable, match="Authentication required"):
            store.state(SPACE, NOW)
