"""What tests of both HTTP APIs share: a server in this process or in one of its own, calls, problems, metrics."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from teacup.http.server.config import ServerKeys
from teacup.http.server.serving import uvicorn_config
from tests.support.times import NOON_MS


@dataclass
class SetClock:
    """A clock that moves only when set."""

    now_ms: int = NOON_MS

    def __call__(self) -> int:
        return self.now_ms


class GoingClock(SetClock):
    """A clock that goes on from where it was set."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__("_set_s", time.monotonic())
        super().__setattr__(name, value)

    def __call__(self) -> int:
        return self.now_ms + int(1_000 * (time.monotonic() - self._set_s))  # type: ignore[attr-defined]


@dataclass
class RunningApi:
    """Where a server listens, its clock, and the tokens for it."""

    url: str
    clock: SetClock
    secrets: dict[str, str]

    def headers(self, who: str = "writer") -> dict[str, str]:
        """The authorization header with somebody's token."""
        return {"Authorization": f"Bearer {self.secrets[who]}"}


@contextmanager
def served(app: Any, keys: ServerKeys, port: int = 0) -> Iterator[str]:
    """The URL of an application in a thread of this process; without a port on a free one."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        server = uvicorn.Server(uvicorn_config(keys, app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the server did not stop"


@contextmanager
def ready_process(
    command: Sequence[str], environment: Mapping[str, str], log: Path, url: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A server as users run it, ready to answer; killed at the end."""
    with log.open("ab") as lines:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=lines, stderr=lines)
    try:
        deadline_s = time.monotonic() + 120
        while not is_ready(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, "the server did not become ready"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait(60)


def is_ready(url: str) -> bool:
    """Whether the server says so."""
    try:
        return requests.get(f"{url}/readyz", timeout=1).ok
    except (requests.ConnectionError, requests.Timeout):
        return False


def call(api: RunningApi, method: str, path: str, who: str | None = "writer", **more: Any) -> requests.Response:
    """One request with somebody's token, or with none."""
    headers = {} if who is None else api.headers(who)
    return requests.request(method, api.url + path, headers=headers | more.pop("headers", {}), timeout=60, **more)


def assert_problem(response: requests.Response, status: int, kind: str) -> dict[str, Any]:
    """Every error has the form of RFC 9457."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["type"] == f"/problems/{kind}"
    assert document["detail"]
    return document


def samples(api: RunningApi) -> dict[tuple[str, ...], float]:
    """The samples of /metrics: (name, label values in the order of their names) -> value."""
    text = call(api, "GET", "/metrics", "reader").text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def error_types(paths: Mapping[str, Any]) -> set[str]:
    """The media types of all errors in the `paths` of an OpenAPI description."""
    return {
        media_type
        for item in paths.values()
        for operation in item.values()
        for status, answer in operation["responses"].items()
        if int(status) >= 400
        for media_type in answer["content"]
    }


def answer_before_body(api: RunningApi, method: str, path: str, who: str | None, length: int) -> bytes:
    """What is answered to the header of a request alone; its body is declared, but never sent."""
    authorization = "" if who is None else f"Authorization: {api.headers(who)['Authorization']}\r\n"
    kind = "Content-Type: application/json\r\n"
    header = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{authorization}{kind}Content-Length: {length}\r\n\r\n"
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(header.encode())
        return connection.recv(65_536)
