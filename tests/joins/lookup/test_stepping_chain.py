"""The clock of one part of a chain steps while records flow, in processes, on each store.

Storage API, the store's server, Data Delay API, collector, feeder and join are processes; sources and stages of the
last two are driven without Spark. Whatever one clock does, each row is that of the oracle, and the log names the clock.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from joins import DelayApi, LookupSpec, Side, StorageApi
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter
from tests.support import delay_process, storage_process
from tests.support.aerospike_server import NEEDS_ASD, aerospike_process
from tests.support.chainparts import Collecting, FeedingOn, Joining, Row, begun, rows_of
from tests.support.redis_server import redis_process
from tests.support.stepping import SteppingClock
from tests.support.waiting import wait_until

STEP_S = 2 * 3_600
FOR_GOOD_S = 75
"""Longer than it takes until a clock that was set is believed."""
DISORDER_MS = 0
DELAY_MS = 5_000
GROUP = "feeder-group"
NAMESPACES = [{"name": "right", "keep": "all", "bound": 9, "retention": "1h"}]
LIMIT_S = 400
NAMED = {
    "api": "the wall clock has jumped by 7",
    "delays": "the wall clock has jumped by 7",
    "feeder": "the wall clock has jumped by 7",
    "join": "the wall clock has jumped by 7",
    "server": "its clock differs by",
    "collector": "set the collector's clock",
}
"""What is logged about the clock of each part."""


class Traffic:
    """Left records, and after each its right one, whose times are the present; each seventh left has none."""

    def __init__(self, kafka: dict[str, str], left: str, right: str) -> None:
        self._kafka, self._left, self._right = kafka, left, right
        self._over = threading.Event()
        self.expected: list[Row] = []

    @contextmanager
    def flowing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._flow)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(60)

    def _flow(self) -> None:
        writer, number, stored = TopicWriter(self._kafka), 0, 0
        while not self._over.wait(0.1):
            now_ms, lone = wall_ms(), number % 7 == 6
            for topic in (self._left,) if lone else (self._left, self._right):
                writer.write(topic, [b"%d" % number], [b"v"], timestamps=[now_ms], partitions=[0])
                writer.flush()
            found = ("unmatched", "no_candidate") if lone else ("matched", None)
            self.expected.append((number, None if lone else stored, *found))
            number, stored = number + 1, stored + (not lone)
        writer.close()


class SteppedChain:
    """All parts run; `clock` is that of one of them."""

    def __init__(self, folder: Path, kafka: dict[str, str], topics: tuple[str, str], store: str, stepping: str) -> None:
        self._folder, self._kafka, self._store, self._stepping = folder, kafka, store, stepping
        self.clock = SteppingClock(folder)
        self.left, self.right = topics
        self._parts: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def running(self) -> Iterator[SteppedChain]:
        folder, right = self._folder, Side(topic=self.right, disorder_ms=DISORDER_MS)
        topic = {"topic": self.right, "disorder": f"{DISORDER_MS}ms", "producer_delay": f"{DELAY_MS}ms"}
        with ExitStack() as parts:
            store = parts.enter_context(self._server())
            (folder / "api").mkdir()
            _, storage = parts.enter_context(
                storage_process.server_process(
                    folder / "api", environment=self._environment("api"), store=store, namespaces=NAMESPACES
                )
            )
            (folder / "delays").mkdir()
            _, delays = parts.enter_context(
                delay_process.server_process(
                    f"sqlite:///{folder / 'delays' / 'delay.db'}", folder / "delays", self._environment("delays")
                )
            )
            at = {"url": storage, "namespace": "right", "token": storage_process.TOKEN, "unreachable_for_s": 300}
            join = LookupSpec(
                name="join",
                left=Side(topic=self.left, disorder_ms=DISORDER_MS),
                right=right,
                before_ms=2_000,
                after_ms=1_000,
                producer_delay_ms=DELAY_MS,
                kafka=self._kafka,
                storage=StorageApi(**at),
                delay=DelayApi(url=delays, consumer="feeder", token=delay_process.TOKEN),
            )
            feeder = FeedSpec(name="feeder", right=right, storage=FeedStorage(**at), kafka=self._kafka)
            group = f"{GROUP}-{self.right}"
            collector = {
                "api": {"url": delays, "token": delay_process.TOKEN},
                "kafka": self._kafka,
                "lock_file": str(folder / "lock"),
                "consumers": [
                    {"consumer": "feeder", "positions": {"from": "group", "group": group}, "topics": [topic]}
                ],
            }
            for name, part in (
                ("feeder", FeedingOn(feeder, group)),
                ("collector", Collecting(collector)),
                ("join", Joining(join)),
            ):
                self._parts.append(
                    parts.enter_context(begun(part, folder / name, {**os.environ, **self._environment(name)}))
                )
            yield self

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds; no part may end meanwhile."""
        wait_until(lambda: condition() or any(part.poll() is not None for part in self._parts), self._last, LIMIT_S)
        assert condition(), f"a part has ended: {self._last()}"

    def _last(self) -> str:
        return self.logged[-20_000:]

    @contextmanager
    def _server(self) -> Iterator[str]:
        environment = self._environment("server")
        if self._store == "redis":
            with redis_process(self._folder / "server", environment) as server:
                yield server.url()
        elif self._store == "aerospike":
            with aerospike_process(self._folder / "server", environment=environment) as node:
                yield node.url
        else:
            yield f"lmdb://{self._folder / 'store'}"

    def _environment(self, part: str) -> dict[str, str]:
        return self.clock.environment if part == self._stepping else {}

    @property
    def rows(self) -> list[Row]:
        return rows_of(self._folder / "join")

    @property
    def logged(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*/*log")))


PARTS = ["api", "server", "delays", "collector", "feeder", "join"]
STORES = ["lmdb", "redis", "aerospike"]
CLOCKS = [(store, part) for store in STORES for part in PARTS if (store, part) != ("lmdb", "server")]
"""LMDB has no server."""
STEPS = [(off_s, lasts_s) for lasts_s in (0.5, 30, FOR_GOOD_S) for off_s in (-STEP_S, STEP_S)]
ALL = "TEACUP_CLOCKS" in os.environ
"""Every clock takes every step (`make clocks`: two hours); otherwise each takes one, and each step comes thrice."""


def _cases() -> Iterator[object]:
    for number, (store, part) in enumerate(CLOCKS):
        for off_s, lasts_s in STEPS if ALL else [STEPS[(number + number // len(STEPS)) % len(STEPS)]]:
            yield pytest.param(store, part, off_s, lasts_s, marks=[NEEDS_ASD] if store == "aerospike" else [])


@pytest.mark.slow
@pytest.mark.parametrize(("store", "part", "off_s", "lasts_s"), list(_cases()))
def test_whatever_one_clock_does_no_row_is_wrong(
    tmp_path: Path, kafka: dict[str, str], topic_factory, store: str, part: str, off_s: int, lasts_s: float
) -> None:
    """Beyond the minute after which a clock may be believed, too; then joins that hold go on once it is right."""
    topics = topic_factory(prefix="left"), topic_factory(prefix="right")
    traffic = Traffic(kafka, *topics)
    with SteppedChain(tmp_path, kafka, topics, store, part).running() as chain:
        with traffic.flowing():
            chain.wait_for(lambda: len(chain.rows) > 10)
            chain.clock.set(off_s)
            time.sleep(lasts_s)
            if lasts_s < FOR_GOOD_S:
                chain.clock.set(0)
            before = len(traffic.expected)
            wait_until(lambda: len(traffic.expected) > before + 20)
        if not (part == "feeder" and off_s > 0):  # it is believed, and would wait until that time is reached
            chain.clock.set(0)
        chain.wait_for(lambda: len(chain.rows) >= len(traffic.expected))
        rows, logged = sorted(chain.rows), chain.logged

    assert rows == traffic.expected
    if lasts_s >= 30:
        assert NAMED[part] in logged
