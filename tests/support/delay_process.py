"""The Data Delay API in a process of its own, and its store without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from datadelay.api.config import WRITE_TOKEN_VARIABLE
from datadelay.api.store import DelayStore
from datadelay.model import Submission
from datadelay.publish import Published, accept
from deploy.broker.lifeline import free_port
from tests.support.api import ready_process

TOKEN = "a-token-of-this-test-alone"
SERVE = """
import sys
from datadelay.api.app import DelayServeConfig, serve
serve(DelayServeConfig(database=sys.argv[1], port=int(sys.argv[2])))
"""


@contextmanager
def server_process(
    database: str, folder: Path, environment: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server as users run it, ready to answer. before: what the command begins with."""
    port = free_port()
    command = [*before, sys.executable, "-c", SERVE, database, str(port)]
    url = f"http://127.0.0.1:{port}"
    variables = {WRITE_TOKEN_VARIABLE: TOKEN, **(environment or {})}
    with ready_process(command, variables, folder / "server.log", url) as process:
        yield process, url


def open_store(database: str, retention_ms: int = 10**9, max_points: int = 10**6) -> DelayStore:
    return DelayStore.open(database, retention_ms=retention_ms, max_points=max_points)


def put(store: DelayStore, submission: Submission, now_ms: int) -> Published:
    decide = partial(accept, submission=submission, now_ms=now_ms, stale_after_ms=180_000)
    return store.change(submission.consumer, submission.topic, decide, now_ms)
