"""What is around the routes of a server: the framework's settings, routes for operators, the gate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter

from httpapi.server.access import GuardedRoute, needs
from httpapi.server.auth import Scope, Tokens
from httpapi.server.limits import HeldBytes, RateLimiter
from httpapi.server.problemdetails import RouteProblems
from httpapi.server.readiness import Readiness
from httpapi.server.requestgate import Gate
from httpapi.server.serverkeys import ServerKeys


def framework(title: str, description: str, **more: Any) -> FastAPI:
    """Returns an application without routes. Its OpenAPI document is served, the pages that show it are not."""
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
        requests=requests,
    )


def operations(
    realm: str, ready: Callable[[], Awaitable[None]], metrics: Callable[[], bytes], answers: RouteProblems
) -> APIRouter:
    """Routes for operators. `ready` raises if the server cannot serve; `metrics`: Prometheus' text format."""
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
