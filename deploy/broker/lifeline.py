"""A command that dies with the process that started it, however that process ends; and free ports for such commands.

    us --(pid)--> lifeline --(fork)--> the command

The lifeline is a small Python process that checks a few times a second whether its parent is still the one that started
it, and ends the command when it is not: this also notices a SIGKILL of ours. On Linux the command also asks the kernel
for SIGKILL at the lifeline's own death. (Asking the kernel directly in our process would not work: the signal comes at
the death of the *thread* that forked, and brokers are started from short-lived threads.)

The first line on the lifeline's standard output is the pid of the command. It uses the standard library only, and is
run as a file by an interpreter with `-S -E`, so that it starts in 20 ms and needs no installed package. What only free
ports need is imported when one is asked for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

HOST = "127.0.0.1"

_POLL_S = 0.2
_GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1
_given: set[int] = set()


class Lifeline:
    """A running command that ends with this process."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Starts `command`; what it prints is appended to the file `log`."""
        with log.open("ab") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env=None if env is None else dict(env),
                start_new_session=True,  # Ctrl-C is for the job, which stops its parts in order
            )
        assert self._keeper.stdout is not None
        try:
            with self._keeper.stdout as first_line:
                answer = first_line.readline().strip()
        except BaseException:  # Ctrl-C: the caller never gets this object, so it could not end the command
            self._keeper.terminate()
            self._keeper.wait()
            raise
        if not answer:
            self._keeper.wait()
            raise OSError(f"could not start {command[0]}; see {log}")
        self.pid = int(answer)

    def running(self) -> bool:
        """Returns whether the command has not ended yet."""
        return self._keeper.poll() is None

    def exit_code(self) -> int | None:
        """Returns the exit code; None while the command runs."""
        return self._keeper.poll()

    def signal(self, number: int) -> None:
        """Sends a signal to the command itself; nothing happens if it has ended."""
        if self.running():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # it ended between the two lines

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the command to end; raises `subprocess.TimeoutExpired`."""
        return self._keeper.wait(timeout_s)

    def end(self, grace_s: float) -> None:
        """Sends SIGTERM, then SIGKILL if it is still there after the grace period. Wakes a stopped process first."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.wait()


def is_free(port: int) -> bool:
    """Returns whether a server could listen on the port now."""
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Returns a free port below those of outgoing connections, which could take it while a broker restarts.

    In one process never the same again: who was given it may not listen yet. Other processes draw other ports, whatever
    seeds the common generator.
    """
    from random import SystemRandom

    chance = SystemRandom()
    while (port := chance.randrange(15_000, 32_000)) in _given or not is_free(port):
        pass
    _given.add(port)
    return port


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep(parent: int, command: Sequence[str]) -> int:
    log = sys.stderr.fileno()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.close()
    while child.poll() is None:
        if os.getppid() != parent:
            child.send_signal(signal.SIGCONT)
            child.terminate()
            try:
                return child.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                return child.wait()
        time.sleep(_POLL_S)
    return child.returncode


if __name__ == "__main__":
    code = _keep(int(sys.argv[1]), sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)
