"""A job with a standby, over several faults: one process runs it, another waits; each has its own window folder.

The window is restored from its backup in the checkpoint, as on another machine. Whatever ends is started again, as a
supervisor would, so before each fault one runs the job and another one is warm. What is read, written and checked is
that of `tests.crash.run`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.checkpoint.file import CheckpointFile
from deploy.checkpoint.lease import Lease
from deploy.checkpoint.lease_file import LEASE
from teacup.base.errors import ExitCode
from teacup.spark.checkpoint import batches_in
from tests.crash.places import Place, place_of
from tests.crash.run import PAUSE_S, Run, environment
from tests.crash.scenarios import Scenario
from tests.support.jobprocess import JobProcess
from tests.support.leftovers import kill_session, of_session

TAKEOVER_S = 1.5
"""Most takeovers are over by then."""
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "stop": signal.SIGTERM}
RESTARTED = {ExitCode.DONE, ExitCode.FAILED, ExitCode.UNREACHABLE, ExitCode.TAKEN_OVER}
"""After any other code a supervisor leaves the job down."""


@dataclass
class StandbyRun(Run):
    """A `Run` whose job has a standby from its first fault on."""

    place: str = "folder"

    def __post_init__(self) -> None:
        self._started = 0
        self._all: list[JobProcess] = []
        self._ever: list[JobProcess] = []
        self._numbers = random.Random(self.seed)
        super().__post_init__()

    def run(self, scenario: Scenario) -> None:
        try:
            self._pair()
        except BaseException:
            self.close()
            raise
        super().run(scenario)

    def close(self) -> None:
        for process in self._ever:
            process.kill()
        super().close()

    def _start(self) -> JobProcess:
        self._started += 1
        folder = self.folder / f"process-{self._started}"
        folder.mkdir()
        place = self._place(self._started)
        job = {**self.job.document(), "spark": {"master": self.master}, **place.changes}
        if "window_folder" in job:
            job |= {"window_folder": str(folder / "windows"), "window_backup": True}
        more = {**self.job.environment(), "TEACUP_FAILPOINTS": str(self.points), **place.environment}
        with environment(more):
            process = JobProcess(folder, job, (*place.command, "run", "--standby"))
        self._all.append(process)
        self._ever.append(process)
        return process

    def _place(self, machine: int = 0) -> Place:
        return place_of(self.place, self.folder, machine)

    @property
    def _job(self) -> JobProcess:
        """The process that has the lease, as long as it lives."""
        holders = [one for one in self._all if self._holds(one)]
        return (holders or self._all or self._ever)[0]

    def _holds(self, process: JobProcess) -> bool:
        lease = CheckpointFile(str(self._place().folder), LEASE).read(Lease)
        return lease is not None and lease.process == process.process.pid

    def _gone(self) -> list[JobProcess]:
        gone = [one for one in self._all if one.process.poll() is not None]
        for one in gone:
            if one.process.returncode not in RESTARTED:
                raise self._violation(f"it ended with {one.process.returncode}, and stays down: {one.logged()}")
        return gone

    def _replace(self, gone: JobProcess) -> None:
        kill_session(gone.process.pid)
        self._all.remove(gone)
        self._start()

    def _pair(self) -> None:
        """Until one runs the job and another one is warm."""
        while len(self._all) < 2:
            self._start()

        def waits(process: JobProcess) -> bool:
            return "standby: warm" in process.logged() and not _took_over(process) and not process.lines

        self._until(lambda: sum(map(waits, self._all)) == 1 and len(self._all) == 2, "no standby is warm")

    def _stop(self) -> None:
        """First the one that runs the job: the other one may take it over, and has nothing to do."""
        active = self._job
        for process in sorted(self._all, key=lambda one: one is not active):
            self._until(lambda one=process: self._holds(one) or "standby" in one.logged(), "it does not start")
            self._take_away(process, replaced=False)
            code = process.stop()
            if code != ExitCode.DONE:
                raise self._violation(f"it ended with {code}: {process.logged()}")

    def _strike(self, scenario: Scenario, worker: int) -> None:
        strike = {
            "active": self._strike_active,
            "standby": self._strike_standby,
            "both": self._strike_both,
            "broker": self._strike_while_taking_over,
            "worker": self._strike_worker,
        }[scenario.target]
        strike(scenario.kind, worker)

    def _strike_active(self, kind: str, worker: int) -> None:
        active = self._of(worker)
        if kind == "kill":
            self._kill(active, worker)
        elif kind == "stop":
            self._take_away(active)
            active.process.send_signal(signal.SIGTERM)
            self._go()  # a clean stop finishes the batch
            if (code := active.ended()) not in (ExitCode.DONE, ExitCode.TAKEN_OVER):
                raise self._violation(f"it was stopped, and ended with {code}: {active.logged()}")
        else:
            self._lose(active)

    def _kill(self, active: JobProcess, worker: int) -> None:
        """All its processes, or all but the worker, or only the one that a supervisor knows."""
        self._take_away(active)
        how = self._numbers.choice(("all", "but the worker", "the first")) if self.job.zombies else "all"
        self.done[-1] += f" ({how})"
        if how == "the first":
            os.kill(active.process.pid, signal.SIGKILL)
        else:
            spared = [worker] if how == "but the worker" else []
            _signal((pid for pid in of_session(active.process.pid) if pid not in spared), signal.SIGKILL)
        if how == "all":
            active.kill()
            return
        self._await_all()  # by the standby, while the worker still stands at its point, its transaction open
        self._go()
        self._until(lambda: not psutil.pid_exists(worker) or _ended(worker), "the worker that was left does not end")
        kill_session(active.process.pid)
        active.ended()

    def _lose(self, active: JobProcess) -> None:
        """It is silent until the standby has written all; then it comes back."""
        session = list(of_session(active.process.pid))
        _signal(session, signal.SIGSTOP)
        if not self.job.zombies:  # it holds the lock: nobody may take over
            time.sleep(PAUSE_S)
            self._go()
            _signal(session, signal.SIGCONT)
            return
        self._take_away(active)
        self._await_all()
        batches = self._batches()
        self._go()
        _signal(session, signal.SIGCONT)
        self._came_back(active)
        if self._batches() < batches:
            raise self._violation("it took plans away")

    def _came_back(self, lost: JobProcess) -> None:
        if (code := lost.ended()) != ExitCode.TAKEN_OVER:
            raise self._violation(f"the one that came back ended with {code}: {lost.logged()}")
        if list(of_session(lost.process.pid)):
            raise self._violation("the one that came back has left processes")

    def _strike_standby(self, kind: str, worker: int) -> None:
        standby = self._taking_over(worker)
        if kind == "kill":
            self._take_away(standby)
            standby.kill()
        elif kind == "stop":
            self._take_away(standby)
            if (code := standby.stop()) != ExitCode.DONE:
                raise self._violation(f"the standby was stopped, and ended with {code}: {standby.logged()}")
        else:
            session = list(of_session(standby.process.pid))
            _signal(session, signal.SIGSTOP)
            if self.job.zombies:
                self._take_away(standby)
                self._await_all()  # by a third one
            else:
                time.sleep(PAUSE_S)
            _signal(session, signal.SIGCONT)
            if self.job.zombies:
                self._came_back(standby)

    def _strike_both(self, kind: str, worker: int) -> None:
        both = [*self._all]
        self._numbers.shuffle(both)
        sessions = [list(of_session(one.process.pid)) for one in both]
        if kind == "pause":
            for session in sessions:
                _signal(session, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            self._go()
            for session in sessions:  # one of them finds that it has lost the job, perhaps
                _signal(session, signal.SIGCONT)
                time.sleep(self._numbers.choice((0.0, 3.0)))
            return
        for one in both:
            one.process.send_signal(SIGNALS[kind])
        self._go()
        for one in both:
            code = one.ended()
            if kind == "stop" and code not in (ExitCode.DONE, ExitCode.TAKEN_OVER):
                raise self._violation(f"it was stopped, and ended with {code}: {one.logged()}")
            self._take_away(one)
            kill_session(one.process.pid)

    def _strike_while_taking_over(self, kind: str, worker: int) -> None:
        self._taking_over(worker)
        if kind == "pause":
            self._strike_broker(kind)
            return
        (self.broker.kill if kind == "kill" else self.broker.stop)()
        time.sleep(self._numbers.uniform(0, PAUSE_S))
        self.broker.start()

    def _taking_over(self, worker: int) -> JobProcess:
        """The active one is killed; the standby, somewhere in its takeover."""
        active = self._of(worker)
        self._take_away(active, replaced=False)
        (standby,) = self._all
        active.kill()
        self._go()
        self._until(lambda: _took_over(standby), "the standby does not take over")
        time.sleep(self._numbers.uniform(0, TAKEOVER_S))
        return standby

    def _strike_worker(self, kind: str, worker: int) -> None:
        os.kill(worker, SIGNALS[kind])
        self._go()
        if kind == "pause":
            time.sleep(PAUSE_S)
            _signal([worker], signal.SIGCONT)

    def _of(self, worker: int) -> JobProcess:
        """The process of whose session a worker is."""
        session = os.getsid(worker)
        found = [one for one in self._all if one.process.pid == session]
        if len(found) != 1:
            raise self._violation(f"the worker at the point is of {session}, and not of one of the two")
        return found[0]

    def _take_away(self, process: JobProcess, *, replaced: bool = True) -> None:
        """No supervisor looks at it any more; another one is started in its place."""
        self._all.remove(process)
        if replaced:
            self._start()

    def _go(self) -> None:
        (self.points / "go").touch()

    def _batches(self) -> list[int]:
        folder = self._place().folder / "offsets"
        return batches_in(path.name for path in Path(folder).iterdir())


def _took_over(process: JobProcess) -> bool:
    return "standby: takes over" in process.logged()


def _ended(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
