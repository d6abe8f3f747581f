"""Runs the storage API: one worker in this process, or several that share its socket.

    one worker       this process serves
    several          this process only watches: it starts them, restarts those that die, and passes SIGTERM on

A worker that loses the watching process (kill -9) stops as if by SIGTERM, so that none is left holding the port. The
store is opened once in advance, so that a wrong one is reported at the start and not by each worker.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import multiprocessing
import os
import platform
import signal
import tempfile
import threading
from functools import partial

import pyarrow
import uvicorn
from uvicorn.supervisors import Multiprocess

from teacup.base.now import read_clocks
from teacup.http.server.request_gate import Gate
from teacup.http.server.serving import SteadyClock, listen, log_to_standard_error, url, uvicorn_config
from teacup.storage.api.app import create_app
from teacup.storage.api.config import StorageServeConfig
from teacup.storage.api.metrics import FOLDER_VARIABLE
from teacup.storage.backends.opening import has_clocks, open_backend
from teacup.storage.model import Backend

__all__ = ["StorageServeConfig", "serve"]

logger = logging.getLogger("teacup.storage.api.serve")
_HEALTH_S = 30
_M_MMAP_THRESHOLD = -3  # from malloc.h


def serve(config: StorageServeConfig) -> None:
    """Serves until SIGTERM or SIGINT; requests in progress are finished.

    Raises `SettingsInvalid`, `StorageConfigInvalid` and `StorageUnavailable` before anything is served.
    """
    tokens = config.load_tokens(os.environ)
    anchor = read_clocks()
    clock_ms = _clock(config, anchor)
    backend = _open(config, clock_ms)
    try:
        for settings in config.namespaces:
            backend.state(settings.namespace, clock_ms())
        listener = listen(config)
    except BaseException:
        backend.close()
        raise
    with listener:
        logger.info("the storage API listens on %s, workers: %s", url(config, listener), config.workers)
        if config.workers == 1:
            _prepare_process()
            app = create_app(backend, tokens, config, clock_ms)
            uvicorn.Server(_uvicorn(config, app)).run(sockets=[listener])
            return
        backend.close()
        with tempfile.TemporaryDirectory(prefix="teacup-metrics-") as folder:
            os.environ[FOLDER_VARIABLE] = folder  # before prometheus_client is imported in the workers
            Multiprocess(_uvicorn(config, partial(_worker, config, anchor)), [listener]).run()


def _uvicorn(config: StorageServeConfig, app: Gate | partial[Gate]) -> uvicorn.Config:
    return uvicorn_config(
        config,
        app,
        factory=config.workers > 1,
        workers=config.workers,
        timeout_graceful_shutdown=math.ceil(config.stop_within_s),
        timeout_worker_healthcheck=_HEALTH_S,
    )


def _worker(config: StorageServeConfig, anchor: tuple[int, int]) -> Gate:
    """Creates the application of one worker, in its process. Its clock is that of the process that started it."""
    log_to_standard_error()
    _prepare_process()
    threading.Thread(target=_stop_when_orphaned, daemon=True).start()
    clock_ms = _clock(config, anchor)
    return create_app(_open(config, clock_ms), config.load_tokens(os.environ), config, clock_ms)


def _prepare_process() -> None:
    """Adjusts garbage collection and memory for requests.

    Requests create thousands of objects but no cycles, and searching for cycles takes a tenth of a request. Bodies and
    answers are returned to the system as soon as they are freed: glibc keeps blocks of their size from the first one
    on, and Arrow's own allocator for a while.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def _stop_when_orphaned() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _clock(config: StorageServeConfig, anchor: tuple[int, int]) -> SteadyClock:
    return SteadyClock(anchor, believes_ahead=has_clocks(config.store))


def _open(config: StorageServeConfig, clock_ms: SteadyClock) -> Backend:
    return open_backend(config.store, [settings.namespace for settings in config.namespaces], clock_ms)
