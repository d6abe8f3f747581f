"""A real server on a free port, in this process, on a store that tests choose, with a clock that they set by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from httpapi.server.auth import Tokens, new_token
from storage.api.app import create_app
from storage.api.config import StorageServeConfig
from storage.client import StorageClient
from storage.model import Backend, Item

NOON_MS = 1_795_176_000_000
"""2026-11-20T12:00:00Z."""

NAMESPACES = (
    {"name": "latest"},
    {"name": "all", "keep": "all", "bound": 3, "max_value_bytes": 1_000},
    {"name": "kept", "keep": "all", "bound": 3, "retention_ms": 60_000},
)
SCOPES = {
    "reader": ["read"],
    "writer": ["read", "write"],
    "only-all": ["all:read", "all:write"],
    "reads-all": ["all:read"],
}


@dataclass
class Clock:
    """A clock that moves only on demand."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class RunningServer:
    """Where the server listens, and how to get in."""

    url: str
    clock: Clock
    secrets: dict[str, str]
    config: StorageServeConfig
    backend: Backend
    clients: list[StorageClient] = field(default_factory=list)

    def client(self, who: str | None = "writer", **more: Any) -> StorageClient:
        """A client with somebody's token; closed with the server."""
        made = StorageClient(self.url, None if who is None else self.secrets[who], **more)
        self.clients.append(made)
        return made

    def headers(self, who: str = "writer") -> dict[str, str]:
        """The header of somebody's token."""
        return {"Authorization": f"Bearer {self.secrets[who]}"}


def item(key: bytes = b"key", version: int = 1, tag: bytes = b"", value: bytes = b"value", **more: Any) -> Item:
    """An item that lives for an hour from noon on."""
    return Item(key, version, tag, value, more.get("expires_at_ms", NOON_MS + 3_600_000))


def config_of(**settings: Any) -> StorageServeConfig:
    """A configuration with the namespaces of these tests."""
    values = {"store": "lmdb:///unused", "namespaces": NAMESPACES, **settings}
    return StorageServeConfig.model_validate(values)


@contextmanager
def running_server(backend: Backend, **settings: Any) -> Iterator[RunningServer]:
    """Start a server on a back end, which it closes; stop it in the end."""
    config = config_of(**settings)
    made = {name: new_token(name, scopes) for name, scopes in SCOPES.items()}
    clock = Clock()
    tokens = Tokens(tuple(token for _, token in made.values()), config.anonymous)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(backend, tokens, config, clock)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running = RunningServer(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            clock,
            {name: secret for name, (secret, _) in made.items()},
            config,
            backend,
        )
        try:
            yield running
        finally:
            for client in running.clients:
                client.close()
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not stop"
