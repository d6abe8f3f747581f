"""The servers that are attacked, as users run them: processes of their own, default limits, perhaps behind a proxy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from datadelay.api import config as delay
from datadelay.client import DelayClient
from datadelay.model import Submission
from deploy.broker.lifeline import free_port
from teacup.base.now import wall_ms
from teacup.storage.api import config as storage
from teacup.storage.client import StorageClient
from teacup.storage.model import Item
from tests.attack.attacks import LARGE_KEYS, Victim
from tests.attack.proxy import in_front_of
from tests.support.api import ready_process

LOG = "server.log"
READER, WRITER = "a-token-that-reads-only", "a-token-that-reads-and-writes"


@dataclass(frozen=True)
class Target:
    """A server, perhaps with its proxy, and their log; `usual`: a path that other clients read, and their token."""

    victim: Victim
    processes: tuple[subprocess.Popen[bytes], ...]
    log: Path
    usual: tuple[str, str]


@contextmanager
def storage_target(folder: Path) -> Iterator[Target]:
    """Starts the storage API on LMDB, with some large items."""
    port = free_port()
    config = {"store": f"lmdb://{folder / 'store'}", "namespaces": [{"name": "names"}]}
    environment = {storage.READ_TOKEN_VARIABLE: READER, storage.WRITE_TOKEN_VARIABLE: WRITER}
    with _served(folder, port, ["storage", "serve"], config, environment) as process:
        takes = ("POST", "/v1/namespaces/names/items:read", READER)
        with StorageClient(f"http://127.0.0.1:{port}", WRITER) as client:
            later_ms = wall_ms() + 3_600_000
            client.write("names", [Item(b"a", 1, b"", b"value", later_ms)])
            client.write("names", [Item(key, 1, b"", bytes(65_536), later_ms) for key in LARGE_KEYS])
        yield Target(
            Victim("storage", port, takes), (process,), folder / LOG, ("/v1/namespaces/names/items/YQ", WRITER)
        )


@contextmanager
def delay_target(folder: Path) -> Iterator[Target]:
    """Starts the Data Delay API."""
    port = free_port()
    config = {"database": f"sqlite:///{folder / 'delay.db'}"}
    environment = {delay.READ_TOKEN_VARIABLE: READER, delay.WRITE_TOKEN_VARIABLE: WRITER}
    with _served(folder, port, ["delay", "serve"], config, environment) as process:
        takes = ("PUT", "/v1/delays/feeder/attacked", WRITER)
        with DelayClient(f"http://127.0.0.1:{port}", WRITER) as client:
            client.submit(
                Submission(
                    consumer="feeder",
                    topic="usual",
                    listed_ms=wall_ms(),
                    consumed_until_ms=None,
                    reason="not known",
                    partitions=(),
                    generation="g",
                )
            )
        yield Target(Victim("delay", port, takes), (process,), folder / LOG, ("/v1/delays/feeder/usual", READER))


@contextmanager
def behind_a_proxy(target: Target) -> Iterator[Target]:
    """Starts HAProxy in front of a server; others reach that only through it."""
    victim, folder = target.victim, target.log.parent
    with in_front_of(victim.name, victim.port, folder, target.log) as (port, process):
        yield replace(target, victim=replace(victim, port=port), processes=(*target.processes, process))


@contextmanager
def _served(
    folder: Path, port: int, command: list[str], config: dict[str, object], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(exist_ok=True)
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump({"port": port, **config}))
    whole = [sys.executable, "-m", "deploy.cli", *command, str(file)]
    with ready_process(whole, environment, folder / LOG, f"http://127.0.0.1:{port}") as process:
        yield process
