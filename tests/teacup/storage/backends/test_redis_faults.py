"""Seeded faults of a Redis server: what was acknowledged is there, or the generation is another one.

Two stores write as feeders do: an item counts if the state that was asked afterwards still has the generation. After
each fault both write again; then everything that counts for the present generation must be found.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from teacup.storage.errors import StorageUnavailable
from teacup.storage.model import Backend, Item, Status
from tests.support.redis_server import RedisProcess, redis_process
from tests.support.waiting import wait_until
from tests.teacup.storage.backends.redis_stores import NOW, SPACE, evicts, item, redis_store

FAULTS = 25


class Faults:
    """What may happen to a server; each is over when it returns, but for the settings."""

    def __init__(self, server: RedisProcess, copy: Path, chance: random.Random) -> None:
        self._server, self._copy, self._chance = server, copy, chance
        self._log = server.folder / "appendonlydir"

    def all(self) -> list[Callable[[], None]]:
        stops = [self.killed, self.ended, self.restored, self.cut]
        return [*stops, self.flushed, self.copied, self.not_synced, self.full, self.evicting, self.corrected]

    def killed(self) -> None:
        self._server.kill()
        self._server.start()

    def ended(self) -> None:
        self._server.end()
        self._server.start()

    def flushed(self) -> None:
        with self._server.client() as redis:
            redis.flushall()

    def copied(self) -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._log, self._copy)

    def restored(self) -> None:
        if self._copy.exists():
            self._server.kill()
            shutil.rmtree(self._log)
            shutil.copytree(self._copy, self._log)
            self._server.start()

    def cut(self) -> None:
        """Cuts the log somewhere earlier, as a repair does."""
        self._server.kill()
        (log,) = self._log.glob("*.incr.aof")
        with log.open("r+b") as file:
            file.truncate(max(0, log.stat().st_size - self._chance.randrange(1, 4_000)))
        self._server.start()

    def not_synced(self) -> None:
        with self._server.client() as redis:
            redis.config_set("appendfsync", "everysec")

    def full(self) -> None:
        with self._server.client() as redis:
            redis.config_set("maxmemory", 1)

    def evicting(self) -> None:
        """Evicts for a moment; the count of evicted keys may be reset."""
        with self._server.client() as redis:
            redis.config_set("maxmemory-policy", "volatile-random")
            redis.config_set("maxmemory", 1)
            wait_until(lambda: evicts(redis) or not redis.keys(b"*/*"))
            if self._chance.random() < 0.5:
                redis.config_resetstat()
        self.corrected()

    def corrected(self) -> None:
        with self._server.client() as redis:
            redis.config_set("maxmemory", 0)
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("appendfsync", "always")


def fed(store: Backend, items: list[Item]) -> tuple[str, list[Item]]:
    """Writes items. Returns the generation, and the items that count for it."""
    try:
        outcomes = store.write(SPACE, items, NOW)
        generation = store.state(SPACE, NOW).generation
    except StorageUnavailable:
        return "", []
    return generation, [sent for sent, outcome in zip(items, outcomes, strict=True) if outcome.status is Status.OK]


def batches() -> Iterator[list[Item]]:
    for start in itertools.count(0, 10):
        yield [item(b"%d" % number, value=b"%d" % number) for number in range(start, start + 10)]


@pytest.mark.parametrize("seed", range(4))
def test_what_counts_is_there_whatever_happens_to_the_server(tmp_path: Path, seed: int):
    """25 faults in a row, four times."""
    chance, numbered = random.Random(seed), batches()
    counts: defaultdict[str, list[Item]] = defaultdict(list)
    checked = 0
    with redis_process(tmp_path / "redis") as server:
        faults = Faults(server, tmp_path / "copy", chance)
        with redis_store(server) as first, redis_store(server) as second:
            for fault in [*chance.choices(faults.all(), k=FAULTS), faults.corrected]:
                for store in chance.sample([first, second] * 2, 4):
                    generation, items = fed(store, next(numbered))
                    counts[generation] += items
                fault()
                for store in (first, second):
                    generation, items = fed(store, next(numbered))
                    counts[generation] += items
                try:
                    now = first.state(SPACE, NOW).generation
                except StorageUnavailable:
                    continue
                found = first.read(SPACE, [sent.key for sent in counts[now]], NOW)
                assert [result.items for result in found] == [(sent,) for sent in counts[now]], fault
                checked += len(found)

    assert checked > 100
    assert len(counts) > 2
