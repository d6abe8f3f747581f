"""How a process ended, in words; and what the daemon says of workers that were killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from teacup.spark.java import how_ended
from tests.support.signals import ignores
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "ended with exit code 3"),
        (-signal.SIGABRT, "was killed by SIGABRT"),
        (-40, "was killed by signal 40"),
        (
            -signal.SIGKILL,
            "was killed by SIGKILL, by the kernel for lack of memory unless somebody did",
        ),
    ],
)
def test_how_a_process_ended_is_said_in_words(code: int, words: str) -> None:
    """Only of SIGKILL the kernel is suspected."""
    assert how_ended(code) == words


class Daemon:
    """Spark's daemon as the JVM sees it: a port that gives workers, and a pipe for the numbers of those to kill."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "teacup.spark.worker_daemon", "pyspark.worker"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self.process.stdout is not None
        self._port = int.from_bytes(self.process.stdout.read(4), "big")
        self._connections: list[socket.socket] = []

    def worker(self) -> int:
        """A new one; its process id.

        It gives that before it takes signals as a worker does: until then the SIGHUP of an ending daemon passes by it.
        """
        connection = socket.create_connection(("127.0.0.1", self._port))
        self._connections.append(connection)
        pid = int.from_bytes(connection.recv(4), "big")
        wait_until(lambda: not ignores(pid, signal.SIGHUP))
        return pid

    def kill(self, pid: int) -> None:
        """As Spark does with a worker that it no longer needs."""
        assert self.process.stdin is not None
        self.process.stdin.write(pid.to_bytes(4, "big"))
        self.process.stdin.flush()

    def ended(self) -> str:
        """What it has written to standard error."""
        return self.process.communicate(timeout=60)[1].decode()

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Its own process."""
    with closing(Daemon()) as running:
        yield running


def gone(pid: int) -> None:
    """Wait until the process has ended, and its parent has noticed."""
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def test_killed_workers_are_reported_once_a_minute(daemon: Daemon) -> None:
    """By signal; the second within a minute is held back."""
    first, second = daemon.worker(), daemon.worker()

    for pid in (first, second):
        os.kill(pid, signal.SIGKILL)
        gone(pid)

    (line,) = daemon.ended().splitlines()
    assert f" WARNING a Python worker (process {first}) was killed by SIGKILL, by the kernel" in line
    assert "; 1 so far." in line


def test_workers_that_spark_ends_are_not_reported(daemon: Daemon) -> None:
    """Idle ones, and those of cancelled tasks; and all others when it ends."""
    first, _ = daemon.worker(), daemon.worker()

    daemon.kill(first)
    gone(first)

    assert daemon.ended() == ""


COUNTING = """
import os, signal, time
from teacup.spark.worker_daemon import Workers

workers = Workers()
workers.watch()

def fork(do):
    pid = os.fork()
    if pid == 0:
        do()
        os._exit(0)
    return pid

def wait(number):
    while workers.running() != number:
        time.sleep(0.01)

told, tell = os.pipe()  # a worker may run before it is counted
first = fork(lambda: time.sleep(60))
second = fork(lambda: (os.read(told, 1), wait(1), print("in a worker:", workers.running(), flush=True)))
third = fork(lambda: os.waitpid(fork(lambda: None), 0))
wait(2)
os.write(tell, b"go")
os.kill(first, signal.SIGKILL)
wait(0)
print("in the daemon:", workers.running())
"""


def test_the_daemon_counts_its_workers() -> None:
    """Each of them sees how many are left, whether they end or are killed; what a worker forks does not count."""
    counting = [sys.executable, "-c", COUNTING]

    done = subprocess.run(counting, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.splitlines() == ["in a worker: 1", "in the daemon: 0"], done.stderr
