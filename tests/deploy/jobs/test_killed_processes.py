"""What an operator sees of a job whose processes are killed, as by the kernel for lack of memory."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deploy.spark.planners import MODULES
from kafkaio.exitcode import ExitCode
from tests.deploy.jobs.filling import fill
from tests.support.jobprocess import JobProcess
from tests.support.leftovers import of_session
from tests.support.waiting import wait_until

Job = Callable[..., dict[str, Any]]


def processes(job: JobProcess, what: str) -> list[int]:
    """Those of the job with this in their command line."""
    found = []
    for pid in sorted(of_session(job.process.pid)):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if what in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


@pytest.fixture
def running(window_job: Job, tmp_path: Path, plain_java: None) -> Iterator[JobProcess]:
    """A live job that has written a batch."""
    content = window_job()
    del content["trigger"]  # it would end when all is read
    fill(content["kafka"], content)
    job = JobProcess(tmp_path, content)
    try:
        job.until(lambda: job.lines, "a batch")
        yield job
    finally:
        job.kill()


def test_what_has_planned_the_query_ends_and_the_job_goes_on(running: JobProcess) -> None:
    """They take a seventh of the job's memory, and Spark would keep them."""
    wait_until(lambda: not [pid for name in MODULES for pid in processes(running, name)], within_s=10)

    assert processes(running, "python_streaming_source_runner")
    assert running.stop() == ExitCode.DONE
    assert running.logged().count("\n") == running.logged().count("incubator modules") + 1, "only that it stops"


def test_a_killed_jvm_is_one_line_and_leaves_no_process(running: JobProcess) -> None:
    """Not the connections that it broke, with their tracebacks."""
    jvm, *_its_forks = processes(running, "SparkSubmit")

    os.kill(jvm, signal.SIGKILL)

    assert running.ended() == ExitCode.FAILED
    errors = running.logged().splitlines()
    assert f"JvmEnded: Spark's JVM (process {jvm}) was killed by SIGKILL" in errors[-1]
    assert not [line for line in errors[:-1] if "teacup.kafkaio" not in line and "incubator modules" not in line]
    wait_until(lambda: not list(of_session(running.process.pid)), within_s=10)  # they notice that the JVM is gone


def test_a_killed_planner_is_named(running: JobProcess) -> None:
    """Spark's own message has neither a process nor a cause."""
    planner, *_its_forks = processes(running, "python_streaming_source_runner")

    os.kill(planner, signal.SIGKILL)

    assert running.ended() == ExitCode.FAILED
    assert "the process that plans batches was killed" in running.logged().splitlines()[-1]
    wait_until(lambda: not list(of_session(running.process.pid)), within_s=10)  # they notice that the JVM is gone


def test_a_killed_worker_is_reported_and_the_job_goes_on(running: JobProcess) -> None:
    """With the number of workers killed so far, in JSON as the job's other lines."""
    _daemon, *workers = processes(running, "pythondaemon")

    os.kill(workers[-1], signal.SIGKILL)
    running.until(lambda: "so far" in running.logged(), "the warning")

    line = json.loads(next(line for line in running.logged().splitlines() if "so far" in line))
    assert f"a Python worker (process {workers[-1]}) was killed by SIGKILL" in line["message"]
    assert running.stop() == ExitCode.DONE
