"""Runs the Data Delay API: one process, one event loop, one SQLite file."""

from __future__ import annotations

import logging
import os

import uvicorn

from datadelay.api.app import create_app
from datadelay.api.config import DelayServeConfig
from datadelay.api.store import DelayStore
from httpapi.server.listen import listen
from kafkaio.now import wall_ms

__all__ = ["DelayServeConfig", "serve"]

logger = logging.getLogger(__name__)


def serve(config: DelayServeConfig) -> None:
    """Serve until SIGTERM or SIGINT; requests in progress are completed.

    Raises `SettingsInvalid` and `StoreUnavailable` before anything is served.
    """
    tokens = config.load_tokens(os.environ)
    with (
        DelayStore.open(
            config.database,
            retention_ms=round(config.history_retention_s * 1000),
            max_points=config.history_max_points,
        ) as store,
        listen(config.host, config.port) as listener,
    ):
        app = create_app(store, tokens, config, wall_ms)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                access_log=False,  # it would have a line for each of a thousand reads per second; /metrics counts them
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
