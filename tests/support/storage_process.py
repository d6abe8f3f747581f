"""The server on LMDB: as users run it, `teacup storage serve` in a process of its own, and in the test's process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from deploy.broker.lifeline import free_port
from teacup.base.now import wall_ms
from teacup.http.server.auth import Token, Tokens
from teacup.storage.api.app import create_app
from teacup.storage.api.config import WRITE_TOKEN_VARIABLE, StorageServeConfig
from teacup.storage.backends.opening import open_backend
from teacup.storage.client import StorageClient
from tests.support.api import ready_process, served

TOKEN = "a-token-of-this-test-alone"


@contextmanager
def server_process(
    folder: Path,
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    **settings: Any,
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Ready to answer; killed in the end. Its log is `server.log` in the folder.

    before   what the command begins with
    """
    port = port or free_port()
    config = _config(folder, port=port, **settings)
    (folder / "storage.yaml").write_text(yaml.safe_dump(config))
    command = [*before, sys.executable, "-m", "deploy.cli", "storage", "serve", str(folder / "storage.yaml")]
    url = f"http://127.0.0.1:{port}"
    variables = {WRITE_TOKEN_VARIABLE: TOKEN, **(environment or {})}
    with ready_process(command, variables, folder / "server.log", url) as running:
        yield running, url


@contextmanager
def server_here(folder: Path, port: int = 0, **settings: Any) -> Iterator[str]:
    """The same with the same token, for tests that do not kill it: no process has to start."""
    config = StorageServeConfig.model_validate(_config(folder, **settings))
    token = Token("test", frozenset({"read", "write"}), sha256(TOKEN.encode()).hexdigest())
    backend = open_backend(config.store, [namespace.namespace for namespace in config.namespaces])
    with served(create_app(backend, Tokens((token,)), config, wall_ms), config, port) as url:
        yield url


def _config(folder: Path, **settings: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    namespaces = [{"name": "latest"}, {"name": "all", "keep": "all", "bound": 8}]
    return {"store": f"lmdb://{folder / 'store'}", "namespaces": namespaces, **settings}


def client(url: str, **more: Any) -> StorageClient:
    """With the token of the process."""
    return StorageClient(url, TOKEN, **more)
