"""A Spark standalone cluster on this machine: a master and its workers, each a "machine" with folders of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from deploy.broker.lifeline import free_port
from tests.support.leftovers import kill_session, kill_session_with_us

_SPARK = Path(pyspark.__file__).parent / "bin"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class Standalone:
    """url: of its master. folder: for its log, and for a folder of each machine.

    A machine is the session of its worker: executors and their Python workers end with it. It has its own temporary
    folder, and so its own windows.
    """

    def __init__(self, folder: Path, machines: int = 1, cores: int = 2, options: str = "") -> None:
        """With this many machines of `cores` each. options: Java's, of the master (`SPARK_MASTER_OPTS`)."""
        self._port = free_port()
        port = str(self._port)
        self.url = f"spark://127.0.0.1:{port}"
        self._folder, self._sessions, self._options = folder, list[subprocess.Popen[bytes]](), options
        self._of_master = [_MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", "0"]
        self._start_master()
        for _ in range(machines):
            self.add(cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for session in reversed(self._sessions):
            kill_session(session.pid)
            session.wait()

    def add(self, cores: int) -> None:
        """One more machine."""
        folder = self._folder / f"machine-{len(self._sessions)}"
        resources = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / "work"), "--webui-port", "0"]
        self._start(folder, [_WORKER, self.url, *resources])

    def runs(self, process: int) -> bool:
        """Whether one of its machines runs this process."""
        return os.getsid(process) in [session.pid for session in self._sessions[1:]]

    def executors(self) -> list[int]:
        """Their JVMs."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if "CoarseGrainedExecutorBackend" in line and self.runs(process.pid):
                found.append(process.pid)
        return found

    def lose(self, process: int) -> None:
        """Kill all that runs on the machine of this process. ValueError if no machine of this cluster runs it."""
        if not self.runs(process):
            raise ValueError(f"process {process}, of session {os.getsid(process)}, runs on no machine of this cluster")
        kill_session(os.getsid(process))

    def restart_master(self) -> None:
        """Kill the master, and start one at the same address: it knows of workers and applications what it has kept."""
        kill_session(self._sessions[0].pid)
        self._start_master()
        self._sessions[0] = self._sessions.pop()

    def _start_master(self) -> None:
        """Return once it accepts connections: a job that comes earlier is refused. AssertionError if it ends."""
        self._start(self._folder / "master", self._of_master)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
            except ConnectionRefusedError:
                log = self._folder / "cluster.log"
                assert self._sessions[-1].poll() is None, f"the master ended: {log.read_text()}"
                time.sleep(0.05)
            else:
                return

    def _start(self, folder: Path, command: Sequence[str]) -> None:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        with (self._folder / "cluster.log").open("a") as log:
            process = subprocess.Popen(
                [str(_SPARK / "spark-class"), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(folder / "tmp"), "SPARK_MASTER_OPTS": self._options},
                start_new_session=True,
            )
        kill_session_with_us(process.pid)
        self._sessions.append(process)

    def submit(self, program: Path, *options: str) -> list[str]:
        """A `spark-submit` of the program; its arguments follow."""
        conf = ["--master", self.url, "--conf", "spark.driver.host=127.0.0.1"]
        return [str(_SPARK / "spark-submit"), *conf, *options, str(program)]
