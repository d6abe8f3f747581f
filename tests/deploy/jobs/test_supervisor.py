"""What systemd hears, at a socket like its own."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.watch.supervisor import Supervisor
from teacup.base.errors import ExitCode
from tests.support.jobhere import JobsHere

Listening = tuple[socket.socket, str]


@pytest.fixture(params=["file", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listening]:
    """Its socket, and the value of NOTIFY_SOCKET."""
    name = str(tmp_path / "notify") if request.param == "file" else f"@teacup-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listening.setblocking(False)
        yield listening, name


def told(systemd: socket.socket) -> list[str]:
    """Everything so far."""
    found = []
    while True:
        try:
            found.append(systemd.recv(100).decode())
        except BlockingIOError:
            return found


def test_it_is_told_that_the_job_runs_still_runs_and_stops(systemd: Listening) -> None:
    """The watchdog is fed twice in its time, and only by the process that it watches."""
    listening, name = systemd
    env = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "2", "WATCHDOG_PID": str(os.getpid())}
    supervisor = Supervisor(env)

    supervisor.ready()
    supervisor.alive()
    supervisor.alive(stops=True)
    supervisor.alive(stops=True)

    assert told(listening) == ["READY=1", "WATCHDOG=1", "STOPPING=1", "WATCHDOG=1", "WATCHDOG=1"]
    others = Supervisor({**env, "WATCHDOG_PID": "1"})
    others.alive()
    Supervisor({**env, "WATCHDOG_USEC": "60000000"}).alive()
    assert told(listening) == []


def test_without_a_supervisor_nothing_happens(caplog: pytest.LogCaptureFixture) -> None:
    """One whose socket is gone is named in a warning."""
    Supervisor({}).ready()
    assert caplog.messages == []

    Supervisor({"NOTIFY_SOCKET": "/nowhere/notify"}).ready()
    assert "READY=1 cannot be sent to the supervisor at /nowhere/notify" in caplog.messages[0]


def test_a_job_reports_once_it_has_its_output(
    here: JobsHere, systemd: Listening, window_job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not if it must not run."""
    listening, name = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    job = window_job(trigger="available_now")

    assert here.run({**job, "output": {"topic": "nowhere-of-ours"}}).code is ExitCode.BAD_JOB_FILE
    assert told(listening) == []
    assert here.run(job).code is ExitCode.DONE
    assert told(listening) == ["READY=1"]
