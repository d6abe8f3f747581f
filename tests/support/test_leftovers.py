"""An interrupted test run leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
MARK = "TEACUP_TEST_OF_LEFTOVERS"

# As with Spark: a driver whose child and grandchild have their own process groups, and get no signal of ours.
JOB = """
import os, signal, subprocess, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
depth = len(sys.argv)
if depth > 2:
    os.setpgid(0, 0)
if depth < 4:
    subprocess.Popen([sys.executable, *sys.argv, "deeper"])
time.sleep(600)
"""
TEST = f"""
import sys, time
from deploy.broker.broker import Broker
from tests.support.jobprocess import JobProcess

def test_that_is_interrupted(tmp_path):
    with Broker():
        (tmp_path / "stand_in.py").write_text({JOB!r})
        JobProcess(tmp_path, {{}}, command=(sys.executable, str(tmp_path / "stand_in.py")))
        time.sleep(600)
"""
POOL = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from tests.support.leftovers import end_with_parent

if __name__ == "__main__":
    with ProcessPoolExecutor(2, get_context("spawn"), initializer=end_with_parent) as pool:
        list(pool.map(time.sleep, [600, 600]))
"""


def marked(mark: str) -> dict[int, str]:
    """The processes that have the mark in their environment, and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def interrupted(command, number, started):
    """Run the command, and send it the signal once `started` accepts its processes; all of them must end."""
    mark = uuid.uuid4().hex
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: run.poll() is not None or started(marked(mark)), lambda: f"not started: {marked(mark)}", 300)
        assert run.poll() is None, f"it ended with {run.returncode} before anybody interrupted it"
        run.send_signal(number)
        run.wait(300)  # a machine that is busy with other tests takes its time

        wait_until(lambda: not marked(mark), lambda: f"left behind: {marked(mark)}")
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_test_run_that_is_interrupted_leaves_no_process_behind(tmp_path: Path, number: int) -> None:
    """Ctrl-C, a SIGTERM, which ends Python at once, and kill -9: the broker, and every process of a job."""
    (tmp_path / "test_inner.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]

    def started(processes: dict[int, str]) -> bool:
        said = list(processes.values())
        return sum("stand_in.py" in command for command in said) == 3 and any("java" in command for command in said)

    interrupted(command, number, started)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_crash_matrix_that_is_interrupted_leaves_no_process_behind(tmp_path: Path, number: int) -> None:
    """Its runs are processes of a pool, which would wait for work for ever."""
    script = tmp_path / "pool.py"
    script.write_text(POOL)

    interrupted([sys.executable, str(script)], number, lambda processes: len(processes) >= 4)
