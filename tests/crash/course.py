"""Carries scenarios out on a job that goes on: more records, a point armed, the blow, and all must come out once.

The history is in chunks. Chunk k lies in second k of event time: right records, then left ones, then a last right
record in each partition, which lets all left ones of the chunk through (`idle: hold`: no clock is in it). A reader of
committed records runs beside everything, as a user's would.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker import Broker
from deploy.exitcodes import ExitCode
from joins.spec import JoinSpec, Side
from joins.testing import oracle
from kafkaio.brokerlog import BrokerLog
from kafkaio.groups import GroupOffsets
from kafkaio.topiclog import Ends
from tests.crash.checks import Row, open_transaction, too_many_files, wrong_order, wrong_rows
from tests.crash.scenarios import Scenario
from tests.deploy.jobprocess import JobProcess
from tests.joins.spark import Put, history, produce

PARTITIONS = 2
CHUNK = 40  # left records, and a few right ones fewer
START_MS = 1_700_000_000_000
DEADLINE_S = 600.0  # a job alone takes seconds; beside the other tests on a slow machine it takes minutes
PAUSE_S = 10.0
SILENCE_S = 15.0
TRANSACTION_TIMEOUT_MS = 8_000  # a transaction that is open when a pause begins is aborted within it
EXECUTOR = "CoarseGrainedExecutorBackend"


class Violation(AssertionError):
    """The output is not what it has to be; the message says which scenarios came before."""


class CommittedReader:
    """Reads the output from its beginning, all the time; goes on when the broker comes back.

    After a silence it connects anew: a consumer of librdkafka at times never finds back to a broker that was restarted.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.rows: list[Row] = []
        self.trouble: KafkaError | None = None
        self._topic = topic
        self._properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "crash-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def lefts(self) -> int:
        """So many left records stand in the output."""
        return len({row.left for row in list(self.rows)})

    def has_read(self, ends: Mapping[int, Ends]) -> bool:
        """All that stood in the output when it ended so; markers of transactions are passed, too."""
        return all(self._next[p] >= one.stable for p, one in ends.items())

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.is_set():
            consumer = Consumer(self._properties)
            consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self._next.items()])
            silent_from = time.monotonic()
            while not self._ended.is_set() and time.monotonic() - silent_from < SILENCE_S:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    self._next[message.partition()] = message.offset()
                    continue
                if error is not None:
                    self.trouble = error  # the broker is away
                    continue
                silent_from = time.monotonic()
                headers = dict(message.headers() or ())
                right = headers.get("teacup.right")
                left = headers["teacup.left"].decode()
                self.rows.append(Row(message.partition(), message.offset(), left, right and right.decode()))
                self._next[message.partition()] = message.offset() + 1  # last: what was read stands in `rows`
            consumer.close()


@dataclass
class Course:
    """One job over all its scenarios; `changes` to the job file make the canaries."""

    broker: Broker
    folder: Path
    seed: int
    master: str = "local[2]"
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = random.Random(self.seed)
        self.kafka = {"bootstrap.servers": self.broker.bootstrap}
        name = f"crash-{self.seed}-{self.master.partition('[')[0]}-{time.time_ns() % 10**9}"
        self.topics = {side: f"{name}-{side}" for side in ("left", "right", "out")}
        admin = AdminClient(self.kafka)
        new = [NewTopic(topic, PARTITIONS, 1) for topic in self.topics.values()]
        for future in admin.create_topics(new).values():
            future.result(30)
        self.points = self.folder / "points"
        self.points.mkdir(parents=True)
        self.left: list[Put] = []
        self.right: list[Put] = []
        self.done: list[str] = []
        self.ended: list[str] = []  # where the job ended though nobody struck it, and was started again
        self._chunk = 0
        self._name = name
        self._reader = CommittedReader(self.broker.bootstrap, self.topics["out"])
        self._job = self._start()
        self._feed()
        self._await_all()

    def run(self, scenario: Scenario) -> None:
        """One blow, and everything after it: all of the chunk comes out. Whatever fails closes the course."""
        try:
            self._run(scenario)
        except BaseException:
            self.close()
            raise

    def _run(self, scenario: Scenario) -> None:
        self.done.append(str(scenario))
        for name in ("reached", "go", "armed"):
            (self.points / name).unlink(missing_ok=True)
        (self.points / "armed.new").write_text(scenario.point)
        (self.points / "armed.new").rename(self.points / "armed")
        self._feed()
        pid = self._reached()
        self._strike(scenario, pid)
        (self.points / "go").touch()
        self._await_all()

    def finish(self) -> None:
        """Stop the job, and check all that must hold. Raises `Violation`."""
        try:
            if self._job.process.poll() is None:
                code = self._job.stop()
                if code != ExitCode.DONE:
                    raise self._violation(f"the job ended with {code}: {self._job.told()}")
            self._check()
        finally:
            self.close()

    def close(self) -> None:
        if self._job.process.poll() is None:
            self._job.kill()
        self._reader.close()

    def _start(self) -> JobProcess:
        job = {
            "name": self._name,
            "kind": "window-join",
            "kafka": self.kafka,
            "left": {"topic": self.topics["left"], "disorder": "0s"},
            "right": {"topic": self.topics["right"], "disorder": "0s"},
            "join": {"before": "900ms", "after": "0s"},
            "idle": "hold",
            "records_per_batch": CHUNK,  # a chunk takes several batches
            "output": {
                "topic": self.topics["out"],
                "kafka": {
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "delivery.timeout.ms": TRANSACTION_TIMEOUT_MS,
                },
            },
            "trigger": {"every": "50ms"},
            "checkpoint": str(self.folder / "checkpoint"),
            "window_folder": str(self.folder / "windows"),
            "spark": {"master": self.master},
        }
        for key, value in self.changes.items():
            inner = job.get(key)
            job[key] = {**inner, **value} if isinstance(inner, dict) else value
        environment = {"TEACUP_FAILPOINTS": str(self.points), **self.environment}
        with _environment(environment):
            return JobProcess(self.folder, job)

    def _feed(self) -> None:
        """One more chunk; its right records are readable before its left ones."""
        base = START_MS + 1_000 * self._chunk
        self._chunk += 1

        def some(count: int, low: int, high: int, value: bytes) -> list[Put]:
            puts = []
            for n, at in enumerate(sorted(self._numbers.randrange(low, high) for _ in range(count))):
                key = self._numbers.randrange(12)
                puts.append(Put(key % PARTITIONS, b"key-%d" % key, base + at, value + b"-%d-%d" % (self._chunk, n)))
            return puts

        right = some(CHUNK - 8, 0, 800, b"r")
        left = some(CHUNK, 400, 900, b"l")
        last = [Put(p, b"last-%d" % p, base + 999, b"last") for p in range(PARTITIONS)]
        produce(self.kafka, self.topics["right"], right)
        produce(self.kafka, self.topics["left"], left)
        produce(self.kafka, self.topics["right"], last)
        self.right += [*right, *last]
        self.left += left

    def _reached(self) -> int:
        """The pid of the process that stands at the point."""
        told = self.points / "reached"
        self._until(told.exists, f"nobody came to the point of {self.done[-1]!r}")
        return int(told.read_text())

    def _strike(self, scenario: Scenario, worker: int) -> None:
        number = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "stop": signal.SIGTERM}[scenario.kind]
        if scenario.target == "broker":
            self._strike_broker(scenario.kind)
            return
        pids = {
            "worker": lambda: [worker],
            "executor": lambda: self._executor_of(worker),
            "driver": self._driver,
        }[scenario.target]()
        zombie = None
        if scenario.kind == "kill" and scenario.target in ("driver", "executor"):
            zombie = psutil.Process(worker)
            pids.insert(0, zombie.ppid())  # the daemon, which would take its workers along: this one shall survive
        for pid in pids:
            os.kill(pid, number)
        if scenario.kind == "pause":
            time.sleep(PAUSE_S)  # longer than the session and transaction time-outs
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        if scenario.target == "driver" and scenario.kind != "pause":
            if scenario.kind == "stop":
                (self.points / "go").touch()  # a clean stop finishes the batch
            self._job.ended()
            self._job = self._start()
        if zombie is not None:
            self._await_all()  # by another attempt, while this one still stands at its point, its transaction open
            if scenario.point != "committing" and not _alive(zombie):  # there nobody waits
                raise self._violation(f"the worker died with its {scenario.target}: nothing was fenced")
            (self.points / "go").touch()
            self._until(lambda: not _alive(zombie), f"the worker that outlived its {scenario.target} does not end")

    def _strike_broker(self, kind: str) -> None:
        if kind == "pause":
            self.broker.pause()
            (self.points / "go").touch()
            time.sleep(PAUSE_S)
            self.broker.resume()
            return
        if kind == "kill":
            self.broker.kill()
        else:
            self.broker.stop()
        (self.points / "go").touch()
        self.broker.start()

    def _driver(self) -> list[int]:
        """The job's process and the JVM that it started. A clean stop is the process's."""
        root = psutil.Process(self._job.process.pid)
        if self.done[-1].startswith("stop"):
            return [root.pid]
        jvms = [one.pid for one in root.children(recursive=True) if one.name() == "java"]
        return [root.pid, *jvms]

    def _executor_of(self, worker: int) -> list[int]:
        """The JVM whose task the worker at the point carries out: another's death would leave that task as it is."""
        found = [one.pid for one in psutil.Process(worker).parents() if any(EXECUTOR in word for word in one.cmdline())]
        if not found:
            raise self._violation("the worker at the point belongs to no executor of its own")
        return found

    def _await_all(self) -> None:
        self._until(lambda: self._reader.lefts() >= len(self.left), "left records are missing from the output")

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        restarts = 0
        while not condition():
            if self._job.process.poll() is not None:
                if restarts == 3:
                    raise self._violation(f"the job does not stay up ({what}): {self._job.told()}")
                restarts += 1
                self.ended.append(f"{self.done[-1] if self.done else 'the start'}: {self._job.process.returncode}")
                self._job = self._start()  # as whatever runs the job would
            if time.monotonic() > deadline:
                raise self._violation(f"{what}: {self._standing()}\n{self._job.told()}")
            time.sleep(0.02)

    def _standing(self) -> str:
        """How far reader and topics are, after a wait that was too long."""
        told = [f"{self._reader.lefts()} of {len(self.left)} lefts are in the output"]
        told.append(f"the reader's last error: {self._reader.trouble}")
        for side, topic in self.topics.items():
            with closing(BrokerLog(topic, self.kafka)) as log:
                told.append(f"{side}: {log.ends()}")
        return "\n".join(told)

    def _check(self) -> None:
        spec = JoinSpec(
            name="oracle",
            left=Side(topic=self.topics["left"], disorder_ms=0),
            right=Side(topic=self.topics["right"], disorder_ms=0),
            before_ms=900,
            after_ms=0,
            kafka=self.kafka,
        )
        expected = Counter(
            (f"{one.left_partition}:{one.left_offset}", one.right and f"{one.right_partition}:{one.right_offset}")
            for one in oracle.join(history(spec, self.left, self.right), spec)
        )
        with closing(BrokerLog(self.topics["out"], self.kafka)) as log:
            ends = log.ends()
        deadline = time.monotonic() + DEADLINE_S
        while not self._reader.has_read(ends):  # a duplicate may be the last thing that was committed
            if time.monotonic() > deadline:
                raise self._violation(f"the reader does not come to the output's end {ends}: {self._standing()}")
            time.sleep(0.02)
        rows = list(self._reader.rows)
        files = [path.name for path in (self.folder / "windows").rglob("*") if path.is_file()]
        for fault in (
            wrong_rows(rows, expected),
            wrong_order(rows),
            open_transaction(ends),
            too_many_files(files, PARTITIONS),
        ):
            if fault is not None:
                raise self._violation(fault)
        receipts = []
        for number in range(PARTITIONS):
            with closing(GroupOffsets(f"{self._name}.receipt.{number}", self.kafka)) as group:
                receipts.append(group.read([(self.topics["out"], 0)]))
        if "output" not in self.changes and not all(all(one.values()) for one in receipts):
            raise self._violation(f"a receipt is missing: {receipts}")

    def _violation(self, what: str) -> Violation:
        return Violation(f"history {self.seed}, after {', then '.join(self.done) or 'nothing'}: {what}")


def _alive(process: psutil.Process) -> bool:
    """A dead one that nobody has waited for yet is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def receipts_ignored(folder: Path) -> dict[str, str]:
    """An environment in which every Python process takes each batch for one of which nothing is in."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(re in ' '.join(sys.orig_argv) for re in ('pythondaemon', 'pyspark.daemon')):\n"
        "    from kafkaio import delivery, receipt\n"
        "    delivery.standing = lambda *_: receipt.NOTHING_IN\n"
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": re.sub(f"{os.pathsep}+", os.pathsep, path)}
