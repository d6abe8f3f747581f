"""What every request passes before the application: identification, rate limit, size limit; afterwards it is counted.

Plain ASGI, because it must see the body's bytes arrive. A body beyond the limit is never held in memory: it is refused
by its Content-Length or, if that is missing or wrong, as soon as too many bytes have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Response
from prometheus_client import Counter
from starlette.exceptions import HTTPException

from httpapi.server.auth import Tokens
from httpapi.server.limits import RateLimiter
from httpapi.server.problems import problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_UNLIMITED = frozenset({"/livez", "/readyz"})


class Gate:
    """Identifies, limits and counts. Puts the principal (None: unknown token) into the request's state."""

    def __init__(
        self, app: App, *, tokens: Tokens, limiter: RateLimiter, requests: Counter, max_body_bytes: int
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limiter = limiter
        self._requests = requests
        self._max_body_bytes = max_body_bytes
        self._too_large = f"a body has at most {max_body_bytes} bytes (max_body_bytes)"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def counted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers: dict[bytes, bytes] = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        try:
            if refusal is not None:
                await refusal(scope, receive, counted_send)
            else:
                await self._app(scope, self._limited(receive), counted_send)
        finally:
            self._count(scope, status)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        authorization = headers.get(b"authorization")
        principal = self._tokens.identify(None if authorization is None else authorization.decode("latin-1"))
        scope.setdefault("state", {})["principal"] = principal
        if scope["path"] in _UNLIMITED:
            return None
        named = principal is not None and principal.name is not None
        caller = f"token {principal.name}" if named and principal else f"address {(scope.get('client') or ['?'])[0]}"
        wait_s = self._limiter.take(caller, time.monotonic())
        if wait_s is not None:
            detail = f"too many requests by {caller}: wait {wait_s} s"
            return problem(429, detail, instance=scope["path"], headers={"Retry-After": str(wait_s)})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            headers_out = {"Connection": "close"}
            return problem(413, self._too_large, instance=scope["path"], headers=headers_out)
        return None

    def _limited(self, receive: Receive) -> Receive:
        seen = 0

        async def limited_receive() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body_bytes:
                raise HTTPException(413, self._too_large, {"Connection": "close"})
            return message

        return limited_receive

    def _count(self, scope: Scope, status: int) -> None:
        """By route, not by path, and only known methods: callers must not be able to create labels."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
