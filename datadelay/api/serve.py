"""Runs the Data Delay API: one process, one event loop."""

from __future__ import annotations

import logging
import os

import uvicorn

from datadelay.api.app import create_app
from datadelay.api.config import DelayServeConfig
from datadelay.api.store import DelayStore
from httpapi.server.serving import listen, url, uvicorn_config
from httpapi.server.steadyclock import SteadyClock
from kafkaio.now import read_clocks

__all__ = ["DelayServeConfig", "serve"]

logger = logging.getLogger("teacup.datadelay.api.serve")


def serve(config: DelayServeConfig) -> None:
    """Serves until SIGTERM or SIGINT; requests in progress are completed.

    Raises `SettingsInvalid`, `ConfigInvalid` and `StoreUnavailable` before anything is served.
    """
    tokens = config.load_tokens(os.environ)
    with (
        DelayStore.open(
            config.database,
            retention_ms=round(config.history_retention_s * 1000),
            max_points=config.history_max_points,
        ) as store,
        listen(config) as listener,
    ):
        app = create_app(store, tokens, config, SteadyClock(read_clocks(), believes_ahead=True))
        logger.info("the Data Delay API listens on %s", url(config, listener))
        uvicorn.Server(uvicorn_config(config, app, timeout_graceful_shutdown=10)).run(sockets=[listener])
