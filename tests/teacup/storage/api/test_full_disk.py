"""The real server process on a disk that fills up, and has room again."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from teacup.base.now import wall_ms
from teacup.storage.errors import ServerUnavailable
from teacup.storage.model import Item, Status
from tests.support.api import is_ready
from tests.support.smalldisk import fill_up, make_room, on_small_disk
from tests.support.storage_process import client, server_process
from tests.support.waiting import wait_until


def wide(number: int) -> Item:
    """An item of about a page."""
    return Item(b"%d" % number, 1, b"", bytes(3_000), wall_ms() + 3_600_000)


def test_on_a_full_disk_writes_are_refused_with_its_name_and_all_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """Nothing acknowledged is lost, and look-ups are answered meanwhile."""
    store = tmp_path / "store"
    with server_process(tmp_path, before=on_small_disk(store, "8m")) as (process, url), client(url, attempts=1) as asks:
        acknowledged = [wide(number) for number in range(100)]
        assert {outcome.status for outcome in asks.write("latest", acknowledged)} == {Status.OK}
        fill_up(process.pid, store)

        def write_on() -> None:
            for number in range(100, 2_000):
                item = wide(number)
                assert asks.write("latest", [item])[0].status is Status.OK
                acknowledged.append(item)

        with pytest.raises(ServerUnavailable, match="503") as raised:
            write_on()
        wait_until(lambda: not is_ready(url))

        logged = (tmp_path / "server.log").read_text()
        for said in (str(raised.value), requests.get(f"{url}/readyz", timeout=30).text, logged):
            assert f"the disk of the store in {store} is full" in said
            assert "bytes free): make room there" in said
        keys = [item.key for item in acknowledged]
        assert {found.status for found in asks.read("latest", keys)} == {Status.OK}

        make_room(process.pid, store)
        wait_until(lambda: is_ready(url))
        assert asks.write("latest", [wide(3_000)])[0].status is Status.OK
        assert {found.status for found in asks.read("latest", keys)} == {Status.OK}
