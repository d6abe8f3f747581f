"""Runs the Data Delay API: one process, one event loop, one SQLite file."""

from __future__ import annotations

import logging
import os
import socket
import time

import uvicorn

from datadelay.api.app import create_app
from datadelay.api.config import ServeConfig
from datadelay.api.store import Store
from datadelay.errors import ConfigInvalid

__all__ = ["ServeConfig", "serve"]

logger = logging.getLogger(__name__)

_BACKLOG = 2048


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM or SIGINT; requests under way are finished.

    Raises `ConfigInvalid` and `StoreUnavailable` before anything is served.
    """
    tokens = config.load_tokens(os.environ)
    with (
        Store.open(
            config.database,
            retention_ms=round(config.history_retention_s * 1000),
            max_points=config.history_max_points,
        ) as store,
        _listen(config) as listener,
    ):
        app = create_app(store, tokens, config, wall_clock_ms)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                access_log=False,  # a line for each of a thousand reads a second; /metrics counts them
                log_config=None,
                server_header=False,
                ssl_certfile=config.tls_certificate,
                ssl_keyfile=config.tls_key,
                timeout_graceful_shutdown=10,
            )
        )
        scheme = "https" if config.tls_certificate else "http"
        logger.info("the Data Delay API listens on %s://%s:%s", scheme, *listener.getsockname()[:2])
        server.run(sockets=[listener])


def wall_clock_ms() -> int:
    """Now, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _listen(config: ServeConfig) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigInvalid(f"cannot listen on host {config.host!r}, port {config.port}: {error}") from error
    listener.setblocking(False)
    return listener
