"""Several jobs in one process: one JVM, one Spark session, one pool of workers; a thread and a query for each job.

    each     its own lock, run record, listeners, settings of the session, and fair share of the workers
    fails    the others go on. After an exit code that another try may help (`TRIED_AGAIN`) it is started again, after
             2 s, 4 s, ... a minute; one that has run for longer than a minute begins with 2 s. Else it stays down
    wrong    a file whose job cannot run here (`deploy.jobfile.shared_process`) counts as a job that has failed
    reload   SIGHUP, unless a terminal is there (`deploy.jobs.stopping`): files are read again. What is new is started,
             what is gone is stopped, what has changed is restarted, and what is down is started. A job whose file has
             become wrong goes on as it was. A job whose file was renamed is new, and waits until it has stopped: it
             has one name and one checkpoint
    stop     the first signal stops all cleanly, a second one at once
    ends     once all have ended. If Spark's JVM ends, or there are no executors for too long, all do: starting Spark
             again is for the process' supervisor

A job is the same as alone (`deploy.jobs.runner.run`), but for its host.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deploy.jobfile.job import CommonJob
from deploy.jobfile.shared_process import Files, Running, WrongFile, jobs_of, properties_of, wrong_of
from deploy.jobs.host import SparkOfJob, spark_properties
from deploy.jobs.stopping import Stop, StopRequest
from deploy.jobs.supervisor import Supervised, Supervisor
from deploy.kinds.job_kind import JobKind
from deploy.watch.metrics import STANDS_STILL_S
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.logs import of_job
from teacup.base.now import wall_ms
from teacup.spark.cluster.executors import Executors
from teacup.spark.java import check_java
from teacup.spark.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("teacup")

TRIED_AGAIN = frozenset({ExitCode.FAILED, ExitCode.UNREACHABLE})
WAITS_S = (2.0, 60.0)
"""Before a start after a failure: the first time, doubled each time, and at most."""
TURN_S = 0.25
HURRY_S = 10.0
"""How long jobs may take after a second signal."""
JOBS_PER_REST, MOST_RESTS = 5, 6.0
STARTED_AT_ONCE = 2
"""How many queries: each takes a second of CPU, and others that wait for it would run into their time limits."""

CarryOut = Callable[[CommonJob, StopRequest, "JobShare"], ExitCode]


class SharedSession:
    """The session of several jobs, from here to `close`."""

    def __init__(self, kinds: Sequence[JobKind], files: int) -> None:
        """files: how many jobs there will be once all files are valid. Raises what `Session` raises."""
        check_java()
        jobs = [kind.common for kind in kinds]
        self.properties = properties_of(jobs)
        self.rests = min(max(files / JOBS_PER_REST, 1.0), MOST_RESTS)
        self._session = Session(
            "teacup",
            {**self.properties, **spark_properties(jobs[0], {"spark.scheduler.mode": "FAIR"}, name="")},
            rows_in_jvm=any(kind.rows_in_jvm for kind in kinds),
            exactly_once=all(kind.exactly_once for kind in kinds),
            jobs=files,
        )
        self._lock, self._warm = threading.Lock(), False
        self.given_up = False
        self._starting = threading.BoundedSemaphore(STARTED_AT_ONCE)

    @property
    def gone(self) -> bool:
        """Whether its JVM has ended, or it has got no executors for too long: no job can start in it."""
        return self._session.gone or self.given_up

    def executors(self) -> Executors:
        """Returns how many executors there are."""
        return self._session.executors()

    def close(self) -> None:
        """Stops Spark."""
        self._session.close()

    def spark(self, name: str) -> SparkSession:
        """Returns a session for a job: settings of its own, and a pool of the scheduler."""
        with self._lock:
            shared = self._session.spark
        shared.sparkContext.setLocalProperty("spark.scheduler.pool", name)  # of this thread
        return shared.newSession()

    def warm_up(self) -> None:
        """Starts a worker, once."""
        with self._lock:
            if not self._warm:
                self._warm = True
                self._session.warm_up()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Waits until fewer queries are being started."""
        with self._starting:
            yield

    def ended(self) -> Exception | None:
        """Returns how its JVM ended, if it did."""
        return self._session.ended()


class JobShare:
    """What one run of a job has of its process (`deploy.jobs.host.Host`), and what it says to a supervisor.

    due_s   once it has ended: when the job is started again, by the monotonic clock; None: it is not
    next_s  how long that start waits, if it fails, until the one after it
    """

    def __init__(self, session: SharedSession, request: StopRequest, wait_s: float) -> None:
        """wait_s: how long to wait before the next start, if this run fails soon."""
        self._session, self._request, self._wait_s = session, request, wait_s
        self.is_ready, self._turned_s, self._began_s = False, 0.0, time.monotonic()
        self.due_s: float | None = None
        self.next_s = wait_s

    @property
    def rests(self) -> float:
        return self._session.rests

    @property
    def supervisor(self) -> Supervised:
        return self

    def ready(self) -> None:
        self.is_ready, self._turned_s = True, time.monotonic()

    def alive(self, *, stops: bool = False) -> None:
        self._turned_s = time.monotonic()

    @property
    def stands_still(self) -> bool:
        """Whether its loop should turn, and does not."""
        return self.is_ready and time.monotonic() - self._turned_s > STANDS_STILL_S

    def restart_ms(self, code: ExitCode) -> int | None:
        """Decides whether and when the job is started again, and returns when, by the wall clock."""
        if code not in TRIED_AGAIN or self._request.asked or self._session.gone:
            return None
        now_s = time.monotonic()
        wait_s = WAITS_S[0] if now_s - self._began_s > WAITS_S[1] else self._wait_s
        self.due_s, self.next_s = now_s + wait_s, min(2 * wait_s, WAITS_S[1])
        return wall_ms() + round(wait_s * 1000)

    @contextmanager
    def session(self, kind: JobKind) -> Iterator[SparkOfJob]:
        try:
            yield _SessionShare(self._session, kind.name)
        finally:
            self.is_ready = False


class _SessionShare:
    """The session as one job sees it."""

    def __init__(self, session: SharedSession, name: str) -> None:
        self._session, self._name = session, name
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            self._spark = self._session.spark(self._name)
        return self._spark

    def warm_up(self) -> None:
        self._session.warm_up()

    def starting(self) -> AbstractContextManager[None]:
        return self._session.starting()

    def end_planners(self) -> None:
        """Others need them, or this job when it starts again: what they have forked Spark ends after a minute."""

    def executors(self) -> Executors:
        return self._session.executors()

    def give_up(self) -> None:
        """Ends all jobs: what this one lacks, all lack."""
        self._session.given_up = True

    def ended(self) -> Exception | None:
        return self._session.ended()


@dataclass
class _Run:
    """A job, and its runs.

    code     of its last run, once that has ended
    further  what it becomes once it has stopped
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


class JobBoard(Protocol):
    """Listens to what happens to the jobs of a process outside of their runs (`deploy.watch.board`)."""

    def forget(self, name: str) -> None:
        """A job is gone."""

    def restarts(self, name: str, at_ms: int) -> None:
        """A job is started again, and when: wall clock."""

    def cannot_start(self, name: str, code: ExitCode, why: str) -> None:
        """A job is not even begun."""


class NoBoard:
    """Ignores it."""

    def forget(self, name: str) -> None: ...

    def restarts(self, name: str, at_ms: int) -> None: ...

    def cannot_start(self, name: str, code: ExitCode, why: str) -> None: ...


@dataclass
class Several:
    """The jobs of a process.

    files      as they were read last
    read       reads them again. Raises `SettingsInvalid` if nothing is to be changed
    carry_out  runs a job to its end, and returns its exit code
    """

    files: Files
    read: Callable[[Running], Files]
    carry_out: CarryOut
    session: SharedSession
    stop: Stop
    told: JobBoard = field(default_factory=NoBoard)
    supervisor: Supervisor = field(default_factory=Supervisor)

    def __post_init__(self) -> None:
        self._runs: dict[Path, _Run] = {}
        self._new: dict[Path, CommonJob] = {}
        self._started = 0
        self._reload = self._stopping = self._is_ready = False
        self._hurried_s: float | None = None

    def run(self) -> ExitCode:
        """Returns once all have ended: the exit code of the first that failed, in the order of the files.

        If none has, that of one that was stopped before it was done. If Spark's JVM has ended, or has no executors,
        that of one that another start may help: the others must not keep the process down.
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
        """Returns the exit code of a file's job; None if it was not begun any more."""
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
        """Whether all are to stop, since a moment ago, too, or no job could run."""
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
        """Whether no run of another file, which is about to end, has the name or the checkpoint of a job."""
        others = [run.job for at, run in self._runs.items() if run.runs and at != file]
        return all(job.job_name != other.job_name and job.checkpoint != other.checkpoint for other in others)

    def _start(self, file: Path, job: CommonJob, wait_s: float | None = None) -> None:
        self._started += 1
        request = self.stop.of_one(self._started)
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
            if share.due_s is None:  # a job that was not begun has not asked
                share.restart_ms(run.code)
            if (due_s := share.due_s) is not None:
                wait_s = max(due_s - time.monotonic(), 0.0)
                self.told.restarts(name, wall_ms() + round(wait_s * 1000))
                log.info("is started again in %.0f s", wait_s)

    def _read_again(self) -> None:
        """Does what the files say now; a file that was wrong and is gone, or is valid, is not reported any more."""
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
        """Says that the job of a file cannot be started, as if it had failed."""
        with of_job(wrong.name):
            log.error("is not started: %s is wrong: %s", file, wrong)
        self.told.cannot_start(wrong.name, ExitCode.BAD_JOB_FILE, f"{file}: {wrong}")

    def _forget(self, names: Iterable[str]) -> None:
        """Forgets those of these names that no job has any more, and no wrong file."""
        jobs = [*(run.job for run in self._runs.values()), *self._new.values()]
        known = {*(job.job_name for job in jobs), *(wrong.name for wrong in wrong_of(self.files).values())}
        for name in names:
            if name not in known:
                self.told.forget(name)

    def _hung_up(self) -> None:
        self._reload = True

    def _hurry(self) -> None:
        self._hurried_s = time.monotonic()
        for run in self._runs.values():
            run.request.hurry()


def _say(job: CommonJob, line: str, level: int = logging.INFO) -> None:
    with of_job(job.job_name):
        log.log(level, "%s", line)
