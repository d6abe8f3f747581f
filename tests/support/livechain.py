"""A lookup join with all that it stands on, in processes, while records flow: Storage API, Data Delay API, collector,
feeder and join, on any store. Sources and stages of the last two are driven without Spark.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from joins import DelayApi, Side, StorageApi, Store
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from teacup.base.now import wall_ms
from teacup.kafka.write.writer import TopicWriter
from tests.support import delay_process, storage_process
from tests.support.chainparts import Collecting, FeedingOn, Joining, Part, Row, begun, rows_of
from tests.support.making import changed, joined
from tests.support.waiting import wait_until

DISORDER_MS = 0
DELAY_MS = 5_000
GROUP = "feeder-group"
NAMESPACES = [{"name": "right", "keep": "all", "bound": 9, "retention": "1h"}]
LIMIT_S = 400


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


class LiveChain:
    """All parts run; `environment` is that of each of them."""

    def __init__(
        self,
        folder: Path,
        kafka: dict[str, str],
        topics: tuple[str, str],
        environment: Callable[[str], Mapping[str, str]] = lambda part: {},
    ) -> None:
        self._folder, self._kafka, self._environment = folder, kafka, environment
        self.left, self.right = topics
        self._running: dict[str, tuple[Part, subprocess.Popen[bytes]]] = {}
        self._stack = ExitStack()
        self._storage = ""

    @contextmanager
    def running(self, store: str) -> Iterator[LiveChain]:
        """On this store."""
        folder, right = self._folder, Side(topic=self.right, disorder_ms=DISORDER_MS)
        topic = {"topic": self.right, "disorder": f"{DISORDER_MS}ms", "producer_delay": f"{DELAY_MS}ms"}
        with self._stack:
            (folder / "api").mkdir()
            _, self._storage = self._stack.enter_context(
                storage_process.server_process(
                    folder / "api", environment=self._environment("api"), store=store, namespaces=NAMESPACES
                )
            )
            (folder / "delays").mkdir()
            _, delays = self._stack.enter_context(
                delay_process.server_process(
                    f"sqlite:///{folder / 'delays' / 'delay.db'}", folder / "delays", self._environment("delays")
                )
            )
            at = {"url": self._storage, "namespace": "right", "token": storage_process.TOKEN, "unreachable_for_s": 300}
            join = joined(
                name="join",
                left=Side(topic=self.left, disorder_ms=DISORDER_MS),
                right=right,
                before_ms=2_000,
                after_ms=1_000,
                producer_delay_ms=DELAY_MS,
                kafka=self._kafka,
                source=Store(
                    storage=StorageApi(**at),
                    delay=DelayApi(url=delays, consumer="feeder", token=delay_process.TOKEN),
                ),
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
                self._begin(name, part)
            yield self

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds; no part may end meanwhile."""
        wait_until(lambda: condition() or self.ended(), self._last, LIMIT_S)
        assert condition(), f"a part has ended: {self._last()}"

    def ended(self) -> bool:
        """Whether a part has."""
        return any(process.poll() is not None for _, process in self._running.values())

    def feed_again(self) -> None:
        """What operators do whose feeder has ended because the store lost something: all of right, with a join that
        accepts the store as it is now, and goes on where it was."""
        (feeder, _), (joining, join) = self._running["feeder"], self._running["join"]
        self._begin("feeder", feeder)
        join.kill()
        join.wait(60)
        assert isinstance(joining, Joining)
        self._begin(
            "join",
            Joining(changed(joining.spec, accepted_generations=(self.generation(),))),
        )

    def generation(self) -> str:
        """Of the store."""
        with storage_process.client(self._storage) as storage:
            return storage.namespace("right").generation

    def _begin(self, name: str, part: Part) -> None:
        environment = {**os.environ, **self._environment(name)}
        self._running[name] = part, self._stack.enter_context(begun(part, self._folder / name, environment))

    def _last(self) -> str:
        return self.logged[-20_000:]

    @property
    def rows(self) -> list[Row]:
        return rows_of(self._folder / "join")

    @property
    def logged(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self._folder.glob("*/*log")))
