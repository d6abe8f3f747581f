"""What `test_clocks` shows of the other back ends, of Aerospike without a server: its records are a dict."""

from __future__ import annotations

import pytest

from teacup.base.now import wall_ms
from teacup.storage.backends.aerospike import store as aerospikestore
from teacup.storage.backends.aerospike.store import AerospikeStore
from teacup.storage.backends.namespaces import StoredNamespace
from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Backend, Item, Keep, Namespace
from tests.support.aerospikedict import Records
from tests.support.canary import searched
from tests.support.clocklife import (
    any_life,
    guarded,
    misses_nothing,
    serves_all_along,
    unguarded,
)
from tests.support.clocks import HOUR_MS, STEP_MS
from tests.teacup.storage.stores import Open, namespace


@pytest.fixture
def open_store(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a store on such records."""
    monkeypatch.setattr(Records, "kept", {}, raising=False)
    monkeypatch.setattr(aerospikestore, "AerospikeRecords", Records)

    def opened(*namespaces: Namespace) -> Backend:
        store = AerospikeStore([("host", 3000)], "records")
        for space in namespaces:
            store.declare(space)
        return store

    return opened


@pytest.mark.parametrize("keep", [Keep.ALL, Keep.LATEST])
def test_whatever_a_clock_does_a_look_up_misses_nothing_that_the_namespace_says_it_keeps(open_store: Open, keep: Keep):
    """Neither what was refused as expired, nor what was replaced or hidden."""
    any_life(open_store, keep, lambda: unguarded, misses_nothing)()


def test_canary_without_the_horizon_what_a_clock_took_for_expired_is_missed(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
):
    """The safeguard is switched off: nothing of it is recorded."""
    monkeypatch.setattr(StoredNamespace, "beyond", lambda self, moment: self)

    with pytest.raises(AssertionError):
        searched(seed=1)(any_life(open_store, Keep.ALL, lambda: unguarded, misses_nothing))()


def test_with_the_apis_clock_the_namespace_serves_all_along(open_store: Open):
    """A step that the monotonic clock contradicts expires nothing."""
    any_life(open_store, Keep.ALL, guarded, serves_all_along)()


def test_nothing_is_taken_for_expired_while_the_clock_of_a_node_differs(open_store: Open):
    """Both clocks are named, and nothing is recorded."""
    space, now_ms, off_ms = namespace(retention_ms=HOUR_MS), wall_ms(), 0
    open_store()
    store = AerospikeStore([("host", 3000)], "records", clock_ms=lambda: wall_ms() + off_ms)
    store.declare(space)

    off_ms = STEP_MS
    with pytest.raises(StorageUnavailable, match=r"node a: .*clock differs by -720\d s"):
        store.write(space, [Item(b"k", now_ms, b"", b"v", now_ms + HOUR_MS)], now_ms + STEP_MS)
    off_ms = 0
    state = store.state(space, now_ms)

    assert state.retained_from == now_ms - HOUR_MS + 1
