"""A job is stopped cleanly at any moment, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import fill
from tests.support.jobprocess import records
from tests.support.leftovers import kill_session, kill_session_with_us, of_session
from tests.support.provenance import left_of
from tests.support.signals import catches, ignores
from tests.support.waiting import wait_until

HOSTILE = {"deploy/__init__.py": "raise SystemExit('not ours')", "grp.py": "raise SystemExit('not ours')"}
"""What the folder of a user may hold, whose names are also those of our package and of a module of Python's."""

START = "from deploy.cli.__main__ import main; main()"
"""As the console script does it: unlike `-m`, it looks for no module in the current folder."""

WITHIN_S = 480.0


@pytest.fixture
def job_file(kafka, topic_factory, tmp_path):
    """A job that waits for records, in a folder with files that are not ours."""
    for name, content in HOSTILE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    job = {
        "name": f"stopped-{tmp_path.name}",
        "kind": "window-join",
        "kafka": kafka,
        "left": {"topic": topic_factory(prefix="left")},
        "right": {"topic": topic_factory(prefix="right")},
        "join": {"before": "1s"},
        "output": {"topic": topic_factory(prefix="out")},
        "checkpoint": str(tmp_path / "checkpoint"),
        "spark": {"master": "local[2]"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def started(path: Path) -> subprocess.Popen[str]:
    """The job, once it catches signals."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START, "run", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=path.parent,
        start_new_session=True,
    )
    kill_session_with_us(process.pid)
    while not catches(process.pid, signal.SIGTERM):
        assert process.poll() is None, process.communicate()
    assert catches(process.pid, signal.SIGHUP) or ignores(process.pid, signal.SIGHUP), "it would end the job"
    return process


def stopped(path: Path, wait: Callable[[], None], number: int, *, group: bool) -> None:
    """Starts the job, waits, signals it, and checks its end."""
    process = started(path)
    wait()
    (os.killpg if group else os.kill)(process.pid, number)
    try:
        out, errors = process.communicate(timeout=WITHIN_S)
        wait_until(lambda: not list(of_session(process.pid)))  # children of the JVM notice that it is gone
    finally:
        kill_session(process.pid)

    message = f"{signal.Signals(number).name} after {wait}:\n{out}\n{errors}"
    assert process.returncode == ExitCode.DONE, message
    assert "Traceback" not in errors, message
    assert "Exception" not in errors, message
    assert len(errors.splitlines()) <= 3, message


def test_a_signal_while_the_job_starts_ends_it_cleanly(plain_java, job_file):
    """In a folder with a package `deploy` and a module `grp` of its own."""
    stopped(job_file, lambda: None, signal.SIGINT, group=True)


def test_a_signal_while_the_query_runs_ends_it_cleanly(plain_java, job_file, tmp_path):
    """In the same folder."""
    metadata = tmp_path / "checkpoint" / "metadata"

    stopped(job_file, partial(wait_until, metadata.exists, within_s=WITHIN_S), signal.SIGTERM, group=True)


def test_a_stop_before_anything_is_planned_is_no_dead_end(here, window_job, kafka, tmp_path):
    """Spark runs a batch that ends where it starts, then or at the next start: it has tasks behind the shuffle."""
    content = window_job(join={"before": "2s", "path": "shuffled", "buckets": 3})
    left, _ = fill(kafka, content)
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{}')

    assert here.run(content).code == ExitCode.DONE

    rows = [left_of(record["headers"]) for record in records(kafka, content["output"]["topic"])]
    assert len(rows) == len(set(rows)) == len(left)
    assert (tmp_path / "checkpoint" / "commits" / "0").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [False, True])
def test_at_twenty_moments(plain_java, job_file, number, group):
    """From the first handler to the tenth second."""
    for moment in range(20):
        stopped(job_file, partial(time.sleep, moment / 2), number, group=group)
