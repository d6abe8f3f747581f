"""A small HTTP server inside a job: GET only, with a few routes. Listens on loopback unless configured otherwise.

    routes   Maps a path to a function from a request to an answer. Listeners add their own routes.
    threads  One thread listens, and each connection has its own, so a slow client delays nobody. More than `AT_ONCE`
             connections are refused.
    end      Clients that were accepted before the end get an answer; later ones are refused. The kernel resets
             connections that are still queued when a socket is closed, and those of a process that ends. A connection
             carries a single request, because a connection that is kept open could be in use at any time.
    port     If it is taken, perhaps by the job that this one replaces, the server retries until it is free. The job
             runs meanwhile.

The server of the APIs (`teacup.http.server`) is an extra, takes a second to import, and has tokens, bodies and limits
that are not needed here.

A browser lets any web page send requests to loopback under a host name of its own. So on loopback the server answers
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
from urllib.parse import urlsplit

log = logging.getLogger("teacup")

AT_ONCE = 32
WITHIN_S = 10.0
"""Timeout for a request's header, and between the pieces of an answer that a client takes."""
TRY_AGAIN_S = 2.0
ENDS_WITHIN_S = 1.0
"""How long closing waits for clients that have not sent their request or not taken their answer."""
_ATTACH_FILTER, _BPF_RETURN = 26, 6  # from Linux's headers; `socket` does not define them
_SAFE = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer. A route may override them, as a page does with its own policy."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `headers` by lower-case name."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, body: str, status: int = 200) -> Response:
        """Returns a text answer that ends with a newline."""
        return cls(f"{body}\n".encode(), status=status)


Route = Callable[[Request], Response]
Routes = Mapping[str, Route]
"""Routes by path."""


class JobServer:
    """Serves routes from `start` until `close`."""

    def __init__(self, host: str, port: int, routes: Routes, name: str = "") -> None:
        """`name` is the job's name in the log; port 0 takes any free port."""
        self._address, self._routes, self._name = (host, port), routes, name
        self._closed, self.listens = threading.Event(), threading.Event()
        self._server: _Server | None = None
        self._end, self._ended = socket.socketpair()  # the second is readable once the first is closed
        self._thread = threading.Thread(target=self._run, name="job-server", daemon=True)

    def start(self) -> None:
        """Starts listening in a thread and returns at once. `listens` is set once it listens."""
        self._thread.start()

    @property
    def url(self) -> str:
        """The server's URL, available once it `listens`."""
        assert self._server is not None
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}"

    def close(self) -> None:
        """Stops the server. Returns once connected clients are answered, or after `ENDS_WITHIN_S`."""
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
                if tries == 2:  # a job that ends because another one runs has reported that by now
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
    timeout = 0  # of `handle_request`, which is called only when a client waits

    def __init__(self, address: tuple[str, int], routes: Routes) -> None:
        self.routes, self.room = routes, threading.BoundedSemaphore(AT_ONCE)
        super().__init__(address, _Request)

    def serve_until(self, ended: socket.socket) -> None:
        """Accepts connections until `ended` is readable, then those already queued, and no more."""
        both = _polled(self, ended)
        while ended.fileno() not in [number for number, _ in both.poll()]:
            self.handle_request()
        _let_in_nobody(self.socket)
        waiting = _polled(self)
        while waiting.poll(0):
            self.handle_request()

    def wait_for_answers(self, within_s: float) -> None:
        """Waits until no connection is open, at most for this time."""
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
        log.debug("a request from %s failed", client_address, exc_info=True)  # a client that disconnected


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def _let_in_nobody(listening: socket.socket) -> None:
    """On Linux, drops all packets from now on, so that clients retry a second later and are refused."""
    if sys.platform != "linux":
        return
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))  # keeps none of a packet's bytes
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

    def _answered(self) -> Response:
        asked = urlsplit(self.path)
        if not self._may_ask():
            return Response.text("this server answers to its own address only", HTTPStatus.MISDIRECTED_REQUEST)
        route = self.server.routes.get(asked.path)
        if route is None:
            known = sorted({"/jobs/NAME/" if path.startswith("/jobs/") else path for path in self.server.routes})
            return Response.text(f"not found; there is {', '.join(known)}", HTTPStatus.NOT_FOUND)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            return route(Request(asked.path, headers))
        except Exception as error:
            log.warning("%s failed: %s: %s", asked.path, type(error).__name__, error, exc_info=error)
            return Response.text("failed; the job's log says how", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _may_ask(self) -> bool:
        """Returns whether the request may be answered: on loopback, only if its host is a loopback name."""
        if not _is_loopback(str(self.server.server_address[0])):
            return True
        host = urlsplit(f"//{self.headers.get('host', '')}").hostname or ""
        return host == "localhost" or _is_loopback(host)

    def _send(self, answer: Response) -> None:
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
