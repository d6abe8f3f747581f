"""A TCP proxy between Kafka clients and a broker, whose answers it delivers later; requests pass at once.

    with SlowProxy(answers_after_s=0.2) as proxy, Broker(forwarded_from=proxy.port) as broker:
        proxy.forward_to(broker.forwarded_port)

Every answer is late by the same time, as on a long line: several are under way together. The time can be changed.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.support.brokerproxy import BrokerProxy

_CHUNK = 1 << 18


class SlowProxy(BrokerProxy):
    """`answers_after_s` may be changed while it forwards."""

    def __init__(self, answers_after_s: float = 0.0) -> None:
        self.answers_after_s = answers_after_s
        super().__init__()

    async def carry(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(ConnectionError):
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
