"""The storage API while the clock of its machine is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.storage.api.app import create_app
from teacup.storage.backends.opening import open_backend
from teacup.storage.client import StorageClient
from teacup.storage.model import Item, Keep, Namespace, Status
from tests.support.api import NOON_MS, served
from tests.support.clocks import HOUR_MS, STEP_MS, Clocks
from tests.support.storage_server import Tokens, config_of, new_token


@pytest.mark.parametrize("off_ms", [-STEP_MS, STEP_MS])
def test_the_api_stores_and_finds_while_its_clock_is_wrong(tmp_path: Path, off_ms: int) -> None:
    """What it acknowledges meanwhile, and what was there before; `retained_from` stays where it should be."""
    clocks = Clocks()
    space = {"name": "right", "keep": "all", "bound": 9, "retention": "1h"}
    config = config_of(namespaces=[space])
    backend = open_backend(f"lmdb://{tmp_path / 'store'}", [Namespace("right", Keep.ALL, 9, HOUR_MS)])
    secret, token = new_token("writer", ["read", "write"])
    app = create_app(backend, Tokens((token,), config.anonymous), config, clocks.clock())

    def item(key: bytes) -> Item:
        at_ms = NOON_MS + clocks.passed_ms
        return Item(key, at_ms, b"", b"v", at_ms + HOUR_MS)

    with served(app, config) as url, StorageClient(url, secret) as client:
        client.write("right", [item(b"before")])
        clocks.passed_ms, clocks.off_ms = 500, off_ms
        client.write("right", [item(b"during")])
        found = [client.read("right", [b"before", b"during"])]
        state = client.namespace("right")
        clocks.off_ms = 0
        found.append(client.read("right", [b"before", b"during"]))

    assert [[result.status for result in results] for results in found] == [[Status.OK] * 2] * 2
    assert (state.retained_from, state.now_ms) == (NOON_MS + 500 - HOUR_MS + 1, NOON_MS + 500)
