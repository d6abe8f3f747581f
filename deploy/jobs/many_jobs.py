"""Several jobs in one process: one JVM, one Spark session, one pool of workers; two threads for each job.

each     has its own lock, run record, listeners, session settings, and fair share of the workers
fails    the others go on. After an exit code for which a retry may help (`TRIED_AGAIN`) the job is started again, after
         2 s, 4 s, ... a minute (from 2 s again if it ran for longer than a minute). Otherwise it stays down
wrong    a file whose job cannot run here (`deploy.jobfile.shared_process`) counts as a job that has failed
reload   SIGHUP without a terminal (`deploy.jobs.stopping`): files are read again. New jobs and those that are down are
         started, those that are gone stopped, those that have changed restarted. If a file has become wrong, its job
         goes on as it was. If a file was renamed, its job starts again once it has stopped
stop     the first signal stops all cleanly, a second one at once
ends     once all have ended. If Spark's JVM ends, or executors are missing for too long, all end: restarting Spark is
         up to the process's supervisor

Apart from its host, a job runs as it does alone (`deploy.jobs.runner.run`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.jobfile.job import CommonJob
from deploy.jobfile.shared_process import Files, Running, WrongFile, jobs_of, wrong_of
from deploy.jobs.job_share import TRIED_AGAIN, WAITS_S, JobShare, SharedSession
from deploy.jobs.stopping import Stop, StopRequest
from deploy.watch.supervisor import Supervisor
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.logs import of_job
from teacup.base.now import wall_ms

if TYPE_CHECKING:
    from deploy.watch.board import Board

log = logging.getLogger("teacup")

TURN_S = 0.25
HURRY_S = 10.0
"""How long jobs may take after a second signal."""
CarryOut = Callable[[CommonJob, StopRequest, JobShare], ExitCode]


@dataclass
class _Run:
    """A job, and its runs.

    code     the exit code of its last run, once that has ended
    further  what follows once it has stopped
    """

    job: CommonJob
    request: StopRequest
    share: JobShare
    thread: threading.Thread
    code: ExitCode | None = None
    further: CommonJob | None = None
    gone: bool = False

    @property
    def runs(self) -> bool:
        return self.thread.is_alive()

    @property
    def goes_on(self) -> bool:
        """Whether it runs, or is started again."""
        return self.runs or self.further is not None or self.share.due_s is not None


@dataclass
class ManyJobs:
    """The jobs of a process.

    files      the files as last read
    read       reads them again. Raises `SettingsInvalid` if nothing should change
    carry_out  runs a job to its end, and returns its exit code
    board      shows what happens to the jobs outside their runs
    """

    files: Files
    read: Callable[[Running], Files]
    carry_out: CarryOut
    session: SharedSession
    stop: Stop
    board: Board | None = None
    supervisor: Supervisor = field(default_factory=Supervisor)

    def __post_init__(self) -> None:
        self._runs: dict[Path, _Run] = {}
        self._new: dict[Path, CommonJob] = {}
        self._reload = self._stopping = self._is_ready = False
        self._hurried_s: float | None = None

    def run(self) -> ExitCode:
        """Returns once all have ended: the exit code of the first that failed, in the order of the files.

        If none failed, that of a job that was stopped before it was done. If Spark's JVM has ended, or has no
        executors, one for which a restart may help: other failures must not keep the process down.
        """
        for file, wrong in wrong_of(self.files).items():
            self._report(file, wrong)
        for file, job in jobs_of(self.files).items():
            self._start(file, job)
        self.stop.at_once(self._hurry)
        self.stop.on_hangup(self._hung_up)
        try:
            while not self._over():
                time.sleep(TURN_S)
                self._turn()
        finally:
            self.stop.at_once(None)
        codes = [code for file in self.files if (code := self._code(file)) is not None]
        failed = [code for code in codes if code not in (ExitCode.DONE, ExitCode.STOPPED)]
        if self.session.gone:
            failed.sort(key=lambda code: code not in TRIED_AGAIN)
        return next(iter(failed), ExitCode.STOPPED if ExitCode.STOPPED in codes else ExitCode.DONE)

    def _code(self, file: Path) -> ExitCode | None:
        """Returns the exit code of a file's job; None if it never began."""
        if (run := self._runs.get(file)) is not None and not run.gone:
            return run.job.stopped if run.code is None else run.code
        return ExitCode.BAD_JOB_FILE if isinstance(self.files[file], WrongFile) else None

    def _over(self) -> bool:
        if self._hurried_s is not None and time.monotonic() - self._hurried_s > HURRY_S:
            return True
        return not self._new and not any(run.goes_on for run in self._runs.values())

    def _turn(self) -> None:
        if (self.stop.asked or self.session.given_up) and not self._stopping:
            self._stopping = True
            for run in self._runs.values():
                run.further = run.share.due_s = None
                run.request.ask()
        if self._reload:
            self._reload = False
            if not self._stopping:
                self._read_again()
        for file, run in list(self._runs.items()):
            if not run.runs:
                self._after(file, run)
        if self._starts_nothing:
            self._new.clear()
        for file, job in [*self._new.items()]:
            if self._is_free(file, job):
                self._start(file, self._new.pop(file))
        shares = [run.share for run in self._runs.values() if run.runs]
        if not self._is_ready and all(run.share.is_ready for run in self._runs.values() if run.runs):
            self._is_ready = True
            self.supervisor.ready()
        if not any(share.stands_still for share in shares):
            self.supervisor.alive(stops=self._stopping)

    @property
    def _starts_nothing(self) -> bool:
        """Whether nothing may be started: all are asked to stop, or no job could run."""
        return self.stop.asked or self.session.gone

    def _after(self, file: Path, run: _Run) -> None:
        """What follows the end of a run."""
        if run.gone:
            del self._runs[file]
            self._forget([run.job.job_name])
            if isinstance(wrong := self.files.get(file), WrongFile):
                self._report(file, wrong)
        elif self._starts_nothing:
            run.further = run.share.due_s = None
        elif run.further is not None:
            if self._is_free(file, run.further):
                self._start(file, run.further)
        elif run.share.due_s is not None and time.monotonic() >= run.share.due_s:
            self._start(file, run.job, run.share.next_s)

    def _is_free(self, file: Path, job: CommonJob) -> bool:
        """Whether no run of another file still has the job's name or checkpoint."""
        others = [run.job for at, run in self._runs.items() if run.runs and at != file]
        return all(job.job_name != other.job_name and job.checkpoint != other.checkpoint for other in others)

    def _start(self, file: Path, job: CommonJob, wait_s: float | None = None) -> None:
        request = StopRequest()
        share = JobShare(self.session, request, WAITS_S[0] if wait_s is None else wait_s)
        thread = threading.Thread(target=self._carry, args=(file,), name=job.job_name, daemon=True)
        self._runs[file] = _Run(job, request, share, thread)
        thread.start()

    def _carry(self, file: Path) -> None:
        run = self._runs[file]
        name, share = run.job.job_name, run.share
        with of_job(name):
            try:
                run.code = self.carry_out(run.job, run.request, run.share)
            except Exception as error:
                run.code = ExitCode.FAILED
                log.error("the job failed: %s: %s", type(error).__name__, error, exc_info=error)
            if share.due_s is None:  # a job that never began has not asked
                share.restart_ms(run.code)
            if (due_s := share.due_s) is not None:
                wait_s = max(due_s - time.monotonic(), 0.0)
                if self.board is not None:
                    self.board.show(name).restarts(wall_ms() + round(wait_s * 1000))
                log.info("is started again in %.0f s", wait_s)

    def _read_again(self) -> None:
        """Applies the files as they are now, and stops reporting those that are no longer wrong."""
        running = {file: run.further or run.job for file, run in self._runs.items() if not run.gone}
        try:
            files = self.read(Running(running, self.session.properties))
        except SettingsInvalid as error:
            log.error("nothing is changed: %s", error)
            return
        before, self.files = wrong_of(self.files), files
        for file, run in self._runs.items():
            match files.get(file):
                case None:
                    _say(run.job, f"stops: {file} is gone")
                    run.gone, run.share.due_s = True, None
                    run.request.ask()
                case WrongFile() as wrong:
                    if not run.gone:
                        how = "goes on as it was" if run.goes_on else "stays down"
                        _say(run.job, f"{how}: {file} is wrong: {wrong}", logging.WARNING)
                case job:
                    if job != run.job or not run.runs or run.request.asked:
                        _say(run.job, "is started again")
                        run.gone, run.share.due_s, run.further = False, None, job
                        run.request.ask()
        self._new = {file: job for file, job in jobs_of(files).items() if file not in self._runs}
        for job in self._new.values():
            _say(job, "is new")
        self._forget([wrong.name for wrong in before.values()])
        for file, wrong in wrong_of(files).items():
            if file not in self._runs:
                self._report(file, wrong)

    def _report(self, file: Path, wrong: WrongFile) -> None:
        """Reports a file whose job cannot be started as a failed job."""
        with of_job(wrong.name):
            log.error("is not started: %s is wrong: %s", file, wrong)
        if self.board is not None:
            self.board.show(wrong.name).cannot_start(ExitCode.BAD_JOB_FILE, f"{file}: {wrong}")

    def _forget(self, names: Iterable[str]) -> None:
        """Forgets those of these names that no job or wrong file has any longer."""
        jobs = [*(run.job for run in self._runs.values()), *self._new.values()]
        job_names = {*(job.job_name for job in jobs), *(wrong.name for wrong in wrong_of(self.files).values())}
        for name in names:
            if name not in job_names and self.board is not None:
                self.board.forget(name)

    def _hung_up(self) -> None:
        self._reload = True

    def _hurry(self) -> None:
        self._hurried_s = time.monotonic()
        for run in self._runs.values():
            run.request.hurry()


def _say(job: CommonJob, line: str, level: int = logging.INFO) -> None:
    with of_job(job.job_name):
        log.log(level, "%s", line)
