"""Sends an answer in pieces, each once the peer has taken the one before; so it is known how long an answer is held.

An answer beyond 64 KiB counts among its caller's until all of it is taken. If they are too many, 429 is answered.

uvicorn 0.54 writes a body of any size at once, and then takes the answer for complete; starlette 1.10 sends only files
and streams in pieces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from httpapi.server.limits import HeldBytes
from httpapi.server.problemdetails import problem

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_PIECE_BYTES = 1 << 20
_COUNTED_BYTES = 1 << 16


class Sending:
    """One answer of an application, as its `send`; then `status` is that of the answer, 0 if there was none."""

    def __init__(self, send: Send, held: HeldBytes, caller: str, path: str) -> None:
        self._send = send
        self._held = held
        self._caller = caller
        self._path = path
        self._start: Message | None = None
        self._size = 0
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """Sends, as ASGI's send does. The start waits for the size of what follows."""
        if message["type"] == "http.response.start":
            self._start = message
            self.status = message["status"]
            return
        if self._start is not None:
            start, self._start = self._start, None
            size = len(message.get("body", b""))
            if size > _COUNTED_BYTES:
                if not self._held.take(self._caller, size):
                    await self._refuse()
                    return
                self._size = size
            await self._send(start)
        await self._pieces(message.get("body", b""), message.get("more_body", False))

    async def _pieces(self, body: bytes, more: bool) -> None:
        last = max(0, len(body) - 1) // _PIECE_BYTES
        view = memoryview(body) if last else body
        for number in range(last + 1):
            piece = view[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": more or number < last})

    async def _refuse(self) -> None:
        self.status = 429
        detail = f"{self._caller} has not taken the answers to its earlier requests (max_held_bytes): wait 1 s"
        answer = problem(429, detail, instance=self._path, headers={"Retry-After": "1"})
        await self._send({"type": "http.response.start", "status": 429, "headers": answer.raw_headers})
        await self._send({"type": "http.response.body", "body": answer.body})

    def over(self) -> None:
        """Ends the answer: it is taken, or its peer is gone."""
        self._held.give_back(self._caller, self._size)
