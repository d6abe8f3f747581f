"""The connections of one process: how many there may be, and how long a peer may take.

    a TLS handshake                           `header_within`, or the connection is closed; at most `max_connections` at
                                              a time, and `max_connections_per_client` of one address: more are closed
    a new connection, or one that was idle    `header_within` from its first moment, or byte, to a complete header
    a header                                  `body_within` until the body is complete; then 408
    an answer                                 a peer takes each piece (`request_gate.Sending`) in `answer_within`
    a request without its body                at most 64 KiB and 100 headers, trailers included; then 431, or 400. Each
                                              byte of a chunked body may have 64 more around it
    requests that wait behind another         at most 8 of one connection; then 400
    an answered request                       up to 64 MiB of its body are still read, and dropped, so that a peer that
                                              is still sending finds the answer
    between two requests                      uvicorn's keep-alive
    a request for another protocol            is answered by this one, and the connection closed
    a peer that has ended its side            gets the answer to what it has sent; with TLS, which has no such half
                                              connections, it is cut off

A peer beyond the number of connections is answered 503 at once. Time in which the server does not read counts for
nobody. Not covered: peers behind one proxy, which have one address.

uvicorn 0.54 has only the time between two requests (`timeout_keep_alive`), and applications see a request only when its
header is complete; so `LimitedProtocol` is a subclass of its protocol. Its other options do not replace it.
`limit_concurrency` is looked at when a header is complete, and then refuses all clients: silent connections would lock
the others out. `h11_max_incomplete_event_size` belongs to its parser in Python, and bounds neither the number of
headers nor that of waiting requests. hypercorn has no limit by client either.

uvicorn passes no `ssl_handshake_timeout` to its event loop, which then gives a handshake 60 s; and neither asyncio nor
uvloop bounds how many are under way, or tells a protocol of a connection before its handshake is complete. So
`TlsServer` accepts the connections for https itself. After its handshake a connection counts among the others.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from teacup.http.server.limits import ConnectionLimits
from teacup.http.server.problem_details import problem

logger = logging.getLogger("teacup.http.server.connections")

_AT_ONCE = 100
_WITHOUT_DESCRIPTORS_S = 1.0
_DROPPED_MAX_BYTES = 64 << 20
_LINGER_S = 1.0
_HEAD_MAX_BYTES = 64 << 10
_HEADERS_MAX = 100
_FRAME_MAX_RATIO = 64
_PIPELINED_MAX = 8


class TooMuch(Exception):
    """Ends the parsing of what has arrived; uvicorn answers 400."""


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with limits, which its worker processes receive as well."""

    def __init__(self, app: Any, limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(app, http=LimitedProtocol, ws="none", **more)
        self.limits = limits

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """Returns a loop whose servers bound TLS handshakes as well; uvicorn passes no time for these to its loop."""
        factory = super().get_loop_factory()
        if not self.is_ssl:
            return factory

        def loop_of_tls() -> asyncio.AbstractEventLoop:
            loop = asyncio.new_event_loop() if factory is None else factory()

            async def create_server(protocol: Any, *, sock: Any, ssl: Any, backlog: int) -> TlsServer:
                return TlsServer(loop, protocol, sock, ssl, self.limits)

            loop.create_server = create_server  # type: ignore[method-assign, assignment]
            return loop

        return loop_of_tls


class LimitedProtocol(HttpToolsProtocol):
    """One connection, within limits."""

    def __init__(self, config: LimitedConfig, *arguments: Any, **more: Any) -> None:
        super().__init__(config, *arguments, **more)
        self._limits = config.limits
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._dropped_bytes = 0
        self._head_bytes = 0  # of a request without its body, less what its body may have around it
        self._headers = 0
        self._too_much: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuses the connection if there are too many."""
        super().connection_made(transport)
        address = self.client and self.client[0]
        clients = [other.client for other in self.connections if isinstance(other, LimitedProtocol)]
        of_client = sum(client is not None and client[0] == address for client in clients)
        limits = self._limits
        if len(self.connections) > limits.max_connections or of_client > limits.max_connections_per_client:
            words = f"{len(self.connections)} connections, {of_client} of them from {address}"
            keys = "max_connections, max_connections_per_client"
            self.connections.discard(self)
            self._answer(problem(503, f"too many connections ({keys}): {words}", headers={"Retry-After": "1"}))
        else:
            self._within(limits.header_within_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting for anything."""
        self._within(None)
        self._stop_taking()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Starts the time of a header with its first byte."""
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._within(self._limits.header_within_s)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD_MAX_BYTES and not self.transport.is_closing():
            self._answer(problem(431, f"more than {_HEAD_MAX_BYTES} bytes of header"))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Tells whether the connection stays open; uvicorn would drop what is not written yet, as if it were all."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        if self.scheme == "https":
            self.transport.abort()
            return False
        cycle.keep_alive = False  # of the last request
        return True

    def send_400_response(self, msg: str) -> None:
        """Answers with a problem, as any other refusal does."""
        self._answer(problem(400, self._too_much or "this is not a request in HTTP/1.1"))

    def on_message_begin(self) -> None:
        """Starts the count of headers at zero."""
        super().on_message_begin()
        self._headers = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a header of the head, or a trailer."""
        self._headers += 1
        if self._headers > _HEADERS_MAX:
            raise self._refused(f"more than {_HEADERS_MAX} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Waits for the body from now on."""
        if len(self.pipeline) >= _PIPELINED_MAX:
            raise self._refused(f"more than {_PIPELINED_MAX} requests wait behind another")
        super().on_headers_complete()
        if self.parser.should_upgrade():  # the parser is at an end
            self.cycle.keep_alive = False
        self._dropped_bytes = 0
        self._within(self._limits.body_within_s)

    def on_body(self, body: bytes) -> None:
        """Drops what comes after the answer, within bounds."""
        super().on_body(body)
        self._head_bytes = max(0, self._head_bytes - _FRAME_MAX_RATIO * len(body))
        if self.cycle.response_complete:
            self._dropped_bytes += len(body)
            if self._dropped_bytes > _DROPPED_MAX_BYTES:
                self.transport.abort()

    def on_message_complete(self) -> None:
        """Waits for nothing more: the request is complete."""
        self._within(None)
        self._head_bytes = 0  # what has arrived of the next one is little
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Starts the time of a peer that takes the answer more slowly than it is written."""
        super().pause_writing()
        self._stop_taking()
        self._taking = self.loop.call_later(self._limits.answer_within_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends that time: the peer has taken nearly all."""
        super().resume_writing()
        self._stop_taking()

    def _within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_late, seconds)

    def _too_late(self, seconds: float) -> None:
        self._deadline = None
        if self.flow.read_paused:
            self._within(seconds)
        elif self.cycle is None or self.cycle.response_started:
            self.transport.abort()
        else:
            self._answer(problem(408, f"the body was not complete within {seconds:g} s (body_within)"))

    def _answer(self, answer: Response) -> None:
        """Answers in place of the application, and closes."""
        status = HTTPStatus(answer.status_code)
        headers = [b"%b: %b" % header for header in answer.raw_headers]
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *headers, b"connection: close", b""]
        self.transport.write(b"\r\n".join([*lines, bytes(answer.body)]))
        self.transport.close()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def _refused(self, why: str) -> TooMuch:
        self._too_much = why
        return TooMuch(why)

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


class TlsServer:
    """A server as an event loop makes them, with only the methods that uvicorn calls."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: Callable[[], asyncio.Protocol],
        listener: socket.socket,
        context: ssl.SSLContext,
        limits: ConnectionLimits,
    ) -> None:
        self._loop, self._protocol, self._listener = loop, protocol, listener
        self._context, self._limits = context, limits
        self._of_client: Counter[str] = Counter()
        self._shaking: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accepts no more connections; handshakes end without one."""
        self._loop.remove_reader(self._listener)
        if self._resuming is not None:
            self._resuming.cancel()
        for task in self._shaking:
            task.cancel()

    async def wait_closed(self) -> None:
        """Waits until every handshake has ended."""
        await asyncio.gather(*self._shaking, return_exceptions=True)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, (address, *_) = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("no connection is accepted for %g s: %s", _WITHOUT_DESCRIPTORS_S, error)
                self._loop.remove_reader(self._listener)
                self._resuming = self._loop.call_later(_WITHOUT_DESCRIPTORS_S, self._resume)
                return
            limits, of_client = self._limits, self._of_client[address]
            if len(self._shaking) >= limits.max_connections or of_client >= limits.max_connections_per_client:
                connection.close()
                continue
            connection.setblocking(False)
            self._of_client[address] += 1
            task = self._loop.create_task(self._shake_hands(connection))
            self._shaking.add(task)
            task.add_done_callback(partial(self._ended, address))

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=self._context, ssl_handshake_timeout=self._limits.header_within_s
            )
        except OSError as error:  # no TLS, or none in time
            logger.debug("a TLS handshake failed: %s", error)

    def _ended(self, address: str, task: asyncio.Task[None]) -> None:
        self._shaking.discard(task)
        self._of_client -= Counter([address])  # keeps no zeros
