"""Which processes are ended once a query is planned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from teacup.spark.java import MODULES, end_planners

SLEEPS = "import time; time.sleep(60)"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two that look like Spark's, one that plans batches, and one with other arguments; all are our children."""
    commands = [("pyspark.daemon", name) for name in MODULES]
    commands += [("pyspark.sql.streaming.python_streaming_source_runner",), ("pyspark.daemon", "pyspark.worker")]
    processes = [subprocess.Popen([sys.executable, "-c", SLEEPS, *words]) for words in commands]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_only_the_planners_of_this_jvm_are_ended(started: list[subprocess.Popen[bytes]]) -> None:
    """Those of another one are its own; what plans batches and what carries them out stays."""
    assert end_planners(os.getppid()) == []

    ended = end_planners(os.getpid())

    assert sorted(ended) == sorted(process.pid for process in started[:2])
    assert [process.wait(10) for process in started[:2]] == [-signal.SIGTERM] * 2
    assert [process.poll() for process in started[2:]] == [None, None]


def test_processes_that_the_system_hides_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `hidepid`."""

    def refused(path: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_text", refused)

    assert end_planners(os.getpid()) == []
