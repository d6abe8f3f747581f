"""A real server on a free port, in this process, with a clock that tests set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datadelay.api.app import create_app
from datadelay.api.config import DelayServeConfig
from datadelay.api.store import DelayStore
from datadelay.client import DelayClient
from datadelay.model import Submission
from datadelay.wire import SubmissionBody
from teacup.http.server.auth import Scope, Tokens, new_token
from tests.support.api import RunningApi, SetClock, served


@dataclass
class RunningServer(RunningApi):
    """Also its configuration, and clients that are closed with it."""

    config: DelayServeConfig
    clients: list[DelayClient] = field(default_factory=list)

    def client(self, who: str | None = "writer", **more: Any) -> DelayClient:
        """A client with the token of `reader`, `writer` or nobody; closed with the server."""
        made = DelayClient(self.url, None if who is None else self.secrets[who], **more)
        self.clients.append(made)
        return made


def body_of(submission: Submission) -> dict[str, Any]:
    """What a collector sends."""
    document: dict[str, Any] = SubmissionBody.of(submission).model_dump(mode="json")
    return document


@contextmanager
def running_server(directory: Path, **settings: Any) -> Iterator[RunningServer]:
    """Start a server on a database in `directory`; stop it at the end."""
    config = DelayServeConfig(database=f"sqlite:///{directory / 'delay.db'}", **settings)
    reader_secret, reader = new_token("reader", [Scope.READ])
    writer_secret, writer = new_token("writer", [Scope.READ, Scope.WRITE])
    clock = SetClock()
    store = DelayStore.open(
        config.database,
        retention_ms=round(config.history_retention_s * 1000),
        max_points=config.history_max_points,
    )
    with store:
        app = create_app(store, Tokens((reader, writer), config.anonymous), config, clock)
        with served(app, config) as url:
            running = RunningServer(url, clock, {"reader": reader_secret, "writer": writer_secret}, config)
            try:
                yield running
            finally:
                for client in running.clients:
                    client.close()
