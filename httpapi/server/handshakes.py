"""Accepts connections for https, and bounds their TLS handshakes.

    a handshake                     is complete within `header_within`, or the connection is closed
    handshakes at a time            `max_connections`, of one address `max_connections_per_client`; more are closed

After its handshake a connection counts among the others (connections.py).

uvicorn 0.54 passes no `ssl_handshake_timeout` to its event loop, which then gives a handshake 60 s; and neither asyncio
nor uvloop bounds how many are under way, or tells a protocol of a connection before its handshake is complete.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial

from httpapi.server.limits import ConnectionLimits

logger = logging.getLogger("teacup.httpapi.server.handshakes")

_AT_ONCE = 100
_WITHOUT_DESCRIPTORS_S = 1.0


class TlsServer:
    """Stands in place of an event loop's server: as much of one as uvicorn uses."""

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
