"""Starts a server of ours for a benchmark, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from benchmarks.measure import child_environment
from deploy.broker.lifeline import free_port

TOKEN = "a-token-of-this-benchmark"


@contextmanager
def running_server(program: str, token_variable: str, *arguments: str) -> Iterator[tuple[int, psutil.Process]]:
    """Starts a server that writers need `TOKEN` for; yields its port and its process before it answers.

    program         Python; its arguments are the port and then `arguments`
    token_variable  the environment variable from which the server takes the token
    """
    port = free_port()
    command = [sys.executable, "-c", program, str(port), *arguments]
    env = {**child_environment(), token_variable: TOKEN}
    server = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    try:
        yield port, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(30)
