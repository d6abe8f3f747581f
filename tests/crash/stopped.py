"""Carries out stops (`tests.crash.stops`): one job, or several in a process, stopped and started again and again.

Each stop must give its exit code, and leave no process and no folder behind; the last start writes every row. What a
job reads, writes and must satisfy is that of `tests.crash.run`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from deploy.broker.broker import Broker
from teacup.base.errors import ExitCode
from teacup.kafka.delivery.failpoints import FAILPOINTS
from tests.crash.run import Run, Violation, environment
from tests.crash.scenarios import JOBS
from tests.crash.stops import KINDS, Stop, moment
from tests.support.jobprocess import JobProcess
from tests.support.signals import catches

WITHIN_S = 300.0  # on a busy machine
GONE_WITHIN_S = 30.0
JVM = "SparkSubmit"
CACHES = {f"teacup-cache-{os.getuid()}", f"teacup-windows-{os.getuid()}"}
"""One of each for a user."""
PAUSED_S = 3.0
STOPS_AFTER_S = 1.5  # SIGHUP ends nothing: then the process is stopped


class Member(Run):
    """One of the jobs of the process; who starts it is `StoppedRun`."""

    def _begin(self) -> None:
        """Nothing is started yet."""

    def _replace(self, gone: JobProcess) -> None:
        raise self._violation(f"it ended by itself with {gone.process.returncode}: {gone.logged()}")

    def follow(self, process: JobProcess, done: list[str]) -> None:
        self._process, self.done = process, done

    def written(self) -> None:
        """Waits until all is written that was fed."""
        self._await_all()

    def check(self) -> None:
        self._check()


class Told:
    """What the command tells systemd: it takes the place of systemd's socket, in the abstract namespace."""

    def __init__(self) -> None:
        self.address = f"@teacup-stops-{uuid.uuid4().hex}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(f"\0{self.address[1:]}")
        self._ready = 0

    def ready(self) -> int:
        """Returns how often it was ready since its start."""
        with suppress(BlockingIOError):
            while True:
                self._ready += self._socket.recv(64) == b"READY=1"
        return self._ready

    def forget(self) -> None:
        """Another start begins."""
        self.ready()
        self._ready = 0

    def close(self) -> None:
        self._socket.close()


@dataclass
class StoppedRun:
    """A history of stops; each is of the start that follows the one before."""

    broker: Broker
    folder: Path
    seed: int
    kind: str

    def __post_init__(self) -> None:
        self.done: list[str] = []
        self.ended: list[str] = []  # none may end by itself
        self._temporary = self.folder / "tmp"
        self._temporary.mkdir(parents=True)
        self._process: JobProcess | None = None
        self._said_before = 0  # the length of its log when the signal came
        self._members: list[Member] = []
        self._told = Told()
        try:
            for number, kind in enumerate(KINDS[self.kind]):
                folder = self.folder / str(number)
                self._members.append(Member(self.broker, folder, self.seed + 1_000 * number, kind=kind))
        except BaseException:
            self.close()
            raise
        self._points = self._members[0].points

    def run(self, stop: Stop) -> None:
        """Starts the job, and stops it. Whatever fails closes the run."""
        try:
            self._stop_it(stop)
        except BaseException:
            self.close()
            raise

    def finish(self) -> None:
        """Starts the job once more: every row must be right. Raises `Violation`."""
        try:
            for left in self._temporary.glob("teacup-*"):
                os.utime(left, (0, 0))  # what was left is removed once it is a minute old
            process = self._start()
            for member in self._members:
                member.written()
            self._until(self._catches, "handlers")  # all may have been written before
            self._signal(process, "TERM")
            self._check_end(process, ExitCode.DONE)
            for member in self._members:
                member.check()
            left = {path.name for path in self._temporary.iterdir()} - CACHES
            if left:
                raise self._violation(f"in the folder for temporary files there are still {sorted(left)}")
        finally:
            self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for member in self._members:
            member.close()
        self._told.close()

    def _stop_it(self, stop: Stop) -> None:
        self.done.append(str(stop))
        for member in self._members:
            member.job.feed()
        with self._reached(stop) as process:
            caught = self._catches()
            self._signal(process, stop.signal)
            if stop.signal == "HUP":
                time.sleep(STOPS_AFTER_S)
                if process.process.poll() is None:  # it may have waited for its handler
                    caught = True
                    self._signal(process, "TERM")
                elif caught and stop.phase != "stopping":  # then it ends by the SIGTERM before
                    raise self._violation(f"SIGHUP ended it with {process.process.returncode}: {process.logged()}")
        number = getattr(signal, f"SIG{stop.signal}")
        expected = -number if stop.signal == "KILL" or not caught else ExitCode.DONE
        self._check_end(process, expected, may_be_late=not caught)

    def _start(self) -> JobProcess:
        (self._points / "go").unlink(missing_ok=True)
        (self._points / "reached").unlink(missing_ok=True)
        first, *others = self._members
        files = []
        for number, member in enumerate(others, 1):
            files.append(self.folder / f"job-{number}.yaml")
            files[-1].write_text(yaml.safe_dump({"log": "json", **member.content()}))
        options = ["--standby"] if self.kind == "standby" else []
        command = [sys.executable, "-m", "deploy.cli", "run", *options, *map(str, files)]
        log = self.folder / "errors.log"
        log.unlink(missing_ok=True)
        self._told.forget()
        with environment({**first.surroundings(), "TMPDIR": str(self._temporary), "NOTIFY_SOCKET": self._told.address}):
            self._process = JobProcess(self.folder, first.content(), command)
        for member in self._members:
            member.follow(self._process, self.done)
        return self._process

    @contextmanager
    def _reached(self, stop: Stop) -> Iterator[JobProcess]:
        """Starts it; entered in the phase, and somewhere in it."""
        later_s = moment(self.seed, len(self.done), 0.3)
        phases: dict[str, Callable[[], Any]] = {
            "began": lambda: None,
            "imports": lambda: self._until(self._catches, "handlers"),
            "jvm": lambda: self._until(lambda: self._some(JVM), "the JVM"),
            "connected": lambda: self._until(lambda: self._is_connected() or self._planner(), "a connection"),
            "planner": lambda: self._until(self._planner, "the planner"),
            "planning": self._pause_at_the_planner,
            "running": self._to_a_point,
            "between": lambda: self._until(lambda: bool(self._job.lines), "a batch"),
            "waits": self._all_written,
            "holds": self._hold,
            "stopping": self._begin_to_stop,
        }
        try:
            if stop.phase == "connecting":
                self.broker.pause()
                self._start()
                self._until(lambda: self._some(JVM), "the JVM")
                time.sleep(1.0)
            else:
                self._start()
                phases[stop.phase]()
            time.sleep(later_s)
            yield self._job
            if stop.phase in ("connecting", "planning"):
                time.sleep(PAUSED_S / 2)
        finally:
            self.broker.resume()
            (self._points / "go").touch()

    def _pause_at_the_planner(self) -> None:
        self._until(self._planner, "the planner")
        self.broker.pause()
        time.sleep(0.5)

    def _to_a_point(self) -> None:
        """Whichever of the jobs is there first."""
        possible = [point for point in FAILPOINTS if all(point in JOBS[kind][1] for kind in KINDS[self.kind])]
        point = possible[int(moment(self.seed, -len(self.done), len(possible) - 0.001))]
        self.done[-1] += f" at {point}"
        (self._points / "armed.new").write_text(point)
        (self._points / "armed.new").rename(self._points / "armed")
        for member in self._members:
            member.job.feed()
        self._until((self._points / "reached").exists, point)

    def _all_written(self) -> None:
        for member in self._members:
            member.written()
        time.sleep(1.0)

    def _hold(self) -> None:
        self._all_written()
        self.broker.pause()
        self._until(lambda: "holds: " in self._job.logged(), "that it holds")

    def _begin_to_stop(self) -> None:
        self._until(lambda: bool(self._job.lines), "a batch")
        self._signal(self._job, "TERM")
        time.sleep(moment(self.seed, len(self.done), 1.5))

    def _signal(self, process: JobProcess, name: str) -> None:
        """A terminal signals the process and its group; an operator the process."""
        number, pid = getattr(signal, f"SIG{name}"), process.process.pid
        self._said_before = len(process.errors.read_text())
        with suppress(ProcessLookupError):
            (os.killpg if name in ("INT", "HUP") else os.kill)(pid, number)

    def _check_end(self, process: JobProcess, expected: int, *, may_be_late: bool = False) -> None:
        code = process.ended()
        early = "Fatal Python error: init_import_site" in process.logged()  # SIGINT before Python runs a line of ours
        if code != expected and not (may_be_late and (code == ExitCode.DONE or early)):
            raise self._violation(f"exit code {code}, and not {expected}: {process.logged()}")
        if code == ExitCode.DONE and "Traceback" in (after := process.errors.read_text()[self._said_before :]):
            raise self._violation(f"there is a traceback after the signal: {after}")
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := self._left():
            if time.monotonic() > deadline:
                raise self._violation(f"left behind: {[_shown(pid) for pid in left]}: {process.logged()}")
            time.sleep(0.1)

    def _left(self) -> list[int]:
        """The processes that it has started, in whatever session: by their environment."""
        mark, found = f"TMPDIR={self._temporary}".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    @property
    def _job(self) -> JobProcess:
        assert self._process is not None
        return self._process

    @property
    def _pid(self) -> int:
        return self._job.process.pid

    def _some(self, what: str) -> list[int]:
        """Which of its processes have this in their command."""
        found = []
        for pid in self._left():
            with suppress(OSError):
                if what.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def _catches(self) -> bool:
        return catches(self._pid, signal.SIGTERM)

    def _planner(self) -> bool:
        """Whether what plans has begun, as the job says. A standby that waits says that it is ready, too."""
        return self._told.ready() > ("standby: warm, waits for" in self._job.logged())

    def _is_connected(self) -> bool:
        """Whether the job itself is connected to the broker."""
        port = int(self.broker.bootstrap.rpartition(":")[2])
        connections = psutil.Process(self._pid).net_connections()
        return any(found.raddr and found.raddr.port == port for found in connections)

    def _until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            if self._job.process.poll() is not None:
                raise self._violation(f"it ended with {self._job.process.returncode} before {what}: {self._logged()}")
            if time.monotonic() > deadline:
                raise self._violation(f"not in time: {what}: {self._logged()}")
            time.sleep(0.03)

    def _logged(self) -> str:
        return self._job.logged()

    def _violation(self, what: str) -> Violation:
        return Violation(f"history {self.seed}, after {', then '.join(self.done) or 'nothing'}: {what}")


def _shown(pid: int) -> str:
    with suppress(psutil.NoSuchProcess):
        return f"{pid} {' '.join(psutil.Process(pid).cmdline())[-200:]}"
    return str(pid)
