"""A TCP proxy between Kafka clients and a broker that loses, delays or holds the frames a test names, by API key.

    client --request--> [proxy] --request--> broker
           <-response--         <-response--

    with WireProxy() as proxy, Broker(forwarded_from=proxy.port) as broker:
        proxy.forward_to(broker.forwarded_port)
        lost = proxy.inject(Api.PRODUCE, Side.RESPONSE, Action.CUT)
        ... Producer({"bootstrap.servers": proxy.bootstrap}) ...
        assert lost.fired == 1

It reads the length of each frame, the API key and the correlation id of a request, and the correlation id of a
response. It changes no byte, so the broker itself must give its clients the proxy's address. No TLS, no SASL.

    DROP    the frame disappears, the connection stays open: the client waits for its time-out
    CUT     the frame disappears, and both connections are closed: the client reconnects at once
    DELAY   the frame is forwarded later, with all behind it on this connection, because TCP keeps their order
    HOLD    the same, until `release`; it is forwarded to the broker even if the client has disconnected meanwhile

`go_silent` makes every connection half-open: it is accepted and read, and nothing is forwarded in either direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from tests.support.brokerproxy import BrokerProxy

_LENGTH, _REQUEST, _RESPONSE = struct.Struct(">i"), struct.Struct(">hhi"), struct.Struct(">i")


class Api(IntEnum):
    """API keys of the Kafka protocol that the delivery uses."""

    PRODUCE = 0
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Side(Enum):
    """Which frame of an exchange a fault hits."""

    REQUEST = "request"
    RESPONSE = "response"


class Action(Enum):
    """What happens to the frame; see the module."""

    DROP = "drop"
    CUT = "cut"
    DELAY = "delay"
    HOLD = "hold"


@dataclass(eq=False)
class Fault:
    """One fault: it hits the next `times` frames of its kind; `fired` counts those that it has hit."""

    api: Api
    side: Side
    action: Action
    times: int
    delay_s: float
    fired: int = 0
    _struck: threading.Event = field(default_factory=threading.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None

    def wait(self, timeout_s: float = 60.0) -> None:
        """Wait until it has fired; AssertionError if that does not happen."""
        assert self._struck.wait(timeout_s), f"no {self.side.value} {self.api.name} has come"

    def release(self) -> None:
        """Release what is held."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)


class WireProxy(BrokerProxy):
    """Injects faults into what it forwards."""

    def __init__(self) -> None:
        self.swallowed = 0  # requests that half-open connections have swallowed
        self._faults: list[Fault] = []
        self._to_clients: set[asyncio.StreamWriter] = set()
        self._silent = False
        super().__init__()

    def inject(self, api: Api, side: Side, action: Action, *, times: int = 1, delay_s: float = 0.0) -> Fault:
        """Hit the next `times` frames of this kind, on any connection."""
        fault = Fault(api, side, action, times, delay_s, _loop=self._loop)
        self._faults.append(fault)
        return fault

    def hang_up(self) -> None:
        """Every client loses its connections; what is held stays so."""
        self._loop.call_soon_threadsafe(lambda: [client.transport.abort() for client in self._to_clients])

    def go_silent(self) -> None:
        """Every connection, and each new one, is half-open from now on."""
        self._silent = True

    def speak(self) -> None:
        """Forward again. What was swallowed stays lost; clients notice it by their time-outs."""
        self._silent = False

    def clear(self) -> None:
        """Remove all faults; frames that they hold are forwarded."""
        for fault in self._faults:
            fault.release()
        self._faults.clear()
        self._silent = False

    async def carry(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        self._to_clients.add(to_client)
        awaited: dict[int, int] = {}  # correlation id -> API key
        hung_up = False

        async def requests() -> None:
            nonlocal hung_up
            async for frame in _frames(from_client):
                api, _version, correlation = _REQUEST.unpack_from(frame, _LENGTH.size)
                if await self._passes(api, Side.REQUEST, cut):
                    awaited[correlation] = api
                    await _send(to_broker, frame)
            hung_up = True
            if not awaited:  # otherwise the broker's answer shows that it has processed what was held
                to_broker.close()

        async def responses() -> None:
            async for frame in _frames(from_broker):
                (correlation,) = _RESPONSE.unpack_from(frame, _LENGTH.size)
                if await self._passes(awaited.pop(correlation, -1), Side.RESPONSE, cut):
                    await _send(to_client, frame)
                if hung_up and not awaited:
                    to_broker.close()
            to_client.close()

        def cut() -> None:
            to_client.transport.abort()
            to_broker.transport.abort()

        try:
            await asyncio.gather(requests(), responses())
        finally:
            self._to_clients.discard(to_client)

    async def _passes(self, api: int, side: Side, cut: Callable[[], None]) -> bool:
        """Whether the frame is forwarded; waits as long as a fault delays or holds it."""
        if self._silent:
            self.swallowed += side is Side.REQUEST
            return False
        fault = next(
            (fault for fault in self._faults if (fault.api, fault.side) == (api, side) and fault.fired < fault.times),
            None,
        )
        if fault is None:
            return True
        fault.fired += 1
        fault._struck.set()
        match fault.action:
            case Action.DROP:
                return False
            case Action.CUT:
                cut()
                return False
            case Action.DELAY:
                await asyncio.sleep(fault.delay_s)
            case Action.HOLD:
                await fault._released.wait()
        return True


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Whole frames, including their length prefix, until the connection ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = await reader.readexactly(_LENGTH.size)
            yield length + await reader.readexactly(_LENGTH.unpack(length)[0])


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """The other side may have disconnected: then the frame is lost, as on any network."""
    with contextlib.suppress(ConnectionError):
        writer.write(frame)
        await writer.drain()
