"""Every error of the API as RFC 9457 problem details, in its answers and in its OpenAPI description.

status  type                       raised by
400     /problems/malformed        a body that is not JSON, or has a member twice; headers that must not be
401     /problems/unauthenticated  no token although one is needed, or an unknown token
403     /problems/forbidden        a token without the scope
404     /problems/not-found        an unknown path
405     /problems/method           an unsupported method; `Allow` names the supported ones
406     /problems/not-acceptable   none of the media types in `Accept` is offered
408     /problems/too-slow         the body did not arrive in time
413     /problems/too-large        the body is beyond the limit
415     /problems/media-type       a body with an unsupported media type or encoding
422     /problems/invalid          a value is not allowed; `errors` points at it
429     /problems/too-many         beyond the rate limit; `Retry-After` says how long to wait
500     /problems/defect           a defect of the server; its log has the trace
503     /problems/unavailable      the database or the store does not answer

A server passes to `install` the status of each of its own errors, and the type if it differs from this table.
`RouteProblems` describes what its routes may answer; 413, 429 and 500 may come from any.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.routing import Match

from teacup.http.bodies import ProblemBody, ProblemPart

logger = logging.getLogger("teacup.http.server.problem_details")

MEDIA_TYPE = "application/problem+json"
RETRY_UNAVAILABLE_S = 5
_METHODS = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")
_KINDS = {
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method",
    406: "not-acceptable",
    408: "too-slow",
    413: "too-large",
    415: "media-type",
    422: "invalid",
    429: "too-many",
    500: "defect",
    503: "unavailable",
}


_MEANINGS = {
    401: "no token, or an unknown one",
    403: "the token lacks the scope",
    413: "the body is too large",
    422: "a value is not allowed",
    429: "too many requests; see Retry-After",
    500: "a defect of the server",
}


class RouteProblems:
    """Describes for OpenAPI the problems that a route may answer with; called with their statuses."""

    def __init__(self, meanings: Mapping[int, str]) -> None:
        self._meanings = {**_MEANINGS, **meanings}

    def __call__(self, *statuses: int) -> dict[int | str, dict[str, Any]]:
        return {status: {"description": self._meanings[status]} for status in (*statuses, 413, 429, 500)}


def problem(
    status: int,
    detail: str,
    *,
    kind: str | None = None,
    instance: str | None = None,
    errors: list[ProblemPart] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns the answer that describes a problem."""
    body = ProblemBody(
        type=kind or (f"/problems/{_KINDS[status]}" if status in _KINDS else "about:blank"),
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=instance,
        errors=errors,
    )
    return Response(
        body.model_dump_json(exclude_none=True),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def install(
    app: FastAPI,
    meanings: Mapping[type[Exception], tuple[int, str | None]],
    retry_unavailable_s: int = RETRY_UNAVAILABLE_S,
) -> None:
    """Answers every error of `app` with a problem, and describes that in OpenAPI.

    `meanings`: the status of an error and the type of its problem (None: the status's usual type). An error's base
    class must come after it.
    """

    async def known_error(request: Request, error: Exception) -> Response:
        status, kind = next(meaning for error_class, meaning in meanings.items() if isinstance(error, error_class))
        headers = {}
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            logger.error("%s %s: %s", request.method, request.scope["route"].path, error)  # few different lines
            headers["Retry-After"] = str(retry_unavailable_s)
        return problem(status, str(error), kind=kind, instance=request.url.path, headers=headers)

    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    for error_class in meanings:
        app.add_exception_handler(error_class, known_error)
    app.add_exception_handler(Exception, _defect)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, detail = dict(error.headers or {}), error.detail
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allowed = ", ".join(_methods(request))
        detail = f"{request.method} is not allowed here, but {allowed}"
    return problem(error.status_code, detail, instance=request.url.path, headers=headers)


def _methods(request: Request) -> list[str]:
    """Returns the methods of all routes of this path, as the framework's answer names those of one route only."""
    routes = request.app.router.routes
    asked = {method: {**request.scope, "method": method} for method in _METHODS}
    return [m for m, scope in asked.items() if any(route.matches(scope)[0] is Match.FULL for route in routes)]


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = error.errors()
    if any(part["type"] == "json_invalid" for part in parts):
        return problem(400, "the body is not JSON", instance=request.url.path)
    return problem(
        422,
        "the request has values that are not allowed; `errors` points at them",
        instance=request.url.path,
        errors=[
            ProblemPart(pointer="/" + "/".join(map(str, part["loc"])), detail=str(part["msg"])) for part in parts[:20]
        ],
    )


async def _defect(request: Request, error: Exception) -> Response:
    """Answers without the trace, which the server itself logs."""
    return problem(500, "a defect of the server: its log has the trace", instance=request.url.path)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Returns FastAPI's description, with problems instead of its own error schemas."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, definitions = models_json_schema(
            [(ProblemBody, "serialization")], ref_template="#/components/schemas/{model}"
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.update(definitions["$defs"])
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
        for path in document["paths"].values():
            for operation in path.values():
                for status, answer in operation["responses"].items():
                    if int(status) >= HTTPStatus.BAD_REQUEST:
                        answer["content"] = content
        app.openapi_schema = document
    return app.openapi_schema
