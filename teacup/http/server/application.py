"""Around the routes of a server: the settings of the framework, checks of each route, routes for operators, the gate.

A `GuardedRoute` refuses what its `Needs` do not allow before a byte of a body is read: 401 if a token would help, 403
if the caller's token lacks the scope (RFC 6750), 413 for a body beyond the route's limit. The gate has already
identified the caller. Several scopes may satisfy a request: `write` for a whole server, or `impressions:write` for one
part of it.

JSON of a MiB may stand for a million values, which would take the event loop hundreds of milliseconds to parse and to
refuse. So a route can have a limit of values, counted while the body arrives.

FastAPI reads and parses a body before it calls dependencies, so a dependency alone would refuse too late. Starlette's
own limit (`max_body_size`) answers plain text instead of a problem, even where a 401 is due.

Whether the server can serve is checked once a second however many ask, as a check writes, and anybody may ask.
"""

from __future__ import annotations

import asyncio
import collections
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, Counter
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Message, Receive

from teacup.http.server.auth import Principal, Scope, Tokens
from teacup.http.server.config import ServerKeys
from teacup.http.server.limits import HeldBytes, RateLimiter
from teacup.http.server.problem_details import RouteProblems
from teacup.http.server.request_gate import Gate

SMALL_BODY_BYTES = 4_096
"""The limit of routes that take a number, or a note."""
_MEMBERS_MAX = 100  # no body of an API here has a tenth of it, and looking at many more takes the event loop long
_CHECKED_EVERY_S = 1.0


def framework(title: str, description: str, **more: Any) -> FastAPI:
    """Returns an application without routes. It serves its OpenAPI document, but not the pages that show it."""
    return FastAPI(
        title=title,
        version="1",
        description=description,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        **more,
    )


def gated(app: FastAPI, keys: ServerKeys, tokens: Tokens, requests: Counter) -> Gate:
    """Puts the application behind the gate that every request passes; `requests` counts them."""
    return Gate(
        app,
        tokens=tokens,
        limiter=RateLimiter(keys.requests_per_s, keys.burst),
        bodies=HeldBytes(keys.max_held_bytes),
        answers=HeldBytes(keys.max_held_bytes),
        body_within_s=keys.body_within_s,
        requests=requests,
    )


def operations(
    realm: str, ready: Callable[[], Awaitable[None]], metrics: Callable[[], bytes], answers: RouteProblems
) -> APIRouter:
    """Returns routes for operators. `ready` raises if the server cannot serve; `metrics`: Prometheus' text format."""
    router = APIRouter(tags=["operations"], route_class=GuardedRoute)
    readiness = Readiness(ready)

    @router.get("/livez", response_class=PlainTextResponse, responses=answers())
    async def livez() -> str:
        """Whether the process answers."""
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse, responses=answers(503))
    async def readyz() -> str:
        """Whether its database or store can be written as well; asked once a second."""
        await readiness()
        return "ok\n"

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        dependencies=[needs(Scope.READ, realm)],
        responses=answers(401, 403),
    )
    def metrics_text() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(metrics(), media_type=CONTENT_TYPE_LATEST)

    return router


class Needs(HTTPBearer):
    """What a route asks of its callers; as a dependency it only adds the token to the OpenAPI description.

    scope            allows the request
    instead          gives another scope that allows it, if there is one
    max_body_bytes   of a body; 0 for routes that read none
    max_values       of a JSON body, by its commas and brackets; None: no limit
    """

    def __init__(
        self,
        scope: str,
        realm: str,
        instead: Callable[[Request], str] | None = None,
        max_body_bytes: int = 0,
        max_values: int | None = None,
    ) -> None:
        description = "a token of the server's tokens file or environment"
        super().__init__(scheme_name="HTTPBearer", auto_error=False, description=description)
        self._scope = str(scope)
        self._realm = realm
        self._instead = instead
        self._max_body_bytes = max_body_bytes
        self._max_values = max_values

    async def __call__(self, request: HTTPConnection) -> None:
        """Does nothing: `GuardedRoute` has checked before the body was read."""

    def check(self, request: Request) -> None:
        """Raises `HTTPException` 401, 403, 413."""
        self._check_scope(request)
        length = request.headers.get("content-length", "0")
        if self._max_body_bytes and length.isdigit() and int(length) > self._max_body_bytes:
            raise self._too_large()

    def limited(self, receive: Receive) -> Receive:
        """Returns the body as it arrives, up to the limits, as Content-Length may be missing or wrong. Raises 413."""
        size = values = 0

        async def limited_receive() -> Message:
            nonlocal size, values
            message = await receive()
            body = message.get("body", b"")
            size += len(body)
            if size > self._max_body_bytes:
                raise self._too_large()
            if self._max_values is not None:
                values += sum(map(body.count, b",[{"))
                if values > self._max_values:
                    raise HTTPException(413, f"a body has at most {self._max_values} commas and brackets here")
            return message

        return limited_receive

    def _check_scope(self, request: Request) -> None:
        principal: Principal | None = request.state.principal
        challenge = {"WWW-Authenticate": f'Bearer realm="{self._realm}", scope="{self._scope}"'}
        if principal is None:
            challenge["WWW-Authenticate"] += ', error="invalid_token"'
            raise HTTPException(401, "this token is not known here: check its value", challenge)
        wanted = [self._scope] if self._instead is None else [self._scope, self._instead(request)]
        if not principal.scopes.isdisjoint(wanted):
            return
        words = " or ".join(wanted)
        if principal.name is None:
            raise HTTPException(401, f"a bearer token with scope {words} is needed", challenge)
        challenge["WWW-Authenticate"] += ', error="insufficient_scope"'
        raise HTTPException(403, f"token {principal.name!r} lacks the scope {words}", challenge)

    def _too_large(self) -> HTTPException:
        most = f"a body has at most {self._max_body_bytes} bytes here (max_body_bytes, or the route's own limit)"
        return HTTPException(413, most)


def needs(
    scope: str,
    realm: str,
    instead: Callable[[Request], str] | None = None,
    *,
    max_body_bytes: int = 0,
    max_values: int | None = None,
) -> Any:
    """Returns `Needs`, for the `dependencies` of a route whose class is `GuardedRoute`."""
    return Depends(Needs(scope, realm, instead, max_body_bytes, max_values))


class _StrictRequest(Request):
    """A request whose JSON has no member twice: a parser takes the last, and the sender may have meant the first."""

    async def json(self) -> Any:
        """Raises `HTTPException` 400, and what `json.loads` raises."""
        return json.loads(await self.body(), object_pairs_hook=_members)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MEMBERS_MAX:
        raise HTTPException(413, f"an object of a body has at most {_MEMBERS_MAX} members here")
    members = dict(pairs)
    if len(members) < len(pairs):
        ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise HTTPException(400, f"the body has the member {twice[:40]!r} twice in one object")
    return members


class GuardedRoute(APIRoute):
    """A route that checks what it `Needs` first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the framework's handler, behind the checks."""
        handler = super().get_route_handler()
        needed = [depends.dependency for depends in self.dependencies if isinstance(depends.dependency, Needs)]

        async def guarded(request: Request) -> Response:
            receive = request.receive
            for need in needed:
                need.check(request)
                receive = need.limited(receive)
            return await handler(_StrictRequest(request.scope, receive))

        return guarded


class Readiness:
    """Remembers the result of `check`, which raises if the server cannot serve. For use on one event loop only."""

    def __init__(self, check: Callable[[], Awaitable[None]], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._clock_s = clock_s
        self._checking: asyncio.Task[None] | None = None
        self._again_s = 0.0

    async def __call__(self) -> None:
        """Raises what the newest check has raised."""
        if self._checking is None or (self._checking.done() and self._clock_s() >= self._again_s):
            self._again_s = self._clock_s() + _CHECKED_EVERY_S
            self._checking = asyncio.create_task(self._checked())
        await asyncio.shield(self._checking)

    async def _checked(self) -> None:
        await self._check()
