"""All parts of a lookup join on this machine, each run as users run it: for the demo, the benchmark and tests.

    right topic -> feeder -> storage API <- lookup join <- left topic
                     |                          |
                     +--> collector -> Data Delay API

Two servers and two jobs, each a `teacup` command in a process of its own, with files and logs in one folder; the
collector runs in this process, as often as its caller likes. Everything ends with this process, however it ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
import yaml

from datadelay.collector.run import collect
from deploy.broker.lifeline import Lifeline, free_port
from deploy.errors import DeployError

STORAGE, DELAY, FEEDER, LOOKUP = "storage", "delay", "feeder", "lookup"
_TOKENS = {STORAGE: "TEACUP_STORAGE_WRITE_TOKEN", DELAY: "TEACUP_DELAY_WRITE_TOKEN"}
_COMMANDS = {STORAGE: ("storage", "serve"), DELAY: ("delay", "serve"), FEEDER: ("run",), LOOKUP: ("run",)}
_READY_WITHIN_S = 60.0
_STOP_GRACE_S = 30.0


class PartFailed(DeployError):
    """A part of the lookup demo ended by itself, or did not get so far in time; the message has its last lines."""


@dataclass(frozen=True, kw_only=True)
class LookupPlan:
    """What is joined, and where it is kept.

    namespace   of the storage API; also the feeder's name
    store       the back end's URL; None: LMDB in the parts' folder
    collected_every_s   the delay is stale after three times that without a submission
    feeder, lookup      keys of the job files that override the ones here
    """

    name: str
    kafka: Mapping[str, str]
    left: str
    right: str
    joined: str
    before_ms: int
    after_ms: int = 0
    disorder_ms: int = 0
    producer_delay_ms: int = 1_000
    idle: str = "advance"
    value_format: str = "json"
    keep: str = "all"
    retention_ms: int = 3_600_000
    store: str | None = None
    workers: int = 1
    collected_every_s: float = 1.0
    feeder: Mapping[str, Any] = field(default_factory=dict)
    lookup: Mapping[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """The namespace of the storage API; also the name of the feeder and of the consumer."""
        return f"{self.name}-feeder"


class LookupParts:
    """The parts of one plan in one folder; leaving the `with` stops the running ones, last started first."""

    def __init__(self, folder: Path, plan: LookupPlan) -> None:
        self.folder, self.plan = folder, plan
        ports = {name: free_port() for name in (STORAGE, DELAY)}
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self.tokens = {name: uuid.uuid4().hex for name in (STORAGE, DELAY)}
        self._running: dict[str, Lifeline] = {}
        self._env = {**os.environ, **{_TOKENS[name]: token for name, token in self.tokens.items()}}
        documents = {
            STORAGE: self._storage(ports[STORAGE]),
            DELAY: {
                "database": f"sqlite:///{folder / 'delay.db'}",
                "port": ports[DELAY],
                "interval": f"{plan.collected_every_s}s",
            },
            FEEDER: self._feeder(),
            LOOKUP: self._lookup(),
            "collector": self._collector(),
        }
        for name, document in documents.items():
            self.file(name).write_text(yaml.safe_dump(document, sort_keys=False))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)

    def file(self, name: str) -> Path:
        """Returns the configuration, or job file, of a part."""
        return self.folder / f"{name}.yaml"

    def log(self, name: str) -> Path:
        """Returns everything that a part has printed."""
        return self.folder / f"{name}.log"

    def command(self, name: str) -> list[str]:
        """Returns how a part is started."""
        return [sys.executable, "-m", "deploy.cli", *_COMMANDS[name], str(self.file(name))]

    @property
    def env(self) -> Mapping[str, str]:
        """The environment that a part needs: the tokens of servers and jobs are in no file."""
        return self._env

    def start(self, *names: str) -> None:
        """Starts parts, and waits until those that are servers answer. Raises `PartFailed`."""
        for name in names:
            self._running[name] = Lifeline(self.command(name), self.log(name), self._env)
        deadline_s = time.monotonic() + _READY_WITHIN_S
        for name in names:
            while name in self.urls and not self._ready(name):
                self.check()
                if time.monotonic() > deadline_s:
                    raise PartFailed(f"{name} did not answer at {self.urls[name]} in time; {self._tail(name)}")
                time.sleep(0.05)

    def stop(self, name: str) -> int:
        """Sends SIGTERM, then SIGKILL after a grace period; returns the exit code."""
        part = self._running.pop(name)
        part.end(_STOP_GRACE_S)
        return part.wait()

    def pid(self, name: str) -> int:
        """Returns the process of a running part."""
        return self._running[name].pid

    def check(self) -> None:
        """Raises `PartFailed` if a part has ended by itself."""
        for name in self.failed():
            raise PartFailed(f"{name} ended with exit code {self._running[name].exit_code()}; {self._tail(name)}")

    def failed(self) -> list[str]:
        """Returns the parts that have ended by themselves."""
        return [name for name, part in self._running.items() if part.exit_code() is not None]

    def tails(self) -> str:
        """Returns the last lines of each running part's log, for an error message."""
        return "\n".join(self._tail(name) for name in self._running)

    def ended(self, name: str, timeout_s: float) -> int:
        """Waits for a job that stops by itself; returns its exit code."""
        code = self._running[name].wait(timeout_s)
        del self._running[name]
        return code

    def batches(self, name: str) -> list[dict[str, Any]]:
        """Returns what a job has reported about its batches, over all its runs."""
        if not self.log(name).exists():
            return []
        lines = self.log(name).read_text(errors="replace").splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in found if event.get("event") == "batch"]  # the log has other lines too

    def collect(self) -> int:
        """Runs the collector once; returns its exit code."""
        return collect(self.file("collector"))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Runs the collector every `collected_every_s`, in a thread."""
        ended = threading.Event()

        def again() -> None:
            while not ended.wait(self.plan.collected_every_s):
                self.collect()

        thread = threading.Thread(target=again, name="collector", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_STOP_GRACE_S)

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Waits until the condition holds. Raises `PartFailed` if a part ends before that, or on a time-out."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            self.check()
            if time.monotonic() > deadline_s:
                raise PartFailed(f"not within {timeout_s:.0f} s: {what}\n{self.tails()}")
            time.sleep(0.1)

    def _ready(self, name: str) -> bool:
        try:
            return requests.get(f"{self.urls[name]}/readyz", timeout=1).ok
        except (requests.ConnectionError, requests.Timeout):
            return False

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-20:]
        return f"the end of {self.log(name)}:\n" + "\n".join(lines)

    def _storage(self, port: int) -> dict[str, Any]:
        plan = self.plan
        return {
            "store": plan.store or f"lmdb://{self.folder / 'store'}",
            "port": port,
            "workers": plan.workers,
            "namespaces": [
                {"name": plan.namespace, "keep": plan.keep, "bound": 32, "retention": f"{plan.retention_ms}ms"},
            ],
        }

    def _collector(self) -> dict[str, Any]:
        plan = self.plan
        topic = {
            "topic": plan.right,
            "disorder": f"{plan.disorder_ms}ms",
            "producer_delay": f"{plan.producer_delay_ms}ms",
            "idle": plan.idle,
        }
        consumer = {
            "consumer": plan.namespace,
            "positions": {"from": "group", "group": plan.namespace},
            "topics": [topic],
            "store": {
                "url": f"{self.urls[STORAGE]}/v1/namespaces/{plan.namespace}",
                "token": self.tokens[STORAGE],
            },
        }
        return {
            "api": {"url": self.urls[DELAY], "token": self.tokens[DELAY]},
            "kafka": dict(plan.kafka),
            "deadline": "20s",
            "lock_file": str(self.folder / "collector.lock"),
            "consumers": [consumer],
        }

    def _job(self, name: str, kind: str) -> dict[str, Any]:
        return {
            "name": name,
            "kind": kind,
            "kafka": dict(self.plan.kafka),
            "checkpoint": str(self.folder / f"{kind}-checkpoint"),
            "spark": {"master": "local[2]", "spark.ui.enabled": "false"},
            "log": "json",
        }

    def _side(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "disorder": f"{self.plan.disorder_ms}ms", "format": self.plan.value_format}

    def _at(self, name: str) -> dict[str, Any]:
        return {"url": self.urls[name], "token": f"${{{_TOKENS[name]}}}"}

    def _feeder(self) -> dict[str, Any]:
        plan = self.plan
        return {
            **self._job(plan.namespace, "feeder"),
            "right": self._side(plan.right),
            "storage": {**self._at(STORAGE), "namespace": plan.namespace},
            **plan.feeder,
        }

    def _lookup(self) -> dict[str, Any]:
        plan = self.plan
        return {
            **self._job(plan.name, "lookup-join"),
            "left": self._side(plan.left),
            "right": self._side(plan.right),
            "join": {"before": f"{plan.before_ms}ms", "after": f"{plan.after_ms}ms"},
            "storage": {**self._at(STORAGE), "namespace": plan.namespace},
            "delay": {**self._at(DELAY), "consumer": plan.namespace},
            "output": {"topic": plan.joined},
            **plan.lookup,
        }
