"""What an operator sees of a job whose processes are killed, as by the kernel for lack of memory."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joins.plan.reader import SMALL_BATCH
from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS, fill
from tests.deploy.jobs.processes import JVM, first, workers
from tests.support.jobprocess import JobProcess
from tests.support.leftovers import of_session
from tests.support.waiting import wait_until

Job = Callable[..., dict[str, Any]]


BACKLOG = SMALL_BATCH
"""Left records; with right their batch is no small one."""


def logged(job: JobProcess) -> list[str]:
    """What the job has logged, but for the line that sums it up, and what librdkafka, Spark and the JVM say besides."""
    others = ("teacup.kafka", '"logger":"org.apache.spark', "incubator modules", '"event": "end"')
    return [line for line in job.logged().splitlines() if not any(other in line for other in others)]


@pytest.fixture
def content(window_job: Job) -> dict[str, Any]:
    """Of the job file of a live job, with a backlog of several tasks."""
    content = window_job()
    del content["trigger"]  # it would end when all is read
    fill(content["kafka"], content, BACKLOG)
    return content


@pytest.fixture
def running(content: dict[str, Any], tmp_path: Path, plain_java: None) -> Iterator[JobProcess]:
    """It has written a batch."""
    job = JobProcess(tmp_path, content)
    try:
        job.until(lambda: job.lines, "a batch")
        yield job
    finally:
        job.kill()


def test_a_job_goes_on_without_what_it_does_not_need(running: JobProcess, content: dict[str, Any]) -> None:
    """It has no process to plan batches. Of the workers of a backlog one is left for small batches: they would take
    turns, each with windows and producers of its own. A killed worker is reported with the number of those killed so
    far, in JSON as the job's other lines."""
    assert len(workers(running)) == 2

    start = START_MS + BACKLOG * 1_000
    while len(workers(running)) > 1:
        fill(content["kafka"], content, 10, start)
        start += 10_000
        batches = len(running.lines)
        running.until(lambda batches=batches: len(running.lines) > batches, "another batch")
    (worker,) = workers(running)

    os.kill(worker, signal.SIGKILL)
    running.until(lambda: "so far" in running.logged(), "the warning")
    assert running.stop() == ExitCode.DONE

    (warning,) = (line for line in logged(running) if "so far" in line)
    assert f"a Python worker (process {worker}) was killed by SIGKILL" in json.loads(warning)["message"]


def test_a_killed_jvm_is_one_line_and_leaves_no_process(running: JobProcess) -> None:
    """Not the connections that it broke, with their tracebacks."""
    jvm = first(running, JVM)

    os.kill(jvm, signal.SIGKILL)

    assert running.ended() == ExitCode.FAILED
    (error,) = [line for line in logged(running) if json.loads(line)["level"] == "error"]
    assert f"JvmEnded: Spark's JVM (process {jvm}) was killed by SIGKILL" in error
    wait_until(lambda: not list(of_session(running.process.pid)))  # they notice that the JVM is gone
