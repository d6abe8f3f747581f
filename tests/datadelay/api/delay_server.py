"""A real server on a free port, in this process, with a clock that tests set by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from datadelay.api.app import create_app
from datadelay.api.config import DelayServeConfig
from datadelay.api.store import DelayStore
from datadelay.client import DelayClient
from httpapi.server.auth import Scope, Tokens, new_token

NOON_MS = 1_795_176_000_000
"""2026-11-20T12:00:00Z."""


@dataclass
class Clock:
    """A clock that moves only when set."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class RunningServer:
    """Where the server listens, and the tokens for it."""

    url: str
    clock: Clock
    secrets: dict[str, str]
    config: DelayServeConfig
    clients: list[DelayClient] = field(default_factory=list)

    def client(self, who: str | None = "writer", **more: Any) -> DelayClient:
        """A client with the token of `reader`, `writer` or nobody; closed with the server."""
        made = DelayClient(self.url, None if who is None else self.secrets[who], **more)
        self.clients.append(made)
        return made

    def headers(self, who: str = "writer") -> dict[str, str]:
        """The authorization header with somebody's token."""
        return {"Authorization": f"Bearer {self.secrets[who]}"}


@contextmanager
def running_server(directory: Path, **settings: Any) -> Iterator[RunningServer]:
    """Start a server on a database in `directory`; stop it at the end."""
    config = DelayServeConfig(database=f"sqlite:///{directory / 'delay.db'}", **settings)
    reader_secret, reader = new_token("reader", [Scope.READ])
    writer_secret, writer = new_token("writer", [Scope.READ, Scope.WRITE])
    clock = Clock()
    store = DelayStore.open(
        config.database,
        retention_ms=round(config.history_retention_s * 1000),
        max_points=config.history_max_points,
    )
    with store, socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(store, Tokens((reader, writer), config.anonymous), config, clock)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running = RunningServer(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            clock,
            {"reader": reader_secret, "writer": writer_secret},
            config,
        )
        try:
            yield running
        finally:
            for client in running.clients:
                client.close()
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not stop"
