"""Carries out scenarios on a running job: more records, a point armed, the fault; every row must be there once.

What the job is, what it reads and what its output must satisfy is in `tests.crash.jobs`. A reader of committed records
runs beside everything, as a user's would.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.base.errors import ExitCode
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from tests.crash.checks import open_transaction
from tests.crash.kinds import CONFIG, ROLES, job_of
from tests.crash.reader import CommittedReader
from tests.crash.scenarios import Scenario
from tests.crash.traffic import PARTITIONS
from tests.support.jobprocess import JobProcess

DEADLINE_S = 600.0  # a job alone takes seconds; beside the other tests on a slow machine it takes minutes
PAUSE_S = 10.0
MARKERS_S = 30.0  # a transaction's markers are written to its partitions one after the other, after the commit
EXECUTOR = "CoarseGrainedExecutorBackend"


class Violation(AssertionError):
    """The output is wrong; the message says which scenarios came before."""


@dataclass
class Run:
    """One job over all its scenarios; `changes` to the job file make the canaries."""

    broker: Broker
    folder: Path
    seed: int
    master: str = "local[2]"
    kind: str = "window-join"
    changes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kafka = {"bootstrap.servers": self.broker.bootstrap}
        self._name = (
            f"crash-{self.seed}-{self.kind}-{self.master.partition('[')[0].partition(':')[0]}-{time.time_ns() % 10**9}"
        )
        topics = {role: f"{self._name}-{role}" for role in ROLES[self.kind]}
        admin = AdminClient(self.kafka)
        config = CONFIG.get(self.kind, {})
        new = [NewTopic(topic, PARTITIONS, 1, config=dict(config.get(role, {}))) for role, topic in topics.items()]
        for future in admin.create_topics(new).values():
            future.result(30)
        self.points = self.folder / "points"
        self.points.mkdir(parents=True)
        self.done: list[str] = []
        self.ended: list[str] = []  # where the job ended though nobody struck it, and was started again
        self.job = job_of(self.kind, self._name, self.kafka, topics, self.folder, self.seed)
        self._out, self._read = topics["out"], [topics[role] for role in self.job.read]
        self._reader = CommittedReader(self.broker.bootstrap, self._read, PARTITIONS)
        self._process: JobProcess | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        self._process = self._start()
        self.job.feed()
        self._await_all()

    def run(self, scenario: Scenario) -> None:
        """One fault, and everything after it: all rows of the chunk are written. Whatever fails closes the run."""
        self.strike(str(scenario), scenario.point, lambda worker: self._strike(scenario, worker))

    def strike(self, what: str, point: str, fault: Callable[[int], None]) -> None:
        """Any fault, given the process that is halted at the point; then everything is written as after `run`."""
        try:
            self._strike_at(what, point, fault)
        except BaseException:
            self.close()
            raise

    def _strike_at(self, what: str, point: str, fault: Callable[[int], None]) -> None:
        self.done.append(what)
        self._arm(point)
        self.job.feed()
        while (worker := self._reached()) == self._job.process.pid:  # a driver that starts leaves receipts itself
            (self.points / "go").touch()
            time.sleep(1.0)
            self._arm(point)
        fault(worker)
        (self.points / "go").touch()
        self._await_all()

    def _arm(self, point: str) -> None:
        for name in ("reached", "go", "armed"):
            (self.points / name).unlink(missing_ok=True)
        (self.points / "armed.new").write_text(point)
        (self.points / "armed.new").rename(self.points / "armed")

    def finish(self) -> None:
        """Stop the job, and check all that must hold. Raises `Violation`."""
        try:
            self._stop()
            self._check()
        finally:
            self.close()

    def _stop(self) -> None:
        if self._job.process.poll() is None:
            self._until(lambda: bool(self._job.lines), "the job does not start")  # no signal before it takes any
            code = self._job.stop()
            if code != ExitCode.DONE:
                raise self._violation(f"the job ended with {code}: {self._job.logged()}")

    def close(self) -> None:
        if self._process is not None and self._process.process.poll() is None:
            self._process.kill()
        self._reader.close()
        self.job.close()

    @property
    def _job(self) -> JobProcess:
        assert self._process is not None
        return self._process

    def _start(self) -> JobProcess:
        with environment(self.surroundings()):
            return JobProcess(self.folder, self.content())

    def content(self) -> dict[str, Any]:
        """Of the job file."""
        job = {**self.job.document(), "spark": {"master": self.master}}
        for key, value in self.changes.items():
            inner = job.get(key)
            job[key] = {**inner, **value} if isinstance(inner, dict) else value
        return job

    def surroundings(self) -> dict[str, str]:
        """Of the job's process: environment variables."""
        return {**self.job.environment(), "TEACUP_FAILPOINTS": str(self.points), **self.environment}

    def _reached(self) -> int:
        """The pid of the process that is halted at the point."""
        reached = self.points / "reached"
        self._until(reached.exists, f"nobody came to the point of {self.done[-1]!r}")
        return int(reached.read_text())

    def _strike(self, scenario: Scenario, worker: int) -> None:
        number = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "stop": signal.SIGTERM}[scenario.kind]
        if scenario.target == "broker":
            self._strike_broker(scenario.kind)
            return
        if scenario.kind == "kill" and scenario.target == "driver" and not self.job.zombies:
            self._job.kill()  # with its workers: without fencing nothing holds back what one of them writes much later
            self._process = self._start()
            return
        pids = {
            "worker": lambda: [worker],
            "executor": lambda: self._executor_of(worker),
            "driver": self._driver,
        }[scenario.target]()
        struck, others = pids[-1], self._other_executors(pids)
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
            self._process = self._start()
        if scenario.target == "executor":
            self._check_executors(scenario, struck, others)
        if zombie is not None:
            self._await_all()  # by another attempt, while this one still stands at its point, its transaction open
            if scenario.point != "committing" and not _alive(zombie):  # there nobody waits
                raise self._violation(f"the worker died with its {scenario.target}: nothing was fenced")
            (self.points / "go").touch()
            self._until(lambda: not _alive(zombie), f"the worker that outlived its {scenario.target} does not end")

    def _check_executors(self, scenario: Scenario, struck: int, others: list[psutil.Process]) -> None:
        """The executor whose worker was at the point is gone, and no other."""
        if scenario.kind == "kill":
            self._until(lambda: not _alive_pid(struck), f"executor {struck}, which was killed, does not end")
        gone = [executor.pid for executor in others if not _alive(executor)]
        if gone:
            raise self._violation(f"executors {gone} went, and not only {struck}, whose worker stood at the point")

    def _other_executors(self, struck: list[int]) -> list[psutil.Process]:
        found = _javas_of(psutil.Process(self._job.process.pid))
        return [process for process in found if process.pid not in struck and _is_executor(process)]

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
        """The job's process and the JVM that it started. A clean stop concerns the process only."""
        root = psutil.Process(self._job.process.pid)
        if self.done[-1].startswith("stop"):
            return [root.pid]
        return [root.pid, *(process.pid for process in _javas_of(root))]

    def _executor_of(self, worker: int) -> list[int]:
        """The JVM whose task the worker at the point carries out: another's death would not affect that task."""
        found = [
            process.pid
            for process in psutil.Process(worker).parents()
            if process.name() == "java" and _is_executor(process)
        ]
        if len(found) != 1:
            raise self._violation(f"the worker at the point belongs to executors {found}, and must to one")
        return found

    def _await_all(self) -> None:
        self._until(lambda: self.job.missing(self._reader) <= 0, "records are missing from the output")
        self._await_no_fault()

    def _await_no_fault(self) -> None:
        """What must hold at every point: all of a transaction is there, or none, in all topics.

        The markers of one commit reach its partitions one after the other, and an earlier attempt's transaction may
        still be open. What does not hold after that is permanent.
        """
        deadline = time.monotonic() + MARKERS_S
        while faults := [fault for fault in self.job.faults(self._reader) if fault is not None]:
            if time.monotonic() > deadline:
                raise self._violation("; ".join(faults))
            time.sleep(0.2)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        restarts = 0
        while not condition():
            for process in self._gone():
                if restarts == 3:
                    raise self._violation(f"the job does not stay up ({what}): {process.logged()}")
                restarts += 1
                self.ended.append(f"{self.done[-1] if self.done else 'the start'}: {process.process.returncode}")
                self._replace(process)
            if (why := self.job.ended()) is not None:
                if restarts == 3:
                    raise self._violation(f"a process beside the job does not stay up ({what}): {why}")
                restarts += 1
                self.ended.append(f"{self.done[-1] if self.done else 'the start'}: {why}")
            if time.monotonic() > deadline:
                raise self._violation(f"{what}: {self._written_so_far()}\n{self._job.logged()}\n{self.job.beside()}")
            time.sleep(0.02)

    def _gone(self) -> list[JobProcess]:
        """Processes of the job that have ended by themselves."""
        return [self._job] if self._job.process.poll() is not None else []

    def _replace(self, gone: JobProcess) -> None:
        """Start it again, as whatever runs the job would."""
        self._process = self._start()

    def _written_so_far(self) -> str:
        """How far reader and topics are, after a wait that was too long."""
        lines = [f"{self.job.missing(self._reader)} records are not out"]
        lines.append(f"the reader's last error: {self._reader.trouble}")
        for topic in self._read:
            with closing(BrokerLog(topic, self.kafka)) as log:
                lines.append(f"{topic}: {log.ends()}")
        return "\n".join(lines)

    def _check(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        opened = []
        for topic in self._read:
            with closing(BrokerLog(topic, self.kafka)) as log:
                ends = log.ends()
            opened.append(open_transaction(ends))
            while not self._reader.has_read(topic, ends):  # a duplicate may be the last thing that was committed
                if time.monotonic() > deadline:
                    raise self._violation(
                        f"the reader does not come to the end {ends} of {topic}: {self._written_so_far()}"
                    )
                time.sleep(0.02)
        for fault in (*self.job.last_faults(self._reader), *self.job.faults(self._reader), *opened):
            if fault is not None:
                raise self._violation(fault)
        if not self.job.zombies or "output" in self.changes:
            return  # no receipts
        receipts = []
        for number in range(PARTITIONS):
            with closing(GroupOffsets(OutputBucket(self._name, number, self._out).group, self.kafka)) as group:
                receipts.append(group.read([(self._out, 0)]))
        if not all(all(receipt.values()) for receipt in receipts):
            raise self._violation(f"a receipt is missing: {receipts}")

    def _violation(self, what: str) -> Violation:
        return Violation(f"history {self.seed}, after {', then '.join(self.done) or 'nothing'}: {what}")


def _javas_of(root: psutil.Process) -> list[psutil.Process]:
    """The JVMs among its descendants; others may end meanwhile."""
    found = []
    for process in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() == "java":
                found.append(process)
    return found


def _is_executor(process: psutil.Process) -> bool:
    return any(EXECUTOR in word for word in process.cmdline())


def _alive_pid(pid: int) -> bool:
    try:
        return _alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _alive(process: psutil.Process) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
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
    """An environment in which every Python process assumes that nothing of a batch is in the output."""
    return _in_workers(
        folder,
        "from teacup.kafka.delivery import delivery, receipt",
        "delivery.written_so_far = lambda *_: receipt.NOTHING_IN",
    )


def kept_ignored(folder: Path) -> dict[str, str]:
    """One in which no row stays that a rewind was to keep."""
    return _in_workers(
        folder,
        "from deploy.output.kept import RowsToKeep, np",
        "RowsToKeep.stay = lambda _, rows: np.zeros(len(rows), np.bool_)",
    )


def _in_workers(folder: Path, *lines: str) -> dict[str, str]:
    """An environment in which the daemon of Spark's workers does this first."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\nif 'worker_daemon' in ' '.join(sys.orig_argv):\n" + "".join(f"    {line}\n" for line in lines)
    )
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": re.sub(f"{os.pathsep}+", os.pathsep, path)}
