"""What every request passes before the application: identification, rate limit, held bytes; afterwards it is counted.

Plain ASGI, because it must see the body's bytes arrive, and when the last of them is needed no longer.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Response
from prometheus_client import Counter
from starlette.exceptions import HTTPException

from httpapi.server.auth import Tokens
from httpapi.server.limits import HeldBytes, RateLimiter
from httpapi.server.problemdetails import problem
from httpapi.server.sending import Message, Send, Sending

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

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
        requests: Counter,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limiter = limiter
        self._bodies = bodies
        self._answers = answers
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        held = 0
        caller = scope["state"]["caller"] = self._identified(scope)
        sending = Sending(send, self._answers, caller, scope["path"])

        async def held_receive() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if not self._bodies.take(caller, size):
                detail = f"too many bytes of bodies by {caller}, or by all callers (max_held_bytes): wait 1 s"
                raise HTTPException(429, detail, {"Retry-After": "1"})
            held += size
            return message

        refusal = self._refusal(scope, caller)
        try:
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                await self._app(scope, held_receive, sending)
        finally:
            self._bodies.give_back(caller, held)
            sending.over()
            self._count(scope, sending.status)

    def _identified(self, scope: Scope) -> str:
        """Returns the caller, in words: limits are by token, or by address without one that is known."""
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
        wrong = _wrong_headers([name for name, _ in scope["headers"]])
        return None if wrong is None else problem(400, wrong, instance=scope["path"])

    def _count(self, scope: Scope, status: int) -> None:
        """Counts by route, not by path, and only known methods: callers must not be able to create labels."""
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()


def _wrong_headers(names: list[bytes]) -> str | None:
    """Says which headers a request must not have; the body of one that asks for another protocol is not parsed."""
    if names.count(b"authorization") > 1:
        return "the request has two Authorization headers: send one"
    if b"upgrade" in names and (b"content-length" in names or b"transfer-encoding" in names):
        return "a request with a body must not ask for another protocol (Upgrade): this server speaks HTTP/1.1"
    return None
