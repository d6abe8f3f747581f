"""Keyed results on the storage API: a real server over LMDB, a client that ends in the middle of a batch."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from dedup.keyed import KeyedResults, add_int
from teacup.storage.backends.lmdb.store import LmdbStore
from teacup.storage.client import StorageKeyValue
from tests.support.storage_server import running_server


class Interrupted(Exception):
    """The writer ended in the middle of a batch."""


class Interruptible:
    """A `KeyValue` whose puts end after a number of items."""

    def __init__(self, store, items_left):
        self._store, self._left = store, items_left

    def get_many(self, keys):
        return self._store.get_many(keys)

    def put_many(self, items):
        part = dict(list(items.items())[: self._left])
        if part:
            self._store.put_many(part)
        self._left -= len(part)
        if len(part) < len(items):
            raise Interrupted


def test_sums_survive_interrupted_batches_and_replays_that_differ(tmp_path):
    """Each batch is first tried with other content, and ended after every possible number of puts."""
    with running_server(LmdbStore(tmp_path / "store")) as server:
        values = StorageKeyValue(server.client(), "latest", lives_ms=3_600_000, clock_ms=server.clock)
        truth = Counter()

        for txid in range(4):
            final = {b"a": 1 + txid, b"c": 2} if txid % 2 else {b"b": 1, b"d": -txid}
            for items in range(7):
                with suppress(Interrupted):
                    other = {b"%c" % (97 + (txid + i) % 4): b"9" for i in range(3)}
                    KeyedResults(Interruptible(values, items), add_int, opaque=True).apply(txid, other)
            KeyedResults(values, add_int, opaque=True).apply(txid, {key: b"%d" % value for key, value in final.items()})
            truth.update(final)

        found = KeyedResults(values, add_int, opaque=True).read([b"a", b"b", b"c", b"d"])
        assert [int(value or b"0") for value in found] == [truth[key] for key in (b"a", b"b", b"c", b"d")]
