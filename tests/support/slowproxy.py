"""A TCP proxy between Kafka clients and a broker, whose answers it delivers later; requests pass at once.

    with SlowProxy(answers_after_s=0.2) as proxy, Broker(forwarded_from=proxy.port) as broker:
        proxy.forward_to(broker.forwarded_port)

Every answer is late by the same time, as on a long line: several are under way together. The time can be changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"
_CHUNK = 1 << 18


class SlowProxy:
    """Listens at `port` from its construction on. Runs in its own thread."""

    def __init__(self, answers_after_s: float = 0.0) -> None:
        self.answers_after_s = answers_after_s
        self._upstream: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"{_HOST}:{self.port}"

    def forward_to(self, port: int) -> None:
        """Where the broker listens for connections from this proxy."""
        self._upstream = port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, _HOST, 0)

    async def _shut(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(_HOST, self._upstream)
        except OSError:  # the broker is down: the client sees a closed connection
            to_client.close()
            return
        with contextlib.closing(to_client), contextlib.closing(to_broker), contextlib.suppress(ConnectionError):
            await asyncio.gather(_copy(from_client, to_broker), self._copy_later(from_broker, to_client))

    async def _copy_later(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            self._loop.call_later(self.answers_after_s, writer.write, chunk)
        await asyncio.sleep(self.answers_after_s)
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
    writer.close()
