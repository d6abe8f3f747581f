"""A Redis server of a test's own, in a folder; `tests/install-redis.sh` installs it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import redis

from deploy.broker.lifeline import free_port
from tests.support.waiting import wait_until

SOUND = {"appendonly": "yes", "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction"}
AT_ONCE = {"repl-diskless-sync-delay": "0"}
"""A replica is not kept waiting for others that may come."""


class RedisProcess:
    """A server that may be killed and started again; it keeps port and folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, **settings: str) -> None:
        self.folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self.port = free_port()
        self.settings = SOUND | AT_ONCE | {name.replace("_", "-"): value for name, value in settings.items()}
        self._tls = "tls-cert-file" in self.settings
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, more: str = "") -> str:
        """Of its database 0."""
        return f"redis://127.0.0.1:{self.port}/0{more}"

    def start(self) -> None:
        """Returns once it answers, with what it has loaded."""
        binary = shutil.which("redis-server")
        assert binary, "redis-server is missing: run tests/install-redis.sh"
        self.folder.mkdir(exist_ok=True)
        ports = {"port": "0", "tls-port": str(self.port)} if self._tls else {"port": str(self.port)}
        settings = {**ports, "bind": "127.0.0.1", "dir": str(self.folder), **self.settings}
        command = [binary, *(word for name, value in settings.items() for word in (f"--{name}", value))]
        with (self.folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        wait_until(self._listens)

    def kill(self) -> None:
        """With SIGKILL, and with it the process that rewrites its log: it would keep connections open."""
        assert self._process is not None
        rewriting = psutil.Process(self._process.pid).children()
        self.end(signal.SIGKILL)
        for child in rewriting:
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def end(self, with_signal: int = signal.SIGTERM) -> None:
        """Returns once it is gone."""
        assert self._process is not None
        self._process.send_signal(with_signal)
        if with_signal == signal.SIGKILL:
            self._process.send_signal(signal.SIGCONT)
        self._process.wait(60)
        self._process = None

    def wipe(self) -> None:
        """It loses everything, and goes on."""
        with self.client() as client:
            client.flushall()

    def pause(self) -> None:
        """It accepts connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """At the end of a test."""
        if self._process is not None:
            self.kill()

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A look at the server past the back end."""
        with redis.Redis(port=self.port) as client:
            yield client

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "redis.log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return self._tls or connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


@contextmanager
def redis_process(
    folder: Path, environment: Mapping[str, str] | None = None, **settings: str
) -> Iterator[RedisProcess]:
    """Started, and killed in the end; settings as in redis.conf, with _ for -."""
    process = RedisProcess(folder, environment, **settings)
    try:
        process.start()
        yield process
    finally:
        process.stop()
