"""Refuses callers without a scope: 401 if a token would help, 403 if their token lacks the scope (RFC 6750).

The gate has already identified them. Several scopes may satisfy a request: `write` for a whole server, or
`impressions:write` for one part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from httpapi.server.auth import Principal

_bearer = HTTPBearer(auto_error=False, description="a token of the server's tokens file or environment")


def needs(scope: str, realm: str, instead: Callable[[Request], str] | None = None) -> Any:
    """A dependency that refuses callers who have neither `scope` nor the scope that `instead` gives for the request."""

    async def check(request: Request, _: Annotated[object, Depends(_bearer)]) -> None:
        principal: Principal | None = request.state.principal
        challenge = {"WWW-Authenticate": f'Bearer realm="{realm}", scope="{scope}"'}
        if principal is None:
            challenge["WWW-Authenticate"] += ', error="invalid_token"'
            raise HTTPException(401, "this token is not known here: check its value", challenge)
        wanted = [str(scope)] if instead is None else [str(scope), instead(request)]
        if not principal.scopes.isdisjoint(wanted):
            return
        words = " or ".join(wanted)
        if principal.name is None:
            raise HTTPException(401, f"a bearer token with scope {words} is needed", challenge)
        challenge["WWW-Authenticate"] += ', error="insufficient_scope"'
        raise HTTPException(403, f"token {principal.name!r} lacks the scope {words}", challenge)

    return Depends(check)
