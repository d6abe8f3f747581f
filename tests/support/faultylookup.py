"""A feeder and a lookup join around a real storage API and its real store, with faults on the way and in both.

The topics, the collector and the clock are simulated (`simulatedlookup`). The feeder's task, the join's look-ups, their
clients, the API (a process of its own) and its store are those that jobs use. Where a job would end, or Spark repeat a
batch, this world repeats it; where the join is held for good, it says why.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from joins.errors import StoreChanged, StoreUnreachable, StoreWiped
from joins.lookup.feed import stage
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.lookup.feed.stage import FeedTask, FeedTicket
from joins.lookup.gate import CONSUMER, STORE, admission
from joins.lookup.key_lookup import RightStore, lookup_client
from joins.right_source import StorageApi
from teacup.storage.errors import StorageError
from tests.support.aerospike_server import AerospikeProcess
from tests.support.faultyproxy import Proxy, running_proxy
from tests.support.redis_server import RedisProcess
from tests.support.simulatedlookup import Simulated, lookup_spec
from tests.support.storage_process import TOKEN, client, free_port, server_process

NAMESPACES = 200  # as many as all runs of a server need
AGES_MS = 4 * 10**12
"""How long items live: simulated times begin in 1970, and the store has the present time."""

PATIENCE = {"read_timeout_s": 1.5, "unreachable_for_s": 2.0}
"""Longer than a loaded machine takes for an answer, and shorter than it takes to start an API."""


class NotReady(Exception):
    """The join goes on no more: why."""


@dataclass
class Stored:
    """A storage API over a store in a folder, or in a server; and a proxy before it."""

    folder: Path
    store: str
    server: RedisProcess | AerospikeProcess | None = None
    port: int = field(default_factory=free_port)
    proxy: Proxy = field(init=False)
    used: int = 0
    changing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def may_lose_by(self):
        """The faults after which records are missing. A start of Aerospike's only node, or without a log, is one."""
        forgets = isinstance(self.server, AerospikeProcess) or "sync=no" in self.store
        return ("store_wiped", "store_killed") if forgets else ("store_wiped",)

    @contextmanager
    def running(self):
        with ExitStack() as self._api, running_proxy(f"http://127.0.0.1:{self.port}") as self.proxy:
            self._start()
            yield self

    def _start(self):
        names = [
            {"name": f"{prefix}{number}", "keep": keep, "bound": 500, "retention": "3650d"}
            for prefix, keep in (("", "all"), ("versions-", "versions"))
            for number in range(NAMESPACES)
        ]
        self._process, self.url = self._api.enter_context(
            server_process(self.folder, self.port, store=self.store, namespaces=names)
        )

    def new_namespace(self, prefix=""):
        """The name of one that nothing was written to, and its generation; prefix: of its name."""
        with self.changing, client(self.url) as storage:
            self.used += 1
            name = f"{prefix}{self.used - 1}"
            return name, storage.namespace(name).generation

    def api_killed(self):
        """And started again."""
        with self.changing:
            self._kill()
            self._start()

    def store_killed(self):
        """And started again; an embedded one is killed with its API."""
        if self.server is None:
            self.api_killed()
            return
        with self.changing:
            self.server.kill()
            self.server.start()

    def store_wiped(self):
        """It has lost everything, and does not know."""
        with self.changing:
            if self.server is None:
                self._kill()
                shutil.rmtree(self.folder / "store")
                self._start()
            else:
                self.server.wipe()

    def _kill(self):
        self._process.kill()
        self._process.wait()


class _Task(FeedTask):
    """Dead letters would go to a topic; here they are only counted."""

    def _write_dead_letters(self, rows):
        pass


class Faulty(Simulated):
    """One run, in a namespace of its own. `waited` has a message for each time it had to wait."""

    def __init__(self, history, spec, stored):
        self.name, generation = stored.new_namespace("versions-" if spec.right.of_versions else "")
        self.waited = []
        at = {"url": stored.proxy.url, "namespace": self.name, "token": TOKEN, **PATIENCE}
        storage = StorageApi(keys_per_request=2, **at)
        self.feeder = FeedSpec(name="feeder", right=spec.right, storage=FeedStorage(items_per_request=2, **at))
        super().__init__(history, lookup_spec(spec, storage=storage), {CONSUMER: "feeder-1", STORE: generation})
        self.client = lookup_client(self.spec)
        self.looked_up = RightStore(self.spec, self.client)

    def feed(self, most=2**60):
        """A batch of the feeder: each partition by a task. One that fails is repeated later."""
        for p, ends in self.right.ends().items():
            end = min(ends.stable, self.fed[p] + most)
            if end > self.fed[p]:
                ceiling_ms = self.clock.now_ms + self.spec.max_future_skew_ms
                ticket = FeedTicket(p, self.fed[p], end, None, 1, 1, ceiling_ms, AGES_MS, self.generations[STORE])
                try:
                    self._carry_out(ticket)
                except (StoreUnreachable, StorageError) as error:
                    self.waited.append(str(error))
                    return
                except StoreWiped as error:
                    raise NotReady(str(error)) from error
                self.fed[p] = end

    def _carry_out(self, ticket):
        log = self.right

        class Reader:
            """Of the simulated topic."""

            def __init__(self, *_):
                pass

            def read(self, partition, start, end):
                yield log.fetch(partition, start, end)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(stage, "SideReader", Reader)
            _Task(self.feeder, ticket).run()

    def admit(self, most=None):
        """One batch, if the store answers, and is the one that was fed."""
        try:
            generation = self.client.namespace(self.name).generation
        except StorageError as error:
            self.waited.append(str(error))
            return False
        verdict = admission(self.delay, generation, self.state.identity)
        if verdict.shut:
            raise NotReady(verdict.waits_for)
        return super().admit(most)

    def join_batch(self):
        """Again and again, as Spark and the next start of the job do."""
        while True:
            try:
                return super().join_batch()
            except StoreUnreachable as error:
                self.waited.append(str(error))
            except StoreChanged as error:
                raise NotReady(str(error)) from error

    def _look_up(self, wanted):
        found = self.looked_up.look_up(wanted, (self.generations[STORE],))
        return replace(found, retained_from_ms=self.retained_from_ms)  # 1970 is before what a store retains

    def close(self):
        self.looked_up.close()
