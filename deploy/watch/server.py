"""A small HTTP server inside a job: GET only, a few routes, each a function. Loopback unless the job file says more.

    routes   path -> function from what was asked to an answer; a listener adds its own
    thread   it listens in a thread of its own, and serves each connection in one: a slow client delays nobody, and
             beyond `AT_ONCE` connections more are refused
    end      whoever was let in before it ends gets an answer, whoever comes later is refused: the kernel resets
             connections that wait when a socket is closed, and those of a process that ends. So a connection carries
             one request: one that is kept may be in use at any time
    port     taken, perhaps by the job that this one replaces: it is tried again until it is free; the job runs

The server of the APIs (`teacup.http.server`) is an extra, takes a second to import, and has tokens, bodies and limits
that nothing here needs.

A browser lets a page of anybody send requests to loopback under a name of its own. So a server on loopback answers
only to its own names.
"""

from __future__ import annotations

import ctypes
import ipaddress
import logging
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

log = logging.getLogger("teacup")

AT_ONCE = 32
WITHIN_S = 10.0
"""For the header of a request, and between two pieces of an answer that a client takes."""
TRY_AGAIN_S = 2.0
ENDS_WITHIN_S = 1.0
"""So long its end waits for clients that have not asked, or have not taken their answer."""
_ATTACH_FILTER, _BPF_RETURN = 26, 6  # of Linux's headers; `socket` has no names for them
_SAFE = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer; a route may give others, such as a page its own policy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. headers: by lower-case name."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, body: str, status: int = 200) -> Answer:
        """Returns text, with a newline at its end."""
        return cls(f"{body}\n".encode(), status=status)


Route = Callable[[Asked], Answer]
Routes = Mapping[str, Route]
"""By path."""


class JobServer:
    """Serves routes from `start` to `close`."""

    def __init__(self, host: str, port: int, routes: Routes, name: str = "") -> None:
        """name: of the job, for the log. port: 0 takes any free one."""
        self._address, self._routes, self._name = (host, port), routes, name
        self._closed, self.listens = threading.Event(), threading.Event()
        self._server: _Server | None = None
        self._end, self._ended = socket.socketpair()  # the second one is readable once it is closed
        self._thread = threading.Thread(target=self._run, name="job-server", daemon=True)

    def start(self) -> None:
        """Begins to listen, in a thread; returns at once. `listens` is set once it does."""
        self._thread.start()

    @property
    def url(self) -> str:
        """Returns where it listens; to be asked once it `listens`."""
        assert self._server is not None
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}"

    def close(self) -> None:
        """Ends it, and returns once those that have connected are answered, or after `ENDS_WITHIN_S`."""
        self._closed.set()
        self._end.close()
        if self._thread.is_alive():
            self._thread.join(2 * ENDS_WITHIN_S)
        self._ended.close()

    def _run(self) -> None:
        tries = 0
        while not self._closed.is_set():
            try:
                self._server = _server(self._address, self._routes)
                break
            except OSError as error:
                tries += 1
                if tries == 2:  # a job that is refused, because another one runs, ends before that and says why
                    host, port = self._address
                    log.warning(
                        "%s: metrics: cannot listen at %s port %d: %s; tried again until it can. Give another "
                        "`metrics.port`, or `--metrics-port`",
                        *(self._name, host, port, error.strerror or error),
                    )
                self._closed.wait(TRY_AGAIN_S)
        if self._server is None:
            return
        with self._server:
            self.listens.set()
            page = f", the page of the job at {self.url}/" if "/" in self._routes else ""
            log.info("%s: metrics at %s/metrics%s", self._name, self.url, page)
            self._server.serve_until(self._ended)
        self._server.wait_for_answers(ENDS_WITHIN_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = AT_ONCE
    timeout = 0  # of `handle_request`, which is called when somebody waits

    def __init__(self, address: tuple[str, int], routes: Routes) -> None:
        self.routes, self.room = routes, threading.BoundedSemaphore(AT_ONCE)
        super().__init__(address, _Request)

    def serve_until(self, ended: socket.socket) -> None:
        """Lets in who connects until `ended` is readable; then those who wait, and takes no more."""
        both = _polled(self, ended)
        while ended.fileno() not in [number for number, _ in both.poll()]:
            self.handle_request()
        _let_in_nobody(self.socket)
        waiting = _polled(self)
        while waiting.poll(0):
            self.handle_request()

    def wait_for_answers(self, within_s: float) -> None:
        """Returns once no connection is open, or after this time."""
        until_s = time.monotonic() + within_s
        for _ in range(AT_ONCE):
            self.room.acquire(timeout=max(0.0, until_s - time.monotonic()))

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a request from %s failed", client_address, exc_info=True)  # a client that went away


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _let_in_nobody(listening: socket.socket) -> None:
    """On Linux, drops whatever a socket receives from now on: a client tries again a second later, and is refused."""
    if sys.platform != "linux":
        return
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))  # none of a packet's bytes
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(nothing)))


def _polled(*sockets: socket.socket | _Server) -> select.poll:
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLIN)
    return poll


def _server(address: tuple[str, int], routes: Routes) -> _Server:
    return (_ServerV6 if ":" in address[0] else _Server)(address, routes)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = WITHIN_S
    server: _Server

    def do_GET(self) -> None:
        self._send(self._answered())

    def do_HEAD(self) -> None:
        self._send(self._answered())

    def version_string(self) -> str:
        return "teacup"

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)

    def _answered(self) -> Answer:
        asked = urlsplit(self.path)
        if not self._may_ask():
            return Answer.text("this server answers to its own address only", HTTPStatus.MISDIRECTED_REQUEST)
        route = self.server.routes.get(asked.path)
        if route is None:
            known = sorted(path for path in self.server.routes if not path.startswith("/jobs/"))
            return Answer.text(f"not found; there is {', '.join(known)}", HTTPStatus.NOT_FOUND)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            return route(Asked(asked.path, dict(parse_qsl(asked.query)), headers))
        except Exception as error:
            log.warning("%s failed: %s: %s", asked.path, type(error).__name__, error, exc_info=error)
            return Answer.text("failed; the job's log says how", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _may_ask(self) -> bool:
        """Returns whether the request names this machine as it is, where only this machine may ask."""
        if not _is_loopback(str(self.server.server_address[0])):
            return True
        host = urlsplit(f"//{self.headers.get('host', '')}").hostname or ""
        return host == "localhost" or _is_loopback(host)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {**_SAFE, "Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        for name, value in {**headers, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
