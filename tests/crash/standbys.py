"""A job with a standby, over several faults: one process runs it, another waits; each has its own window folder.

The window is restored from its backup in the checkpoint, as on another machine. What is read, written and checked is
that of `tests.crash.run`.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from teacup.base.errors import ExitCode
from teacup.spark.checkpoint import batches_in
from tests.crash.run import Run, environment
from tests.support.jobprocess import JobProcess
from tests.support.leftovers import of_session

COMMAND = (sys.executable, "-m", "deploy.cli", "run", "--standby")


@dataclass
class StandbyRun(Run):
    """A `Run` whose job has a standby from its first fault on."""

    def __post_init__(self) -> None:
        self._started = 0
        self._waiting: JobProcess | None = None
        super().__post_init__()

    def struck(self, point: str, *, lost: bool) -> None:
        """Kills the process that runs the job, in the middle of a batch; or stops it, and lets it go on later."""
        what = f"{'a lost machine' if lost else 'kill -9'} at {point}"
        self._waiting = self._start()
        self._until(lambda: "standby: warm" in self.waiting.logged(), "the standby does not get warm")
        self.strike(what, point, self._lose if lost else self._kill)

    @property
    def waiting(self) -> JobProcess:
        assert self._waiting is not None
        return self._waiting

    def close(self) -> None:
        if self._waiting is not None and self._waiting.process.poll() is None:
            self._waiting.kill()
        super().close()

    def _start(self) -> JobProcess:
        self._started += 1
        folder = self.folder / f"process-{self._started}"
        folder.mkdir()
        job = {
            **self.job.document(),
            "spark": {"master": self.master},
            "window_folder": str(folder / "windows"),
            "window_backup": True,
        }
        with environment({"TEACUP_FAILPOINTS": str(self.points)}):
            return JobProcess(folder, job, COMMAND)

    def _kill(self, worker: int) -> None:
        self._job.kill()
        self._process, self._waiting = self.waiting, None

    def _lose(self, worker: int) -> None:
        old = self._job
        session = list(of_session(old.process.pid))
        for pid in session:
            os.kill(pid, signal.SIGSTOP)
        self._process, self._waiting = self.waiting, None
        self._await_all()  # the standby has taken over
        batches = self._batches()
        (self.points / "go").touch()
        for pid in session:
            os.kill(pid, signal.SIGCONT)
        if (code := old.ended()) != ExitCode.TAKEN_OVER:
            raise self._violation(f"the one that came back ended with {code}: {old.logged()}")
        if list(of_session(old.process.pid)):
            raise self._violation("the one that came back has left processes")
        if self._batches() < batches:
            raise self._violation("it took plans away")

    def _batches(self) -> list[int]:
        return batches_in(path.name for path in (Path(self.folder) / "checkpoint" / "offsets").iterdir())
