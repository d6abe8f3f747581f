"""A real server on a free port, in this process, on a store that tests choose, with a clock that they set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from teacup.http.server.auth import Tokens, new_token
from teacup.storage.api.app import create_app
from teacup.storage.api.config import StorageServeConfig
from teacup.storage.client import StorageClient
from teacup.storage.model import Backend, Item
from tests.support.api import NOON_MS, RunningApi, SetClock, served

NAMESPACES = (
    {"name": "latest"},
    {"name": "all", "keep": "all", "bound": 3, "max_value_bytes": 1_000},
    {"name": "kept", "keep": "all", "bound": 3, "retention": "1m"},
    {"name": "versions", "keep": "versions", "bound": 3, "retention": "1m"},
)
SCOPES = {
    "reader": ["read"],
    "writer": ["read", "write"],
    "only-all": ["all:read", "all:write"],
    "reads-all": ["all:read"],
}


@dataclass
class RunningServer(RunningApi):
    """Also its back end, and clients that are closed with it."""

    config: StorageServeConfig
    backend: Backend
    clients: list[StorageClient] = field(default_factory=list)

    def client(self, who: str | None = "writer", **more: Any) -> StorageClient:
        """A client with somebody's token; closed with the server."""
        made = StorageClient(self.url, None if who is None else self.secrets[who], **more)
        self.clients.append(made)
        return made


def item(key: bytes = b"key", version: int = 1, tag: bytes = b"", value: bytes = b"value", **more: Any) -> Item:
    """An item that lives for an hour from noon on."""
    return Item(key, version, tag, value, more.get("expires_at_ms", NOON_MS + 3_600_000))


def config_of(**settings: Any) -> StorageServeConfig:
    """A configuration with the namespaces of these tests."""
    values = {"store": "lmdb:///unused", "namespaces": NAMESPACES, **settings}
    return StorageServeConfig.model_validate(values)


@contextmanager
def running_server(backend: Backend, clock: SetClock | None = None, **settings: Any) -> Iterator[RunningServer]:
    """Start a server on a back end, which it closes; stop it in the end. clock: None: one that moves only when set."""
    config = config_of(**settings)
    made = {name: new_token(name, scopes) for name, scopes in SCOPES.items()}
    clock = clock or SetClock()
    tokens = Tokens(tuple(token for _, token in made.values()), config.anonymous)
    with served(create_app(backend, tokens, config, clock), config) as url:
        running = RunningServer(url, clock, {name: secret for name, (secret, _) in made.items()}, config, backend)
        try:
            yield running
        finally:
            for client in running.clients:
                client.close()
