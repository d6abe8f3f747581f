"""What every request passes: identification, rate limit, held bytes, the time of its body; afterwards it is counted.

`Gate` is plain ASGI, because it must see the body's bytes arrive, and when the last of them is no longer needed.

A body has `body_within_s` to arrive, not counting the time in which the application reads nothing of it; then 408.

`Sending` sends an answer in pieces, each once the peer has taken the one before, and an empty one at the end, so that
it is known how long an answer is held. An answer beyond 64 KiB counts as held by its caller until nearly all of it is
taken. If the caller holds too much, the answer is 429. uvicorn 0.54 writes a body of any size at once and then
considers the answer complete; starlette 1.10 sends only files and streams in pieces.

Connections are not limited here; docs/threat-model.md says what happens before an application sees a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Response
from prometheus_client import Counter
from starlette.exceptions import HTTPException

from teacup.http.server.auth import Tokens
from teacup.http.server.limits import HeldBytes, RateLimiter
from teacup.http.server.problem_details import problem

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PIECE_BYTES = 1 << 20
_COUNTED_BYTES = 1 << 16
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNLIMITED = frozenset({"/livez", "/readyz"})


class Gate:
    """Identifies, limits and counts.

    Puts the principal (None: unknown token), and the caller in words, into the request's state.
    """

    def __init__(
        self,
        app: App,
        *,
        tokens: Tokens,
        limiter: RateLimiter,
        bodies: HeldBytes,
        answers: HeldBytes,
        body_within_s: float,
        requests: Counter,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limiter = limiter
        self._bodies = bodies
        self._answers = answers
        self._body_within_s = body_within_s
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = scope["state"]["caller"] = self._identified(scope)
        receiving = Receiving(receive, self._bodies, caller, self._body_within_s)
        sending = Sending(send, self._answers, caller, scope["path"])
        refusal = self._refusal(scope, caller)
        try:
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                await self._app(scope, receiving, sending)
        finally:
            receiving.over()
            sending.over()
            self._count(scope, sending.status)

    def _identified(self, scope: Scope) -> str:
        """Returns the caller, in words. Limits apply by token, or by address without a known token."""
        authorization = dict(scope["headers"]).get(b"authorization")
        principal = self._tokens.identify(None if authorization is None else authorization.decode("latin-1"))
        scope.setdefault("state", {})["principal"] = principal
        if principal is not None and principal.name is not None:
            return f"token {principal.name}"
        return f"address {(scope.get('client') or ['?'])[0]}"

    def _refusal(self, scope: Scope, caller: str) -> Response | None:
        if scope["path"] in _UNLIMITED:
            return None
        wait_s = self._limiter.take(caller, time.monotonic())
        if wait_s is not None:
            detail = f"too many requests by {caller}: wait {wait_s} s"
            return problem(429, detail, instance=scope["path"], headers={"Retry-After": str(wait_s)})
        if [name for name, _ in scope["headers"]].count(b"authorization") > 1:
            detail = "the request has two Authorization headers: send one"
            return problem(400, detail, instance=scope["path"])
        return None

    def _count(self, scope: Scope, status: int) -> None:
        """Counts by route, not by path, and only known methods, as callers must not be able to create labels."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()


class Receiving:
    """One body, as its application's `receive`: held until the request is answered, with `within_s` to arrive."""

    def __init__(self, receive: Receive, held: HeldBytes, caller: str, within_s: float) -> None:
        self._receive = receive
        self._held = held
        self._caller = caller
        self._within_s = within_s
        self._left_s: float | None = within_s  # None: the body is complete
        self._size = 0

    async def __call__(self) -> Message:
        """Receives, as ASGI's receive does. Raises `HTTPException` 408, 429."""
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(self._left_s):
                message = await self._receive()
        except TimeoutError:
            detail = f"the body was not complete within {self._within_s:g} s (body_within)"
            raise HTTPException(408, detail, {"Connection": "close"}) from None
        if self._left_s is not None:
            self._left_s -= time.monotonic() - began_s
            if not message.get("more_body", False):
                self._left_s = None
        size = len(message.get("body", b""))
        if not self._held.take(self._caller, size):
            detail = f"too many bytes of bodies by {self._caller}, or by all callers (max_held_bytes): wait 1 s"
            raise HTTPException(429, detail, {"Retry-After": "1"})
        self._size += size
        return message

    def over(self) -> None:
        """Ends the request: its body is no longer needed."""
        self._held.give_back(self._caller, self._size)


class Sending:
    """One answer of an application, as its `send`; afterwards `status` is that of the answer, 0 if there was none."""

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
        if len(body) > _COUNTED_BYTES:
            view = memoryview(body)
            for begin in range(0, len(body), _PIECE_BYTES):
                piece = view[begin : begin + _PIECE_BYTES]
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            body = b""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _refuse(self) -> None:
        self.status = 429
        detail = f"{self._caller} has not taken the answers to its earlier requests (max_held_bytes): wait 1 s"
        answer = problem(429, detail, instance=self._path, headers={"Retry-After": "1"})
        await self._send({"type": "http.response.start", "status": 429, "headers": answer.raw_headers})
        await self._send({"type": "http.response.body", "body": answer.body})

    def over(self) -> None:
        """Ends the answer: it is taken, or its peer is gone."""
        self._held.give_back(self._caller, self._size)
