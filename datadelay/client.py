"""The Data Delay API for programs: a collector submits through it, and the gate of a join reads through it.

Every call has time-outs and a bounded number of attempts. It either returns the server's answer or raises
`DelayCallFailed` (or the server's own refusal): a gate that gets an exception knows nothing and stays shut. Calls are
retried with growing pauses, or after the server's Retry-After up to 10 s:

    reads, submissions (an identical one changes nothing)      after any lost or incomplete answer, 429, 5xx
    rewinds and forgets (they could undo a later submission)   after 429, 503, no connection: nothing was done
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from datadelay.errors import (
    ConfigInvalid,
    DelayAccessDenied,
    DelayAnswerNotUnderstood,
    DelayCallFailed,
    DelayNotFound,
    DelayRateLimited,
    DelayServerUnavailable,
    DelayWrongServer,
    SubmissionInvalid,
    SubmissionLate,
)
from datadelay.model import Delay, Point, Submission
from datadelay.wire import NO_DELAY, DelayBody, DelayListBody, HistoryBody, RewindBody, SubmissionBody
from teacup.http.client.retries import ApiErrors, Patience
from teacup.http.client.transport import ApiClient, Transport

__all__ = ["Delay", "DelayClient", "HistoryPage"]

Answer = TypeVar("Answer")

_JSON = "application/json"

_ERRORS = ApiErrors(
    api="Data Delay API",
    misconfigured=ConfigInvalid,
    unreachable=DelayServerUnavailable,
    not_understood=DelayAnswerNotUnderstood,
    wrong_server=DelayWrongServer,
    rate_limited=DelayRateLimited,
    refused=DelayCallFailed,
    not_found=NO_DELAY,
    by_status={401: DelayAccessDenied, 403: DelayAccessDenied, 404: DelayNotFound, 409: SubmissionLate},
)
_SUBMISSION_REFUSED = {400: SubmissionInvalid, 413: SubmissionInvalid, 422: SubmissionInvalid}


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of a history, newest first. Pass `next_before` to get the next, older page; None if there is none."""

    points: tuple[Point, ...]
    next_before: int | None


class DelayClient(ApiClient):
    """Calls one Data Delay API. Close it, or use it in a `with`.

    url                 `https://delay.example:8710`
    token               a bearer token; None if the server is open
    connect_timeout_s   for a connection
    read_timeout_s      between two pieces of an answer
    retries             attempts after the first one
    verify              False or the path of a CA bundle; True: the system's, or that of REQUESTS_CA_BUNDLE
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        connect_timeout_s: float = 2.0,
        read_timeout_s: float = 5.0,
        retries: int = 3,
        verify: bool | str = True,
    ) -> None:
        transport = Transport(
            url, token, _ERRORS, connect_timeout_s=connect_timeout_s, read_timeout_s=read_timeout_s, verify=verify
        )
        super().__init__(transport, Patience(1 + retries))

    def submit(self, submission: Submission) -> Delay:
        """Submits a collector's findings; returns what is published now.

        Raises `SubmissionLate`, `SubmissionInvalid`, `DelayCallFailed`.
        """
        path = _path(submission.consumer, submission.topic)
        body = SubmissionBody.of(submission)
        return self._call("PUT", path, _delay, body=body, refusals=_SUBMISSION_REFUSED)

    def read(self, consumer: str, topic: str, *, partitions: bool = False) -> Delay:
        """Returns how far `consumer` has come in `topic`. Raises `DelayNotFound`, `DelayCallFailed`."""
        query = {"partitions": "true"} if partitions else None
        return self._call("GET", _path(consumer, topic), _delay, query=query)

    def list(self) -> tuple[Delay, ...]:
        """Returns every consumer and topic, by name. Raises `DelayCallFailed`."""
        return self._call("GET", "/v1/delays", _delays)

    def history(
        self,
        consumer: str,
        topic: str,
        *,
        limit: int = 200,
        before: int | None = None,
        since_ms: int | None = None,
    ) -> HistoryPage:
        """Returns what was published when, newest first. Raises `DelayNotFound`, `DelayCallFailed`."""
        wanted = {"limit": limit, "before": before, "since_ms": since_ms}
        query = {name: str(value) for name, value in wanted.items() if value is not None}
        return self._call("GET", _path(consumer, topic) + "/history", _page, query=query)

    def rewind(self, consumer: str, topic: str, note: str | None = None) -> Delay:
        """Reports that the consumer went back on purpose: unknown until the next submission, which is accepted."""
        path = _path(consumer, topic) + "/rewind"
        return self._call("POST", path, _delay, body=RewindBody(note=note), repeatable=False)

    def forget(self, consumer: str, topic: str) -> None:
        """Deletes a retired consumer and topic with its history. Raises `DelayNotFound`, `DelayCallFailed`."""
        self._call("DELETE", _path(consumer, topic), lambda content: None, repeatable=False)

    def _call(
        self,
        method: str,
        path: str,
        understand: Callable[[bytes], Answer],
        *,
        query: Mapping[str, str] | None = None,
        body: BaseModel | None = None,
        repeatable: bool = True,
        refusals: Mapping[int, type[Exception]] | None = None,
    ) -> Answer:
        headers = {"Accept": _JSON} if body is None else {"Accept": _JSON, "Content-Type": _JSON}
        sent = None if body is None else body.model_dump_json().encode()
        return self._patience.repeat(
            lambda: self._transport.call(
                method,
                path,
                lambda reply: understand(reply.content),
                query=query,
                body=sent,
                headers=headers,
                repeatable=repeatable,
                refusals=refusals,
            )
        )


def _delay(content: bytes) -> Delay:
    return DelayBody.model_validate_json(content).delay()


def _delays(content: bytes) -> tuple[Delay, ...]:
    return tuple(body.delay() for body in DelayListBody.model_validate_json(content).delays)


def _page(content: bytes) -> HistoryPage:
    page = HistoryBody.model_validate_json(content)
    return HistoryPage(tuple(body.point() for body in page.points), page.next_before)


def _path(consumer: str, topic: str) -> str:
    return f"/v1/delays/{quote(consumer, safe='')}/{quote(topic, safe='')}"
