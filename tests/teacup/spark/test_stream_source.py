"""A planner ends with its connection, whatever it does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from teacup.spark.stream_source import to_jvm

PLANNER = """
import os, socket, sys, time
from teacup.spark import stream_source
stream_source.ENDS_WITHIN_S = 0.2
port, path = os.environ.get(stream_source._PORT), os.environ.get(stream_source._PATH)
family, address = (socket.AF_INET, ("127.0.0.1", int(port))) if port else (socket.AF_UNIX, path)
other = socket.create_server(("127.0.0.1", 0))
with socket.socket(family) as to_jvm:
    to_jvm.connect(address)
    stream_source.end_with_connection()
    to_jvm.sendall(b"x")
    while True:  # within a call, as a planner that an error holds
        time.sleep(0.01)
"""


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_planner_that_waits_within_a_call_ends_with_its_connection(
    tmp_path: Path, family: socket.AddressFamily
) -> None:
    """The JVM was killed, or has stopped the query; the planner's other sockets say nothing."""
    address = ("127.0.0.1", 0) if family is socket.AF_INET else str(tmp_path / "socket")
    with socket.socket(family) as jvm:
        jvm.bind(address)
        jvm.listen()
        jvm.settimeout(60)
        at = jvm.getsockname()
        named = {"PYTHON_WORKER_FACTORY_PORT": str(at[1])} if isinstance(at, tuple) else {_PATH: at}
        planner = subprocess.Popen([sys.executable, "-c", PLANNER], env={**os.environ, **named})
        try:
            connection, _ = jvm.accept()
            with connection:
                assert connection.recv(1) == b"x"
                time.sleep(0.5)
                assert planner.poll() is None

            assert planner.wait(30) == 1
        finally:
            planner.kill()
            planner.wait()


_PATH = "PYTHON_WORKER_FACTORY_SOCK_PATH"


def test_another_process_has_no_such_connection() -> None:
    """As Spark's daemons, which look at the source too, and this one."""
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()):
        assert to_jvm() is None
