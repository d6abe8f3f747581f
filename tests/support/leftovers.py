"""Everything that a test run starts ends with it, even if it is interrupted (Ctrl-C, SIGTERM, SIGKILL).

    test run --starts--> a job: its own session (driver, JVM, Python workers, zombies of killed ones)
             --starts--> its keeper: this file as a process, which notices that the run is gone and kills the session

The broker has its own keeper (`deploy.broker.lifeline`). Python workers leave their driver's process group, but not
its session. Standard library only, so that a keeper starts in 20 ms.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.3


def kill_session_with_us(session: int) -> None:
    """Let a keeper kill the session when this process is gone; the keeper ends when the session is empty."""
    subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, str(os.getpid()), str(session)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_with_parent() -> None:
    """For the initialiser of a process pool: this process ends when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    number = parent.pid  # not `getppid`: the parent may be gone already

    def watch() -> None:
        while os.getppid() == number:
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def of_session(session: int) -> Iterator[int]:
    """The live processes of a session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(state[3]) == session and state[0] != "Z":
                yield int(entry.name)


def kill_session(session: int) -> None:
    """SIGKILL to all of its processes, until none is left: new ones may have been started meanwhile."""
    while pids := list(of_session(session)):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _keep(run: int, session: int) -> None:
    while os.getppid() == run:
        if not any(of_session(session)):
            return
        time.sleep(_POLL_S)
    kill_session(session)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), int(sys.argv[2]))
