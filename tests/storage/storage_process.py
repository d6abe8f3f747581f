"""The server as users run it: `teacup storage serve`, in a process of its own, on LMDB."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from storage.api.config import WRITE_TOKEN_VARIABLE
from storage.client import StorageClient

TOKEN = "a-token-of-this-test-alone"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def server_process(
    folder: Path, port: int | None = None, **settings: Any
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Ready to answer; killed in the end. Its log is `server.log` in the folder."""
    folder.mkdir(exist_ok=True)
    port = port or free_port()
    namespaces = [{"name": "latest"}, {"name": "all", "keep": "all", "bound": 8}]
    config = {"store": f"lmdb://{folder / 'store'}", "port": port, "namespaces": namespaces, **settings}
    (folder / "storage.yaml").write_text(yaml.safe_dump(config))
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "storage", "serve", str(folder / "storage.yaml")],
            env={**os.environ, WRITE_TOKEN_VARIABLE: TOKEN},
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline_s = time.monotonic() + 60
        while not is_ready(url):
            assert process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline_s, "the server did not become ready"
            time.sleep(0.05)
        yield process, url
    finally:
        process.kill()
        process.wait(10)


def is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=1).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


def client(url: str, **more: Any) -> StorageClient:
    """With the token of the process."""
    return StorageClient(url, TOKEN, **more)
