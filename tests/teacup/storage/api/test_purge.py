"""An idle server frees what has expired."""

from __future__ import annotations

from pathlib import Path

from teacup.storage.backends.lmdb.store import LmdbStore
from teacup.storage.backends.opening import open_backend
from teacup.storage.errors import StorageUnavailable
from tests.support.dictbackend import DictBackend
from tests.support.storage_server import config_of, item, running_server
from tests.support.waiting import wait_until

LONG_MS = 7_200_000
SOON = {"purge_every": "50ms"}


def keys_kept(store: LmdbStore) -> int:
    """Counts keys in all namespaces, the index of expiries included."""
    with store._env.begin() as txn:
        databases = [database for opened in store._opened.values() for database in (opened.items, opened.expiries)]
        return sum(txn.stat(database)["entries"] for database in databases)


def test_an_idle_server_frees_what_has_expired_and_nothing_else(tmp_path: Path) -> None:
    """In every namespace, in more than one portion; without a request."""
    settings = config_of().namespaces
    store = open_backend(f"lmdb://{tmp_path / 'store'}", [namespace.namespace for namespace in settings])
    assert isinstance(store, LmdbStore)

    with running_server(store, **SOON) as server:
        client = server.client()
        client.write("latest", [item(b"key-%d" % number) for number in range(3_000)])
        client.write("all", [item(b"short"), item(b"long", expires_at_ms=server.clock.now_ms + 2 * LONG_MS)])
        before = keys_kept(store)
        server.clock.now_ms += LONG_MS
        wait_until(lambda: keys_kept(store) == 2)
        left = client.read("all", [b"short", b"long"])

    assert before > 3_000
    assert [len(result.items) for result in left] == [0, 1]


def test_a_store_that_was_unreachable_is_purged_when_it_is_back(store: DictBackend) -> None:
    """The server says so and continues."""
    fails = 2

    def unreachable(operation: str) -> None:
        nonlocal fails
        if operation == "purge" and fails:
            fails -= 1
            raise StorageUnavailable("the store does not answer")

    with running_server(store, **SOON) as server:
        server.client().write("latest", [item()])
        store.before = unreachable
        server.clock.now_ms += LONG_MS
        wait_until(lambda: store.kept() == 0)

    assert fails == 0
