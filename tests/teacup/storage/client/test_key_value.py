"""Bytes by key on the storage API: the last put wins, whatever the clock does."""

from __future__ import annotations

import pytest

from teacup.storage.client import StorageKeyValue
from teacup.storage.errors import ItemsUnsettled, StorageError
from teacup.storage.model import Status
from tests.support.dictbackend import DictBackend
from tests.support.storage_server import RunningServer


def key_value(server: RunningServer) -> StorageKeyValue:
    return StorageKeyValue(server.client(attempts=2), "latest", lives_ms=60_000, clock_ms=server.clock)


def test_the_last_put_wins_also_within_a_millisecond(server: RunningServer) -> None:
    """And keys without a value have none."""
    values = key_value(server)

    values.put_many({b"a": b"1", b"b": b"1"})
    values.put_many({b"a": b"2"})

    assert values.get_many([b"a", b"none", b"b"]) == [b"2", None, b"1"]
    assert key_value(server).get_many([b"a"]) == [b"2"]


def test_a_restart_with_its_clock_set_back_continues(server: RunningServer) -> None:
    """It has read the key, so it puts above it."""
    key_value(server).put_many({b"a": b"1"})
    server.clock.now_ms -= 1_000
    values = key_value(server)

    values.get_many([b"a"])
    values.put_many({b"a": b"2"})

    assert values.get_many([b"a"]) == [b"2"]


def test_a_put_that_another_overtook_is_an_error(server: RunningServer, store: DictBackend) -> None:
    """Never a silent loss."""
    values = key_value(server)
    store.answer = [Status.CONFLICT]
    with pytest.raises(StorageError, match="only one writer"):
        values.put_many({b"a": b"1"})

    store.answer = [Status.RETRYABLE] * 2
    with pytest.raises(ItemsUnsettled):
        values.put_many({b"a": b"1"})
    with pytest.raises(ItemsUnsettled, match="was not read"):
        values.get_many([b""])
