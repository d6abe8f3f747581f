"""`teacup run` in the test's own process, on the Spark of all tests: a whole job without a JVM of its own.

Everything is as in a process of its own (`jobprocess`), from the job file to the exit code, except for the session and
for standard error: what the job logs is in `caplog`. Use a process where something is killed, or where a signal, the
start of Spark or its log matters. A job that must not run asks for no session, and then none is started.
"""

from __future__ import annotations

import io
import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.jobfile.job import CommonJob, JoinJob
from deploy.jobfile.kinds import Consent
from deploy.jobfile.load import load_job
from deploy.jobs import host, runner
from deploy.jobs.stopping import Stop
from deploy.jobs.unjoined import run as verdicts
from deploy.kinds.job_kind import kind_of
from deploy.watch.lines import Lines
from deploy.watch.watched import watched
from teacup.base.errors import ExitCode
from teacup.spark.cluster import Executors
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEADLINE_S = 480.0


class Shared:
    """Takes the place of `teacup.spark.session.Session`: a session that others use, too."""

    def __init__(self, spark: Callable[[], SparkSession]) -> None:
        self._spark = spark

    @property
    def spark(self) -> SparkSession:
        """Started at the first need."""
        return self._spark()

    def warm_up(self) -> None:
        """Its workers run."""

    def executors(self) -> Executors:
        """The driver is the only one."""
        return Executors(1)

    def give_up(self) -> None:
        """It never does."""

    def ended(self) -> None:
        """Not by a job."""

    def close(self) -> None:
        """It stays."""


@dataclass
class Ran:
    """A job's exit code, once it has ended, and the JSON objects that it has printed so far."""

    code: ExitCode | None = None
    out: io.StringIO = field(default_factory=io.StringIO)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines(keepends=True) if line.endswith("\n")]


class JobsHere:
    """Runs jobs, one at a time or side by side; each from a job file that is written into `folder`."""

    def __init__(self, folder: Path, spark: Callable[[], SparkSession]) -> None:
        self._folder, self._spark = folder, spark

    def run(self, content: Mapping[str, Any], **consent: bool) -> Ran:
        """Until the job ends by itself."""
        ran = Ran()
        with Stop() as stop:
            ran.code = self._run(content, ran, stop, **consent)
        return ran

    def run_job(self, job: CommonJob) -> Ran:
        """A job that is loaded already, until it ends by itself."""
        ran = Ran()
        with Stop() as stop:
            ran.code = self._run_loaded(job, ran, stop)
        return ran

    def unjoined(self, content: Mapping[str, Any]) -> Ran:
        """`teacup unjoined`, until nothing is left to judge."""
        ran, job = Ran(), self._loaded(content)
        assert isinstance(job, JoinJob)
        with Stop() as stop:
            ran.code = verdicts.run_unjoined(job, Lines(as_json=True, out=ran.out), stop)
        return ran

    @contextmanager
    def running(self, content: Mapping[str, Any]) -> Iterator[Running]:
        """In a thread of its own; what still runs in the end is stopped by SIGTERM."""
        ran = Ran()
        self._spark()  # here, as fixtures belong to the main thread
        with Stop() as stop:

            def run() -> None:
                ran.code = self._run(content, ran, stop)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            running = Running(ran, thread)
            try:
                yield running
            finally:
                if thread.is_alive():
                    running.stop()

    @contextmanager
    def failed_tasks(self) -> Iterator[list[int]]:
        """The stages, each as often as one of its tasks fails meanwhile; filled at the end."""
        found: list[int] = []
        begin = self._new_stage()
        yield found
        tracker = self._spark().sparkContext.statusTracker()
        for stage in range(begin, self._new_stage()):
            if (info := tracker.getStageInfo(stage)) is not None:
                found += [stage] * info.numFailedTasks

    def _new_stage(self) -> int:
        """The number that Spark gives to a stage now."""
        context, group = self._spark().sparkContext, uuid.uuid4().hex
        context.setJobGroup(group, "asks for a number")
        try:
            context.parallelize([0], 1).count()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        (job,) = context.statusTracker().getJobIdsForGroup(group)
        info = context.statusTracker().getJobInfo(job)
        assert info is not None
        return int(max(info.stageIds))

    def _run(self, content: Mapping[str, Any], ran: Ran, stop: Stop, **consent: bool) -> ExitCode:
        return self._run_loaded(self._loaded(content), ran, stop, **consent)

    def _run_loaded(self, job: CommonJob, ran: Ran, stop: Stop, **consent: bool) -> ExitCode:
        kind = kind_of(job, Consent(**consent))
        with watched(job, kind.name, Lines(as_json=True, out=ran.out)) as listener:
            return runner.run(kind, listener, stop)

    def _loaded(self, content: Mapping[str, Any]) -> Any:
        path = self._folder / "job.yaml"
        path.write_text(yaml.safe_dump({"log": "json", **content}))
        return load_job(path)


class Running:
    """A job that runs beside the test."""

    def __init__(self, ran: Ran, thread: threading.Thread) -> None:
        self._ran, self._thread = ran, thread

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has printed so far."""
        return self._ran.lines

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until the condition holds; AssertionError if the job ends before that, or on a time-out."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self._thread.is_alive(), f"ended with {self._ran.code!r} before: {what}"
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.05)

    def stop(self) -> ExitCode | None:
        """By a signal to this process; the exit code."""
        signal.raise_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> ExitCode | None:
        """The exit code."""
        wait_until(lambda: not self._thread.is_alive(), lambda: "the job did not end", DEADLINE_S)
        return self._ran.code


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobsHere:
    """`here.run(content)`: the job of this content, run in this process until it ends."""

    def spark() -> SparkSession:
        found: SparkSession = request.getfixturevalue("spark")
        return found

    for module in (host, verdicts):
        monkeypatch.setattr(module, "Session", lambda *_, **__: Shared(spark))
    return JobsHere(tmp_path, spark)
