"""A TCP proxy between Kafka clients and a broker, in a thread of its own; subclasses say what passes, and when."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


class BrokerProxy:
    """Listens at `port` from its construction on; forwards after `forward_to`."""

    def __init__(self) -> None:
        self._upstream: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def forward_to(self, port: int) -> None:
        """Where the broker listens for connections from this proxy."""
        self._upstream = port

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def carry(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        """Forward between a client's connection and one to the broker, until both are closed."""
        raise NotImplementedError

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, HOST, 0)

    async def _shut(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(HOST, self._upstream)
        except OSError:  # the broker is down: the client sees a closed connection
            to_client.close()
            return
        try:
            await self.carry(from_client, to_client, from_broker, to_broker)
        finally:
            to_client.close()
            to_broker.close()
