"""The real server process on LMDB: kill -9 and restart, a stop with requests under way, several workers, one store."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from deploy.broker.lifeline import free_port
from deploy.cli.app import app
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.storage.api.config import WRITE_TOKEN_VARIABLE
from teacup.storage.codecs.arrow import ArrowCodec
from teacup.storage.errors import StorageError
from teacup.storage.model import Item, Status, WriteResult
from tests.support.api import is_ready
from tests.support.storage_process import TOKEN, client, server_process
from tests.support.waiting import wait_until

WRITERS = 3
BATCH = 50
OK = WriteResult(Status.OK)


def lasting(key: bytes, version: int = 1) -> Item:
    """Makes an item that outlives the test."""
    return Item(key, version, b"", b"value of " + key, wall_ms() + 3_600_000)


@dataclass
class Writer:
    """Writes batches as fast as it can, and knows which keys were acknowledged."""

    name: str
    sent: int = 0
    acknowledged: list[bytes] = field(default_factory=list)

    def run(self, url: str, process: subprocess.Popen[bytes]) -> None:
        """Writes until the server is gone."""
        with client(url, attempts=1) as storage:
            while process.poll() is None:
                keys = [b"%s-%d" % (self.name.encode(), number) for number in range(self.sent, self.sent + BATCH)]
                self.sent += BATCH
                try:
                    outcomes = storage.write("latest", [lasting(key) for key in keys])
                except StorageError:
                    continue
                self.acknowledged += [key for key, outcome in zip(keys, outcomes, strict=True) if outcome == OK]


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    """Twice on the same store, and its generation stays; what was not acknowledged may be in or not."""
    writers = [Writer(f"w{number}") for number in range(WRITERS)]
    generations = set()

    for _ in range(2):
        with server_process(tmp_path) as (process, url):
            with client(url) as storage:
                generations.add(storage.namespace("latest").generation)
            threads = [threading.Thread(target=writer.run, args=(url, process)) for writer in writers]
            for thread in threads:
                thread.start()
            goals = [len(writer.acknowledged) + 3 * BATCH for writer in writers]
            wait_until(lambda goals=goals: all(len(w.acknowledged) >= g for w, g in zip(writers, goals, strict=True)))
            process.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join(60)

    with server_process(tmp_path) as (_, url), client(url) as storage:
        generations.add(storage.namespace("latest").generation)
        for writer in writers:
            found = storage.read("latest", writer.acknowledged)
            assert [result.items[0].value for result in found] == [b"value of " + key for key in writer.acknowledged]
    assert len(generations) == 1


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stop_finishes_what_is_under_way(tmp_path: Path, workers: int) -> None:
    """SIGTERM while a body is still on its way: it is answered, and kept."""
    keys = [b"key-%05d" % number for number in range(5_000)]
    with server_process(tmp_path, workers=workers) as (process, url):
        begun, go_on = threading.Event(), threading.Event()

        def slowly() -> Iterator[bytes]:
            body = ArrowCodec().encode_items([lasting(key) for key in keys])
            yield body[: len(body) // 2]
            begun.set()
            assert go_on.wait(60)
            yield body[len(body) // 2 :]

        answers = []

        def send() -> None:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/vnd.apache.arrow.stream"}
            path = f"{url}/v1/namespaces/latest/items:write"
            answers.append(requests.post(path, data=slowly(), headers=headers, timeout=30))

        thread = threading.Thread(target=send)
        thread.start()
        assert begun.wait(60)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_ready(url))
        go_on.set()
        thread.join(60)
        code = process.wait(60)

    with server_process(tmp_path) as (_, url), client(url) as storage:
        found = storage.read("latest", keys)
    assert answers[0].status_code == 200
    assert code == 0
    assert {result.status for result in found} == {Status.OK}


def test_several_workers_share_a_store(tmp_path: Path) -> None:
    """What one wrote another reads; metrics are of all; a worker that is killed is replaced; none is left behind."""
    items = [lasting(b"%d" % number) for number in range(40)]
    with server_process(tmp_path, workers=2) as (process, url):
        children = psutil.Process(process.pid).children()
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        for sent in items:
            with client(url) as storage:  # a new connection each: any worker may take it
                assert storage.write("latest", [sent]) == [OK]
        with client(url) as storage:
            found = storage.read("latest", [sent.key for sent in items])
        text = requests.get(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5).text
        (written,) = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "teacup_storage_items_total" and sample.labels["operation"] == "write"
        ]

        workers[0].kill()
        with client(url) as storage:
            again = storage.read("latest", [sent.key for sent in items])
        process.send_signal(signal.SIGKILL)
        port = int(url.rsplit(":", 1)[1])
        wait_until(lambda: not _listens(port))

    assert len(workers) == 2
    assert [result.items for result in found] == [(sent,) for sent in items] == [result.items for result in again]
    assert written == 40


def _listens(port: int) -> bool:
    return any(
        socket.laddr and socket.laddr.port == port and socket.status == psutil.CONN_LISTEN
        for socket in psutil.net_connections("tcp")
    )


def test_a_wrong_configuration_is_reported_at_the_start(tmp_path: Path) -> None:
    """Exit code 2 and the reason; nothing is served."""
    config = {"store": f"lmdb://{tmp_path / 'store'}", "port": free_port(), "namespaces": [{"name": "a", "bound": 2}]}
    (tmp_path / "storage.yaml").write_text(yaml.safe_dump(config))

    result = CliRunner().invoke(
        app, ["storage", "serve", str(tmp_path / "storage.yaml")], env={WRITE_TOKEN_VARIABLE: TOKEN}
    )

    assert result.exit_code == ExitCode.BAD_JOB_FILE
    assert "bound" in result.output
    assert "keep" in result.output
