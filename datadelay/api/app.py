"""The Data Delay API as an ASGI application: each route decodes, calls the store or one pure function, encodes.

    PUT    /v1/delays/{consumer}/{topic}          write  submit; the identical submission may be repeated
    GET    /v1/delays/{consumer}/{topic}          read   one delay
    GET    /v1/delays                             read   all of them
    GET    /v1/delays/{consumer}/{topic}/history  read   what was published when, newest first
    POST   /v1/delays/{consumer}/{topic}/rewind   write  the consumer went back on purpose
    DELETE /v1/delays/{consumer}/{topic}          write  the consumer is retired: delete it
    GET    /metrics                               read
    GET    /livez, /readyz, /, /openapi.json      open

Delays are read from memory on the event loop, unless the database is shared; everything that touches the database runs
in threads. A server is one process with one event loop.

Its metrics cover every delay at the moment of a scrape, and the API itself. An unknown delay has no sample of
`teacup_data_delay_seconds`: 0 would read as "no delay", and NaN silences most alert rules. Alert on the state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from datadelay.api import page
from datadelay.api.config import DelayServeConfig
from datadelay.api.store import DelayStore, HistoryPages, never_submitted
from datadelay.errors import DelayNotFound, StoreUnavailable, SubmissionInvalid, SubmissionLate
from datadelay.model import NAME_MAX, NAME_PATTERN, PARTITIONS_MAX, Delay, DelayState
from datadelay.publish import Published, accept, rewind, view
from datadelay.wire import (
    NO_DELAY,
    DelayBody,
    DelayListBody,
    HistoryBody,
    PointBody,
    RewindBody,
    SubmissionBody,
)
from teacup.base.now import read_clocks
from teacup.base.times import iso
from teacup.http.server.application import SMALL_BODY_BYTES, GuardedRoute, framework, gated, needs, operations
from teacup.http.server.auth import Scope, Tokens
from teacup.http.server.problem_details import RouteProblems, install
from teacup.http.server.request_gate import Gate
from teacup.http.server.serving import SteadyClock, listen, url, uvicorn_config

__all__ = ["DelayServeConfig", "serve"]

logger = logging.getLogger("teacup.datadelay.api.app")

HISTORY_PAGE_MAX = 2_000
_SEQUENCE_MAX = 2**53
_SUBMITTED_VALUES = 8 * PARTITIONS_MAX  # a partition has 5 commas and brackets; the remaining 3 are for texts
_REALM = "data delay"
_NO_STORE = {"Cache-Control": "no-store"}

Result = TypeVar("Result")
PathName = Annotated[str, Path(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
_ERRORS: dict[type[Exception], tuple[int, str | None]] = {
    SubmissionInvalid: (422, None),
    SubmissionLate: (409, "/problems/late"),
    DelayNotFound: (404, NO_DELAY),
    StoreUnavailable: (503, None),
}
_answers = RouteProblems(
    {
        400: "the body is not JSON",
        404: "nothing was ever submitted for this consumer and topic",
        409: "a newer submission, or a rewind, was there first; nothing was changed",
        503: "the database does not answer; see Retry-After",
    }
)


def serve(config: DelayServeConfig) -> None:
    """Serves until SIGTERM or SIGINT; requests in progress are completed.

    Raises `SettingsInvalid`, `ConfigInvalid` and `StoreUnavailable` before anything is served.
    """
    tokens = config.load_tokens(os.environ)
    with (
        DelayStore.open(
            config.database,
            retention_ms=round(config.history_retention_s * 1000),
            max_points=config.history_max_points,
        ) as store,
        listen(config) as listener,
    ):
        app = create_app(store, tokens, config, SteadyClock(read_clocks(), believes_ahead=True))
        logger.info("the Data Delay API listens on %s", url(config, listener))
        uvicorn.Server(uvicorn_config(config, app, timeout_graceful_shutdown=10)).run(sockets=[listener])


def create_app(store: DelayStore, tokens: Tokens, config: DelayServeConfig, clock_ms: Callable[[], int]) -> Gate:
    """Returns the application: routes, page, errors, limits."""
    delays = Delays(store, config, clock_ms)
    app = framework("Teacup Data Delay", "How far has a consumer come in event time?")
    install(app, _ERRORS)
    app.include_router(delays.router())
    app.include_router(operations(_REALM, partial(run_in_threadpool, store.check), delays.metrics.text, _answers))
    app.include_router(page.router())
    return gated(app, config, tokens, delays.metrics.requests)


class Delays:
    """The routes of one server, around its store and its clock (milliseconds since the epoch)."""

    def __init__(self, store: DelayStore, config: DelayServeConfig, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._config = config
        self._clock_ms = clock_ms
        self._histories = HistoryPages()
        self.metrics = DelayMetrics(self.all)

    def all(self) -> list[Delay]:
        """Returns everything that is published now."""
        now_ms = self._clock_ms()
        return [self._view(published, now_ms) for published in self._store.all()]

    def _view(self, published: Published, now_ms: int, with_partitions: bool = False) -> Delay:
        stale_after_ms = self._config.stale_after_ms(published.last.consumer)
        return view(published, now_ms=now_ms, stale_after_ms=stale_after_ms, with_partitions=with_partitions)

    def router(self) -> APIRouter:
        """Returns the routes below /v1."""
        router = APIRouter(prefix="/v1/delays", tags=["delays"], route_class=GuardedRoute)
        delay = "/{consumer}/{topic}"
        read, write = [needs(Scope.READ, _REALM)], [needs(Scope.WRITE, _REALM)]
        most_bytes = self._config.max_body_bytes
        submits = [needs(Scope.WRITE, _REALM, max_body_bytes=most_bytes, max_values=_SUBMITTED_VALUES)]
        notes = [needs(Scope.WRITE, _REALM, max_body_bytes=SMALL_BODY_BYTES)]

        def route(method: str, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
            router.add_api_route(path, endpoint, methods=[method], operation_id=endpoint.__name__, **more)

        route("GET", "", self.list_delays, dependencies=read, response_model=DelayListBody,
              responses=_answers(401, 403, 503))  # fmt: skip
        route("GET", delay, self.read_delay, dependencies=read, response_model=DelayBody,
              responses=_answers(401, 403, 404, 422, 503))  # fmt: skip
        route("PUT", delay, self.submit, dependencies=submits, response_model=DelayBody,
              responses=_answers(400, 401, 403, 409, 422, 503))  # fmt: skip
        route("DELETE", delay, self.forget, dependencies=write, status_code=204,
              responses=_answers(401, 403, 404, 422, 503))  # fmt: skip
        route("GET", delay + "/history", self.read_history, dependencies=read, response_model=HistoryBody,
              responses=_answers(401, 403, 404, 422, 503))  # fmt: skip
        route("POST", delay + "/rewind", self.rewind, dependencies=notes, response_model=DelayBody,
              responses=_answers(400, 401, 403, 404, 422, 503))  # fmt: skip
        return router

    async def list_delays(self) -> Response:
        """Returns every consumer and topic."""
        every = await self._read(self._store.all)
        now_ms = self._clock_ms()
        delays = [DelayBody.of(self._view(published, now_ms)) for published in every]
        return _json(DelayListBody(now_ms=now_ms, now=iso(now_ms), delays=delays))

    async def read_delay(
        self,
        consumer: PathName,
        topic: PathName,
        partitions: Annotated[bool, Query(description="name every partition")] = False,
    ) -> Response:
        """Returns how far a consumer has come in a topic."""
        published = await self._read(self._store.get, consumer, topic)
        return _json(DelayBody.of(self._view(published, self._clock_ms(), partitions)))

    def submit(self, consumer: PathName, topic: PathName, body: SubmissionBody) -> Response:
        """Submits a collector's findings. Refused (409) if a newer submission or a rewind came first."""
        now_ms = self._clock_ms()
        stale_after_ms, bounds = self._config.stale_after_ms(consumer), self._config.bounds
        try:
            submission = body.submission(consumer, topic)
            published = self._store.change(
                consumer,
                topic,
                lambda before: accept(before, submission, now_ms=now_ms, stale_after_ms=stale_after_ms, bounds=bounds),
                now_ms,
            )
        except SubmissionLate:
            self.metrics.refused.labels("late").inc()
            raise
        except SubmissionInvalid:
            self.metrics.refused.labels("invalid").inc()
            raise
        return _json(DelayBody.of(self._view(published, now_ms)))

    def rewind(self, consumer: PathName, topic: PathName, body: RewindBody) -> Response:
        """Reports that the consumer went back on purpose: unknown until the next submission, which is accepted."""
        now_ms = self._clock_ms()

        def decide(before: Published | None) -> Published:
            if before is None:
                raise never_submitted(consumer, topic)
            return rewind(before, now_ms=now_ms, note=body.note)

        published = self._store.change(consumer, topic, decide, now_ms)
        return _json(DelayBody.of(self._view(published, now_ms)))

    def forget(self, consumer: PathName, topic: PathName) -> Response:
        """Deletes a retired consumer and topic, with its history."""
        self._store.forget(consumer, topic)
        return Response(status_code=204)

    async def read_history(
        self,
        consumer: PathName,
        topic: PathName,
        limit: Annotated[int, Query(ge=1, le=HISTORY_PAGE_MAX)] = 200,
        before: Annotated[int | None, Query(ge=1, le=_SEQUENCE_MAX, description="next_before of a page")] = None,
        since_ms: Annotated[int | None, Query(ge=-_SEQUENCE_MAX, le=_SEQUENCE_MAX)] = None,
    ) -> Response:
        """Returns what was published when, newest first."""
        published = await self._read(self._store.get, consumer, topic)
        query = (consumer, topic, limit, before, since_ms)
        page_json = self._histories.get(query, published)
        if page_json is None:
            page_json = await run_in_threadpool(self._history_page, *query)
            self._histories.put(query, published, page_json)
        return Response(page_json, media_type=JSONResponse.media_type, headers=_NO_STORE)

    async def _read(self, read: Callable[..., Result], *arguments: str) -> Result:
        """Reads from memory at once, or from a shared database in a thread."""
        return await run_in_threadpool(read, *arguments) if self._store.shared else read(*arguments)

    def _history_page(self, consumer: str, topic: str, limit: int, before: int | None, since_ms: int | None) -> bytes:
        points = self._store.history(consumer, topic, limit=limit + 1, before=before, since_ms=since_ms)
        page_points, more = points[:limit], len(points) > limit
        body = HistoryBody(
            consumer=consumer,
            topic=topic,
            points=[PointBody.of(point) for point in page_points],
            next_before=page_points[-1].sequence if more else None,
        )
        return body.model_dump_json().encode()


class DelayCollector(Collector):
    """Turns what is published at the moment of a scrape into samples."""

    def __init__(self, delays: Callable[[], Iterable[Delay]]) -> None:
        self._delays = delays

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Returns the four families."""
        labels = ["consumer", "topic"]
        seconds = GaugeMetricFamily(
            "teacup_data_delay_seconds",
            "Now minus `consumed_until`; missing while the delay is unknown.",
            labels=labels,
        )
        success = GaugeMetricFamily(
            "teacup_data_delay_last_success_age_seconds",
            "Age of the newest submission with a value; missing before the first.",
            labels=labels,
        )
        age = GaugeMetricFamily(
            "teacup_data_delay_last_submission_age_seconds", "Age of the newest submission.", labels=labels
        )
        state = GaugeMetricFamily(
            "teacup_data_delay_state", "1 for the current state, 0 for the others.", labels=[*labels, "state"]
        )
        for delay in self._delays():
            names = [delay.consumer, delay.topic]
            if delay.delay_ms is not None:
                seconds.add_metric(names, delay.delay_ms / 1000)
            if delay.success_ms is not None:
                success.add_metric(names, (delay.now_ms - delay.success_ms) / 1000)
            age.add_metric(names, delay.age_ms / 1000)
            for each in DelayState:
                state.add_metric([*names, each.value], float(each is delay.state))
        return [seconds, success, age, state]


class DelayMetrics:
    """The registry of one server."""

    def __init__(self, delays: Callable[[], Iterable[Delay]]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(DelayCollector(delays))
        self.requests = Counter(
            "teacup_data_delay_requests",
            "Answered requests.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.refused = Counter(
            "teacup_data_delay_refused_submissions",
            "Refused submissions: `late`, `invalid`.",
            ["reason"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def _json(body: DelayBody | DelayListBody) -> Response:
    return Response(body.model_dump_json(), media_type=JSONResponse.media_type, headers=_NO_STORE)
