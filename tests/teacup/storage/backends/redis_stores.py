"""Stores on a Redis server, for the tests of what is specific to that back end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis

from teacup.base.now import wall_ms
from teacup.storage.backends.opening import open_backend
from teacup.storage.backends.redis.store import RedisStore
from teacup.storage.backends.redis.witnesses import Witnesses
from teacup.storage.model import Backend, Item, Keep, Namespace
from tests.support.redis_server import RedisProcess
from tests.teacup.storage.stores import item_maker, opened

NOW = wall_ms()
item = item_maker(NOW)
SPACE = Namespace("space", Keep.ALL, 10, 1_000)


@contextmanager
def redis_store(server: RedisProcess, more: str = "") -> Iterator[Backend]:
    with opened(lambda *spaces: open_backend(server.url(more), spaces), SPACE) as store:
        yield store


def witnesses(store: Backend) -> Witnesses:
    """Returns what carries out the store's commands: a test can put something between two of them."""
    assert isinstance(store, RedisStore)
    return store._witnesses


def numbered(first: int, count: int) -> list[Item]:
    return [item(b"key-%d" % number, value=b"%d" % number) for number in range(first, first + count)]


def generation(store: Backend) -> str:
    return store.state(SPACE, NOW).generation


def all_there(store: Backend, items: list[Item]) -> bool:
    found = store.read(SPACE, [sent.key for sent in items], NOW)
    return [result.items for result in found] == [(sent,) for sent in items]


def evicts(redis: Redis) -> bool:
    redis.get(b"any")
    return bool(redis.info("stats")["evicted_keys"])
