"""What a Redis server loses that has replicas, or is one for a while, and how that is noticed.

Every test has real servers of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.storage.backends.redis.server import RedisAt, RedisServer
from teacup.storage.errors import GenerationChanged, StorageUnavailable
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.waiting import wait_until
from tests.teacup.storage.backends.redis_stores import (
    NOW,
    SPACE,
    all_there,
    generation,
    numbered,
    redis_store,
    witnesses,
)


def test_a_replica_is_refused_and_has_another_generation_once_it_is_promoted(own_redis: RedisProcess, tmp_path: Path):
    """Nobody can tell what it has not received; also the old master, started again, is one more generation."""
    with redis_process(tmp_path / "replica", replicaof=f"127.0.0.1 {own_redis.port}") as replica:
        with redis_store(own_redis) as store, own_redis.client() as redis:
            wait_until(lambda: redis.info("replication")["connected_slaves"] == 1)
            before = generation(store)
            wait_until(lambda: is_refused(replica, "is a replica: name"))
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

        with pytest.raises(StorageUnavailable, match="is a replica: name"):
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
        carry_out = witnesses(store).carry_out

        def moved(*arguments: object) -> object:
            witnesses(store)._server = RedisServer(RedisAt("127.0.0.1", replica.port))
            return carry_out(*arguments)

        if when == "carried out":
            witnesses(store).carry_out = moved  # type: ignore[assignment]
        else:
            witnesses(store)._server = RedisServer(RedisAt("127.0.0.1", replica.port))
        with pytest.raises(GenerationChanged):
            store.write(SPACE, numbered(10, 10), NOW, fed)

        assert generation(old) == fed
        assert generation(store) != fed


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


def is_refused(server: RedisProcess, words: str) -> bool:
    try:
        with redis_store(server):
            return False
    except StorageUnavailable as error:
        return words in str(error)


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
