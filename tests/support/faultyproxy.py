"""A real HTTP server between client and API that spoils answers on demand, after the API has acted or without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

_MOMENT_S = 0.1

Answer = requests.Response
Fault = Callable[[BaseHTTPRequestHandler, Callable[..., Answer]], None]
"""Takes the handler, and a call that passes the request on, or to the server of another URL."""


@dataclass
class Proxy:
    """`faults`: for the next requests, one each; then it only forwards. `seen`: method and path of every request.

    only: faults are for requests with this in their path
    """

    url: str
    only: str = ""
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes, cut: int = 0) -> None:
    """An answer that announces the whole body, and ends `cut` bytes earlier."""
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body[: len(body) - cut])
    handler.close_connection = cut > 0


def passed_on(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """No fault."""
    got = forward()
    answer(handler, got.status_code, _headers(got), got.content)


def answered_by(url: str) -> Fault:
    """By another server."""
    return lambda handler, forward: passed_on(handler, partial(forward, url))


def half_a_body(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API has acted; its answer breaks off."""
    got = forward()
    answer(handler, got.status_code, _headers(got), got.content, cut=len(got.content) // 2)


def shorter_body(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The answer breaks off, with a matching length: a proxy that does not know better."""
    got = forward()
    answer(handler, got.status_code, _headers(got), got.content[: len(got.content) // 2])


def closed(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API has acted; nothing comes back."""
    forward()
    handler.close_connection = True


def dropped(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API does not see the request, and nothing comes back."""
    handler.close_connection = True


def late(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API has acted; its answer comes after a moment."""
    forward()
    time.sleep(_MOMENT_S)
    passed_on(handler, forward)


def nonsense(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API has acted; what comes back is something else's page, as if all were well."""
    got = forward()
    answer(handler, 200, _headers(got), b"<h1>welcome</h1>")


def slow(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
    """The API has acted; nothing comes back until the client has given up."""
    forward()
    handler.connection.settimeout(30)
    handler.rfile.read(1)  # nothing: the client hangs up


def status(code: int, headers: dict[str, str] | None = None) -> Fault:
    """A page for people, as balancers send it; the API does not see the request."""

    def fault(handler: BaseHTTPRequestHandler, forward: Callable[[], Answer]) -> None:
        answer(handler, code, {"Content-Type": "text/html", **(headers or {})}, b"<h1>sorry</h1>")

    return fault


def _headers(got: Answer) -> dict[str, str]:
    return {name: got.headers[name] for name in ("Content-Type", "Retry-After") if name in got.headers}


@contextmanager
def running_proxy(target: str) -> Iterator[Proxy]:
    """Before the API at `target`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            proxy.seen.append(f"{self.command} {self.path}")

            def forward(to: str = target) -> Answer:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                return requests.request(self.command, to + self.path, data=body, headers=headers, timeout=60)

            fault = proxy.faults.pop(0) if proxy.faults and proxy.only in self.path else passed_on
            try:
                fault(self, forward)
            except OSError:  # the API is not there, or the client is gone: no answer
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_DELETE = do

        def log_message(self, *_: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join(10)
