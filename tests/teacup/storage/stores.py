"""The back ends under test: LMDB in a folder; Redis in a server of the session's own; Aerospike where
TEACUP_AEROSPIKE=host:port/namespace names a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from teacup.storage.backends.opening import open_backend
from teacup.storage.model import Backend, Item, Keep, Namespace
from tests.support.redis_server import RedisProcess

AEROSPIKE = "TEACUP_AEROSPIKE"
SESSION = uuid4().hex[:8]
"""Part of the names of namespaces, because a server keeps them from one run to the next."""


class Open(Protocol):
    """Opens a store, which is not open in this process, for these namespaces."""

    def __call__(self, *namespaces: Namespace) -> Backend: ...


NEEDS_AEROSPIKE = pytest.mark.skipif(
    AEROSPIKE not in os.environ,
    reason=f"no server to test Aerospike on: set {AEROSPIKE}=host:port/namespace",
)
"""The only reason to skip a test; also for those that start such a server (`tests/support/aerospike_server.py`)."""


def opener(kind: str, folder: Path, redis: RedisProcess) -> Open:
    """Returns how to open the back end `lmdb`, `redis` or `aerospike`."""
    if kind == "lmdb":
        url = f"lmdb://{folder / 'store'}?map_size=64MiB"
    else:
        url = redis.url() if kind == "redis" else f"aerospike://{os.environ[AEROSPIKE]}"
    return lambda *namespaces: open_backend(url, namespaces)


@contextmanager
def opened(open_store: Open, *namespaces: Namespace) -> Iterator[Backend]:
    """Opens a store, and closes it at the end."""
    backend = open_store(*namespaces)
    try:
        yield backend
    finally:
        backend.close()


def namespace(keep: Keep = Keep.LATEST, bound: int = 1, retention_ms: int | None = None, name: str = "") -> Namespace:
    """Makes a namespace with a name of its own."""
    return Namespace(f"{name or uuid4().hex[:12]}-{SESSION}", keep, bound, retention_ms)


def item_maker(now: int) -> Callable[..., Item]:
    """Returns what makes items with times relative to `now`."""

    def make(
        key: bytes = b"k", version: int = 0, tag: bytes = b"", value: bytes = b"v", lives_ms: int = 60_000
    ) -> Item:
        return Item(key, now + version, tag, value, now + lives_ms)

    return make
