"""The clock of a storage API steps while items are written, in the process of a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from teacup.base.clock import TOLERANCE_MS
from teacup.base.now import wall_ms
from teacup.storage.errors import StorageError
from teacup.storage.model import Item, Status
from tests.support.redis_server import RedisProcess
from tests.support.stepping import SteppingClock
from tests.support.storage_process import client, server_process
from tests.support.waiting import wait_until

HOUR_MS = 3_600_000
STEP_S = 2 * 3_600
NAMESPACES = [{"name": "right", "keep": "all", "bound": 9, "retention": "1h"}]
EACH = 50
"""Items in a request."""


class Writer:
    """Writes new items all the time. `acknowledged` are kept, or so it was said; `failures` are in words."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self.acknowledged: list[Item] = []
        self.failures: list[str] = []

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(60)

    def _write(self) -> None:
        number = 0
        with client(self._url, attempts=1) as storage:
            while not self._over.is_set():
                at_ms, number = wall_ms(), number + 1
                items = [Item(b"%d.%d" % (number, i), at_ms, b"", b"v", at_ms + HOUR_MS) for i in range(EACH)]
                try:
                    outcomes = storage.write("right", items)
                except StorageError as error:
                    self.failures.append(str(error))
                else:
                    self.failures += {outcome.reason for outcome in outcomes if outcome.reason is not None}
                    done = zip(items, outcomes, strict=True)
                    self.acknowledged += [item for item, outcome in done if outcome.status is Status.OK]

    def more(self) -> None:
        """Returns once another request was acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before, within_s=90)


def missed(url: str, items: list[Item]) -> tuple[int, int]:
    """Returns how many items are missing though the namespace keeps them; by how much it keeps less than it should."""
    with client(url) as storage:
        found = storage.read("right", [item.key for item in items])
        kept_from = storage.namespace("right").retained_from
    assert kept_from is not None
    promised = [result for item, result in zip(items, found, strict=True) if item.version >= kept_from]
    gone = sum(result.status is not Status.OK for result in promised)
    return gone, kept_from - (wall_ms() - HOUR_MS)


@pytest.fixture(params=["lmdb", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisProcess) -> str:
    """Returns the URL of a store."""
    redis.wipe()
    return f"lmdb://{tmp_path / 'store'}" if request.param == "lmdb" else redis.url()


@pytest.mark.slow
@pytest.mark.parametrize("lasts_s", [0.5, 30])
@pytest.mark.parametrize("off_s", [-STEP_S, STEP_S])
def test_a_step_of_the_apis_clock_loses_nothing_and_the_namespace_serves(
    tmp_path: Path, store: str, off_s: int, lasts_s: float
) -> None:
    """Neither what was written before, nor meanwhile, nor afterwards."""
    clock = SteppingClock(tmp_path)
    with server_process(tmp_path, environment=clock.environment, store=store, namespaces=NAMESPACES) as (_, url):
        writer = Writer(url)
        with writer.writing():
            writer.more()
            clock.set(off_s)
            time.sleep(lasts_s)
            clock.set(0)
            writer.more()
        result = missed(url, writer.acknowledged)

    assert result[0] == 0
    assert result[1] <= TOLERANCE_MS
    assert "clock has jumped by 7" in (tmp_path / "server.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("off_s", [-STEP_S, STEP_S])
def test_a_step_for_good_loses_nothing_and_the_namespace_serves_once_the_clock_is_right(
    tmp_path: Path, store: str, off_s: int
) -> None:
    """Beyond the minute after which a clock may be believed; a store with a clock of its own then says so."""
    clock = SteppingClock(tmp_path)
    with server_process(tmp_path, environment=clock.environment, store=store, namespaces=NAMESPACES) as (_, url):
        writer = Writer(url)
        with writer.writing():
            writer.more()
            clock.set(off_s)
            time.sleep(75)
            clock.set(0)
            writer.more()
        result = missed(url, writer.acknowledged)

    assert result[0] == 0
    assert result[1] <= TOLERANCE_MS
    if store.startswith("redis"):
        assert any("its clock differs by" in reason for reason in writer.failures)
