"""A real PostgreSQL server in a folder of its own, with a password; killed and started again by tests.

PostgreSQL refuses to run as root: then it runs as `postgres`, the user of Debian's package.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from deploy.broker.lifeline import free_port
from tests.support.waiting import wait_until

PASSWORD = "a-secret: of/these@tests"
QUOTED = "a-secret%3A%20of%2Fthese%40tests"


def program(name: str) -> str:
    """Where it is: Debian keeps the programs of each version in a folder of its own."""
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    assert found is not None, f"{name} is missing: run tests/install-postgresql.sh (Debian: apt-get install postgresql)"
    return found


@dataclass
class PostgresServer:
    """A server, and how its processes are started."""

    folder: Path
    port: int
    as_user: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def url(self, database: str = "postgres", password: str = QUOTED) -> str:
        """Of a database."""
        return f"postgresql://teacup:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"test_{uuid4().hex}"
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self.url(name)

    def start(self) -> None:
        """Until it answers."""
        settings = (
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "max_connections=60",
            "fsync=off",
        )
        command = [program("postgres"), "-D", str(self.folder / "data"), "-p", str(self.port)]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *(f"--{each}" for each in settings)], stdout=log, stderr=log, **self.as_user
            )
        wait_until(self._answers)

    def kill(self) -> None:
        """kill -9 of the server; its other processes notice, and end."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        psutil.wait_procs(children, timeout=60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.log").read_text()
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"))
        try:
            engine.connect().close()
        except OperationalError:
            return False
        finally:
            engine.dispose()
        return True


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Started; killed at the end, and its folder removed."""
    folder = Path(tempfile.mkdtemp(prefix="teacup-postgresql-"))
    as_user: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)
    password = folder / "password"
    password.write_text(PASSWORD)
    password.chmod(0o644)
    server = PostgresServer(folder, free_port(), as_user)
    try:
        made = [program("initdb"), "-D", str(folder / "data"), "-U", "teacup", "--pwfile", str(password), "-N"]
        subprocess.run(
            [*made, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"], check=True, capture_output=True, **as_user
        )
        server.start()
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
        shutil.rmtree(folder)
