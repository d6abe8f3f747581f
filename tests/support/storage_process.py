"""The server as users run it: `teacup storage serve`, in a process of its own, on LMDB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from deploy.broker.ports import free_port
from storage.api.config import WRITE_TOKEN_VARIABLE
from storage.client import StorageClient
from tests.support.api import ready_process

TOKEN = "a-token-of-this-test-alone"


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
    command = [sys.executable, "-m", "deploy.cli", "storage", "serve", str(folder / "storage.yaml")]
    url = f"http://127.0.0.1:{port}"
    with ready_process(command, {WRITE_TOKEN_VARIABLE: TOKEN}, folder / "server.log", url) as running:
        yield running, url


def client(url: str, **more: Any) -> StorageClient:
    """With the token of the process."""
    return StorageClient(url, TOKEN, **more)
