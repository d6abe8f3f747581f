"""The storage API as an ASGI application: each route decodes, calls the back end, encodes.

    POST   /v1/namespaces/{namespace}/items:write    write  many items
    POST   /v1/namespaces/{namespace}/items:read     read   many keys
    POST   /v1/namespaces/{namespace}/items:delete   write  many keys
    PUT    /v1/namespaces/{namespace}/items/{key}    write  one item; keys in paths are base64url
    GET    /v1/namespaces/{namespace}/items/{key}    read   the items of one key
    DELETE /v1/namespaces/{namespace}/items/{key}    write
    GET    /v1/namespaces/{namespace}                read   what it keeps, its generation, retained_from
    PUT    /v1/namespaces/{namespace}/retained_from  write  raise the floor
    GET    /v1/namespaces                            read   (of all) every namespace
    GET    /metrics                                  read   (of all)
    GET    /livez, /readyz, /openapi.json            open

A request's body is read on the event loop; decoding, the call of the back end and encoding happen in one hop to a
thread. A request counts towards `max_under_way` once its body is complete, so that slow bodies hold nobody back;
`max_held_bytes` limits their memory.
"""

from __future__ import annotations

import base64
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from io import BytesIO
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from teacup.http.server.application import SMALL_BODY_BYTES, GuardedRoute, framework, gated, needs, operations
from teacup.http.server.auth import Scope, Tokens
from teacup.http.server.limits import Places
from teacup.http.server.problem_details import RouteProblems, install, problem
from teacup.http.server.request_gate import Gate
from teacup.storage.api import content
from teacup.storage.api.batches import Batches, Turns
from teacup.storage.api.config import MAX_KEY_BYTES, NAME_PATTERN, NamespaceSettings, StorageServeConfig
from teacup.storage.api.content import (
    ANSWER_CONTENT,
    RetainedFromBody,
    items_request,
    keys_request,
    value_request,
    wanted_request,
)
from teacup.storage.api.metrics import StorageMetrics
from teacup.storage.codecs.codec import LARGEST, Codec, compress, decompress
from teacup.storage.codecs.json import (
    NO_ITEM,
    NO_NAMESPACE,
    OTHER_GENERATION,
    FoundBody,
    FoundsBody,
    NamespaceBody,
    NamespacesBody,
    OutcomeBody,
    OutcomesBody,
    ValueBody,
    check_members,
    found_document,
    parsed,
)
from teacup.storage.errors import (
    GenerationChanged,
    NamespaceUnknown,
    RequestInvalid,
    RequestMalformed,
    RequestTooLarge,
    StorageUnavailable,
)
from teacup.storage.model import Backend, Item, ReadResult, Status, WriteResult

logger = logging.getLogger("teacup.storage.api.app")

_PURGED_AT_ONCE = 1_024  # keys: a few milliseconds of a thread
_REALM = "storage"
_SELF = "this server"
_NO_STORE = {"Cache-Control": "no-store"}
_RETRY_AFTER_S = "1"
KEY_PATTERN = r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw](==)?|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=?)?$"
KEY_MAX_LENGTH = (8 * MAX_KEY_BYTES + 5) // 6
"""The length of a key of 1,024 bytes in base64url without padding; no shorter text stands for a longer key."""
_ERRORS: dict[type[Exception], tuple[int, str | None]] = {
    RequestMalformed: (400, None),
    RequestTooLarge: (413, None),
    RequestInvalid: (422, None),
    NamespaceUnknown: (404, NO_NAMESPACE),
    GenerationChanged: (409, OTHER_GENERATION),
    StorageUnavailable: (503, None),
}
_PROBLEM_OF: dict[Status, tuple[int, str]] = {
    Status.NOT_FOUND: (404, NO_ITEM),
    Status.CONFLICT: (409, "/problems/conflict"),
    Status.REJECTED: (422, "/problems/rejected"),
    Status.NO_LONGER_STORED: (410, "/problems/no-longer-stored"),
    Status.RETRYABLE: (503, "/problems/retryable"),
    Status.IN_DOUBT: (503, "/problems/in-doubt"),
}

PathName = Annotated[str, Path(pattern=NAME_PATTERN)]
PathKey = Annotated[str, Path(pattern=KEY_PATTERN, min_length=2, max_length=KEY_MAX_LENGTH, description="base64url")]
OfGeneration = Annotated[str | None, Query(description="only in this generation of the namespace, else 409")]
AsOf = Annotated[
    int | None, Query(ge=-LARGEST, le=LARGEST, description="`keep: versions`: its newest version at or below this one")
]
Done = tuple[Sequence[WriteResult] | Sequence[ReadResult], bytes]


def _needs(scope: Scope, max_body_bytes: int = 0) -> Any:
    def of_namespace(request: Request) -> str:
        return f"{request.path_params['namespace']}:{scope}"

    return needs(scope, _REALM, of_namespace, max_body_bytes=max_body_bytes)


_answers = RouteProblems(
    {
        400: "the body cannot be read",
        404: "no such namespace, or no item",
        406: "no media type that Accept names is offered",
        410: "what the key was at that time is not known any more",
        409: "a newer version is kept; or the namespace is of another generation",
        413: "too many items or bytes",
        415: "a media type or an encoding that is not understood",
        503: "the back end does not answer; see Retry-After",
    }
)


class Storage:
    """The routes of one worker, around its back end and its clock (milliseconds since the epoch)."""

    def __init__(self, backend: Backend, config: StorageServeConfig, clock_ms: Callable[[], int]) -> None:
        self._batches = Batches(backend, config.max_answer_bytes)
        self._config = config
        self._clock_ms = clock_ms
        self._namespaces = {settings.name: settings for settings in config.namespaces}
        self._turns = Turns(config.threads)
        self._places = Places(config.max_under_way)
        self.metrics = StorageMetrics()

    def router(self) -> APIRouter:
        """Returns the routes below /v1."""
        router = APIRouter(prefix="/v1/namespaces", tags=["storage"], route_class=GuardedRoute)
        read, write = [_needs(Scope.READ)], [_needs(Scope.WRITE)]
        large, keys, small = self._config.max_body_bytes, self._most_bytes("read"), SMALL_BODY_BYTES
        value_bytes = max(settings.max_value_bytes for settings in self._config.namespaces)
        single_item = min(large, small + 2 * value_bytes)  # in base64
        reads, writes, deletes = [_needs(Scope.READ, keys)], [_needs(Scope.WRITE, large)], [_needs(Scope.WRITE, keys)]
        writes_one, writes_number = [_needs(Scope.WRITE, single_item)], [_needs(Scope.WRITE, small)]
        batch = {200: ANSWER_CONTENT} | _answers(400, 401, 403, 404, 406, 415, 422, 503)
        single = _answers(401, 403, 404, 422, 503)
        most = self._config.max_items

        def route(method: str, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
            router.add_api_route(path, endpoint, methods=[method], operation_id=endpoint.__name__, **more)

        route("GET", "", self.list_namespaces, dependencies=[needs(Scope.READ, _REALM)],
              response_model=NamespacesBody, responses=_answers(401, 403, 503))  # fmt: skip
        route("GET", "/{namespace}", self.read_namespace, dependencies=read, response_model=NamespaceBody,
              responses=single)  # fmt: skip
        route("PUT", "/{namespace}/retained_from", self.raise_retained_from, dependencies=writes_number,
              response_model=NamespaceBody, responses=_answers(400, 401, 403, 404, 422, 503))  # fmt: skip
        route("POST", "/{namespace}/items:write", self.write_items, dependencies=writes, response_model=OutcomesBody,
              responses=batch | _answers(409), openapi_extra=items_request(most))  # fmt: skip
        route("POST", "/{namespace}/items:read", self.read_items, dependencies=reads, response_model=FoundsBody,
              responses=batch | _answers(409), openapi_extra=wanted_request(most))  # fmt: skip
        route("POST", "/{namespace}/items:delete", self.delete_items, dependencies=deletes, response_model=OutcomesBody,
              responses=batch, openapi_extra=keys_request(most))  # fmt: skip
        route("PUT", "/{namespace}/items/{key}", self.put_item, dependencies=writes_one, response_model=OutcomeBody,
              responses=single | _answers(400, 409, 415), openapi_extra=value_request())  # fmt: skip
        route("GET", "/{namespace}/items/{key}", self.get_item, dependencies=read, response_model=FoundBody,
              responses=single | _answers(410))  # fmt: skip
        route("DELETE", "/{namespace}/items/{key}", self.delete_item, dependencies=write, status_code=204,
              responses=single)  # fmt: skip
        return router

    def _most_bytes(self, operation: str) -> int:
        """Returns the limit of a batch's decompressed body: less for keys than for items, which have values."""
        large = self._config.max_body_bytes
        keys = SMALL_BODY_BYTES + (2 * MAX_KEY_BYTES + 20) * self._config.max_items  # in base64, with a version
        return large if operation == "write" else min(large, keys)

    async def write_items(self, namespace: PathName, request: Request, generation: OfGeneration = None) -> Response:
        """Write many items; each has its own status, in the order of the request."""
        return await self._batch(namespace, request, "write", partial(self._write, generation))

    async def read_items(self, namespace: PathName, request: Request, generation: OfGeneration = None) -> Response:
        """Read the live items of many keys, or what they were as of some version, in the order of the request."""
        return await self._batch(namespace, request, "read", partial(self._read, generation))

    async def delete_items(self, namespace: PathName, request: Request) -> Response:
        """Delete all items of many keys."""
        return await self._batch(namespace, request, "delete", self._delete)

    async def put_item(self, namespace: PathName, key: PathKey, request: Request) -> Response:
        """Write one item."""
        settings = self._settings(namespace)
        if content.request_codec(request.headers.get("content-type")).media_type != JSONResponse.media_type:
            raise HTTPException(415, "one item is sent as application/json")
        content_bytes = await _body(request)
        with self._under_way("write", request) as caller:
            body = parsed(ValueBody, content_bytes)
            check_members(content_bytes, len(body.model_fields_set))
            item = Item(_key_bytes(key), body.version, body.tag, body.value, body.expires_at_ms)
            (outcome,) = await self._turns.run(caller, self._batches.write, settings, [item], self._clock_ms())
        self.metrics.count(namespace, "write", [outcome])
        document = {"status": outcome.status, "reason": outcome.reason}
        return _single(request, outcome) or _json(document)

    async def get_item(self, namespace: PathName, key: PathKey, request: Request, as_of: AsOf = None) -> Response:
        """Read the live items of one key, or what it was as of some version."""
        settings = self._settings(namespace)
        with self._under_way("read", request) as caller:
            versions = None if as_of is None else [as_of]
            (result,) = await self._turns.run(
                caller, self._batches.read, settings, [_key_bytes(key)], self._clock_ms(), None, versions
            )
        self.metrics.count(namespace, "read", [result])
        return _single(request, result) or _json(found_document(result))

    async def delete_item(self, namespace: PathName, key: PathKey, request: Request) -> Response:
        """Delete all items of one key."""
        settings = self._settings(namespace)
        with self._under_way("delete", request) as caller:
            (outcome,) = await self._turns.run(
                caller, self._batches.delete, settings, [_key_bytes(key)], self._clock_ms()
            )
        self.metrics.count(namespace, "delete", [outcome])
        return _single(request, outcome) or Response(status_code=204)

    async def list_namespaces(self, request: Request) -> Response:
        """Every namespace of this server."""
        bodies = [await self._state(settings, request) for settings in self._namespaces.values()]
        return _json(NamespacesBody(namespaces=bodies))

    async def read_namespace(self, namespace: PathName, request: Request) -> Response:
        """A namespace's settings, its generation, and from which version it keeps items."""
        return _json(await self._state(self._settings(namespace), request))

    async def raise_retained_from(self, namespace: PathName, body: RetainedFromBody, request: Request) -> Response:
        """Record that items below this version were never stored. It only goes up: a lower one changes nothing."""
        settings = self._settings(namespace)
        with self._under_way("raise_retained_from", request) as caller:
            raised = self._batches.backend.raise_retained_from
            await self._turns.run(caller, raised, settings.namespace, body.retained_from)
        return _json(await self._state(settings, request))

    async def check(self) -> None:
        """Checks that the back end can be written. Raises `StorageUnavailable`."""
        namespace = self._config.namespaces[0].namespace
        await self._turns.run(_SELF, self._batches.backend.check, namespace, self._clock_ms())

    async def purge_at_intervals(self) -> None:
        """Frees expired items at intervals: writes do so too, but a store may be idle. Requests run in between."""
        while True:
            await anyio.sleep(self._config.purge_every_s * random.uniform(0.8, 1.2))  # not all workers at once
            try:
                while await self._turns.run(_SELF, self._batches.backend.purge, self._clock_ms(), _PURGED_AT_ONCE):
                    pass
            except StorageUnavailable as error:
                logger.warning("what has expired is not freed: %s (again in %g s)", error, self._config.purge_every_s)

    async def _batch(
        self,
        namespace: str,
        request: Request,
        operation: str,
        operate: Callable[[NamespaceSettings, bytes, Codec, Codec], Done],
    ) -> Response:
        settings = self._settings(namespace)
        headers = request.headers
        sent = content.request_codec(headers.get("content-type"))
        answer = content.answer_codec(headers.get("accept"), sent)
        packed = content.request_encoding(headers.get("content-encoding"))
        wanted = content.answer_encoding(headers.get("accept-encoding"))
        headers_out = {**_NO_STORE, "Vary": "Accept, Accept-Encoding"}

        def work(body: bytes) -> Response:
            plain = body if packed is None else decompress(body, packed, self._most_bytes(operation))
            results, encoded = operate(settings, plain, sent, answer)
            self.metrics.count(namespace, operation, results)
            if wanted is not None and len(encoded) >= content.SMALLEST_COMPRESSED:
                encoded = compress(encoded, wanted)
                headers_out["Content-Encoding"] = wanted
            return Response(encoded, media_type=answer.media_type, headers=headers_out)

        body = await _body(request)
        with self._under_way(operation, request) as caller:
            return await self._turns.run(caller, work, body)

    def _write(
        self, generation: str | None, settings: NamespaceSettings, body: bytes, sent: Codec, answer: Codec
    ) -> Done:
        items = sent.decode_items(body, self._config.max_items, self._config.max_body_bytes)
        outcomes = self._batches.write(settings, items, self._clock_ms(), generation)
        return outcomes, answer.encode_outcomes(outcomes)

    def _read(
        self, generation: str | None, settings: NamespaceSettings, body: bytes, sent: Codec, answer: Codec
    ) -> Done:
        keys, as_of = sent.decode_wanted(body, self._config.max_items, self._config.max_body_bytes)
        results = self._batches.read(settings, keys, self._clock_ms(), generation, as_of)
        return results, answer.encode_found(results)

    def _delete(self, settings: NamespaceSettings, body: bytes, sent: Codec, answer: Codec) -> Done:
        keys = sent.decode_keys(body, self._config.max_items, self._config.max_body_bytes)
        outcomes = self._batches.delete(settings, keys, self._clock_ms())
        return outcomes, answer.encode_outcomes(outcomes)

    async def _state(self, settings: NamespaceSettings, request: Request) -> NamespaceBody:
        now_ms = self._clock_ms()
        state = await self._turns.run(request.state.caller, self._batches.backend.state, settings.namespace, now_ms)
        return NamespaceBody(
            name=settings.name,
            keep=settings.keep,
            bound=settings.namespace.bound,
            retention_ms=settings.retention_ms,
            max_value_bytes=settings.max_value_bytes,
            generation=state.generation,
            retained_from=state.retained_from,
            now_ms=now_ms,
        )

    @contextmanager
    def _under_way(self, operation: str, request: Request) -> Iterator[str]:
        """Yields the caller in words. Raises 429."""
        caller: str = request.state.caller
        if not self._places.take(caller):
            detail = f"{caller} has too many requests under way in this worker (max_under_way): wait {_RETRY_AFTER_S} s"
            raise HTTPException(429, detail, {"Retry-After": _RETRY_AFTER_S})
        begun_s = time.perf_counter()
        self.metrics.under_way.inc()
        try:
            yield caller
        finally:
            self._places.give_back(caller)
            self.metrics.under_way.dec()
            self.metrics.seconds.labels(operation).observe(time.perf_counter() - begun_s)

    def _settings(self, namespace: str) -> NamespaceSettings:
        try:
            return self._namespaces[namespace]
        except KeyError:
            raise NamespaceUnknown(f"namespace {namespace!r} is not in the server's configuration") from None


def create_app(backend: Backend, tokens: Tokens, config: StorageServeConfig, clock_ms: Callable[[], int]) -> Gate:
    """Returns the application: routes, errors, limits. It closes the back end when the server stops."""
    storage = Storage(backend, config, clock_ms)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with anyio.create_task_group() as background:
            background.start_soon(storage.purge_at_intervals)
            yield
            background.cancel_scope.cancel()
        backend.close()

    description = "Arbitrary bytes by key in namespaces, many items per request."
    app = framework("Teacup Storage", description, lifespan=lifespan)
    install(app, _ERRORS, int(_RETRY_AFTER_S))
    app.include_router(storage.router())
    app.include_router(operations(_REALM, storage.check, storage.metrics.text, _answers))
    return gated(app, config, tokens, storage.metrics.requests)


async def _body(request: Request) -> bytes:
    """Reads it into one block that grows in place: small ones would have to be joined, and leave holes in the heap."""
    body = BytesIO()
    try:
        async for piece in request.stream():
            body.write(piece)
        return body.getvalue()
    except ClientDisconnect as error:
        raise HTTPException(400, "the connection was closed before the body was complete") from error


def _key_bytes(key: str) -> bytes:
    bare = key.rstrip("=")
    return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))


def _single(request: Request, result: WriteResult | ReadResult) -> Response | None:
    """Returns the problem for a single result; None if it is `ok`."""
    if result.status is Status.OK:
        return None
    status, kind = _PROBLEM_OF[result.status]
    headers = {"Retry-After": _RETRY_AFTER_S} if status == 503 else {}
    detail = result.reason or f"{result.status.value}: the key has no live item"
    return problem(status, detail, kind=kind, instance=request.url.path, headers=headers)


def _json(document: Any) -> Response:
    return Response(to_json(document, bytes_mode="base64"), media_type=JSONResponse.media_type, headers=_NO_STORE)
