"""No clock makes a store lose what it acknowledged: what a clock takes for expired, the namespace says it may lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teacup.base.now import wall_ms
from teacup.storage.backends.namespaces import StoredNamespace
from teacup.storage.backends.opening import open_backend
from teacup.storage.backends.redis import store as redisstore
from teacup.storage.backends.redis import witnesses as rediswitnesses
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Item, Keep, Status
from tests.support.canary import searched
from tests.support.clocklife import (
    any_life,
    guarded,
    misses_nothing,
    serves_all_along,
    unguarded,
)
from tests.support.clocks import HOUR_MS, STEP_MS
from tests.support.redis_server import RedisProcess
from tests.teacup.storage.stores import NEEDS_AEROSPIKE, Open, namespace, opened, opener

KINDS = ["lmdb", "redis", pytest.param("aerospike", marks=NEEDS_AEROSPIKE)]


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisProcess) -> Open:
    """Opens each back end."""
    return opener(str(request.param), tmp_path, redis)


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.LATEST])
def test_whatever_a_clock_does_a_look_up_misses_nothing_that_the_namespace_says_it_keeps(open_store: Open, keep: Keep):
    """Neither what was refused as expired, nor what was replaced, hidden or freed."""
    any_life(open_store, keep, lambda: unguarded, misses_nothing)()


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.LATEST])
def test_canary_without_the_horizon_what_a_clock_took_for_expired_is_missed(
    open_store: Open, keep: Keep, monkeypatch: pytest.MonkeyPatch
):
    """The safeguard is switched off: nothing of it is recorded."""
    monkeypatch.setattr(StoredNamespace, "beyond", lambda self, moment: self)

    with pytest.raises(AssertionError):
        searched(seed=1)(any_life(open_store, keep, lambda: unguarded, misses_nothing))()


def test_with_the_apis_clock_the_namespace_serves_all_along(open_store: Open):
    """A step that the monotonic clock contradicts expires nothing."""
    any_life(open_store, Keep.ALL, guarded, serves_all_along)()


def test_canary_without_the_monotonic_clock_the_namespace_gives_up_what_it_has(open_store: Open):
    """By a wall clock alone what is live is taken for expired, and left records before it are not answered any more."""
    with pytest.raises(AssertionError):
        searched(seed=1)(any_life(open_store, Keep.ALL, lambda: unguarded, serves_all_along))()


def frees_only_what_is_over(redis: RedisProcess, off_ms: int) -> None:
    """Writes an item by a clock that is off, which tells Redis when to free it; its own may be two hours ahead."""
    space, now_ms = namespace(retention_ms=HOUR_MS), wall_ms()
    expires_at_ms = now_ms + 3 * HOUR_MS
    with opened(opener("redis", Path(), redis), space) as store:
        outcomes = store.write(space, [Item(b"k", now_ms, b"", b"v", expires_at_ms)], now_ms + off_ms)

    with redis.client() as client:
        freed_at_ms: Any = client.pexpiretime(b"teacup:" + space.name.encode() + b"/k")
    assert outcomes[0].status is Status.OK
    assert freed_at_ms - STEP_MS > expires_at_ms


@pytest.mark.parametrize("off_ms", [-STEP_MS, STEP_MS])
def test_a_redis_server_frees_nothing_that_is_live_by_a_clock_that_is_hours_off(redis: RedisProcess, off_ms: int):
    """Neither ours, when it writes, nor its own: what it frees, it frees hours after its expiry."""
    frees_only_what_is_over(redis, off_ms)


def test_canary_with_a_margin_of_a_minute_a_redis_server_would_free_live_items(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
):
    """By a clock of its own that is hours ahead."""
    monkeypatch.setattr(redisstore, "FREED_AFTER_MS", 60_000)

    with pytest.raises(AssertionError):
        frees_only_what_is_over(redis, 0)


def refuses_while_clocks_differ(redis: RedisProcess) -> None:
    """Sends a request in which everything looks expired, by a clock that is two hours ahead."""
    space, now_ms, off_ms = namespace(retention_ms=HOUR_MS), wall_ms(), 0
    store = open_backend(redis.url(), [space], lambda: wall_ms() + off_ms)
    try:
        off_ms = STEP_MS
        with pytest.raises(StorageUnavailable, match="clock differs by -7200 s"):
            store.write(space, [Item(b"k", now_ms, b"", b"v", now_ms + HOUR_MS)], now_ms + STEP_MS)
        off_ms = 0
        state = store.state(space, now_ms)
    finally:
        store.close()
    assert state.retained_from == now_ms - HOUR_MS + 1


def test_a_redis_server_whose_clock_differs_acknowledges_nothing_that_looks_expired(redis: RedisProcess):
    """Though no item of the request is left to be written. Both clocks are named, and nothing is recorded."""
    refuses_while_clocks_differ(redis)


def test_canary_without_a_look_at_the_servers_clock_it_is_acknowledged(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
):
    """The safeguard is switched off."""
    monkeypatch.setattr(rediswitnesses, "wrong_now", lambda facts, now_ms: None)

    with pytest.raises(pytest.fail.Exception):
        refuses_while_clocks_differ(redis)
