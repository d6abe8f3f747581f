"""The Data Delay API for programs: a collector submits through it, and the gate of a join reads through it.

Every call has time-outs and a bounded number of attempts. It either returns the server's answer or raises `CallFailed`
(or the server's own refusal): a gate that gets an exception knows nothing and stays shut. Reads and submissions are
retried after a lost connection, 429 and 502 to 504, because repeating an identical submission changes nothing. A rewind
and a forget are not retried.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote, urlsplit

import requests
from pydantic import BaseModel, ValidationError
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from datadelay.errors import (
    AccessDenied,
    AnswerNotUnderstood,
    CallFailed,
    ConfigInvalid,
    DelayNotFound,
    RateLimited,
    ServerUnavailable,
    SubmissionInvalid,
    SubmissionLate,
)
from datadelay.model import Delay, Point, Submission
from datadelay.wire import NO_DELAY, DelayBody, DelayListBody, HistoryBody, RewindBody, SubmissionBody
from httpapi.problem import ProblemBody

__all__ = ["Delay", "DelayClient", "HistoryPage"]

Body = TypeVar("Body", bound=BaseModel)

_RETRIED_STATUS = (429, 502, 503, 504)
_REFUSALS: dict[int, type[Exception]] = {
    400: SubmissionInvalid,
    401: AccessDenied,
    403: AccessDenied,
    404: DelayNotFound,
    409: SubmissionLate,
    413: SubmissionInvalid,
    422: SubmissionInvalid,
    429: RateLimited,
}


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A page of a history, newest first. Pass `next_before` to get the next, older page; None: there is none."""

    points: tuple[Point, ...]
    next_before: int | None


class DelayClient:
    """A pooled connection to one Data Delay API. Use one per thread; close it, or use it in a `with`.

    url                 `https://delay.example:8710`
    token               a bearer token; None if the server is open
    connect_timeout_s   for a connection
    read_timeout_s      between two pieces of an answer
    retries             attempts after the first one, with growing pauses, or the server's Retry-After up to 10 s
    verify              False or the path of a CA bundle, as in `requests`
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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigInvalid(f"url {url!r} of the Data Delay API: expected http(s)://host:port")
        self._url = url.rstrip("/")
        self._timeout_s = (connect_timeout_s, read_timeout_s)
        self._session = requests.Session()
        self._session.verify = verify
        self._session.auth = _Bearer(token)
        retry = Retry(
            total=retries,
            allowed_methods=frozenset({"GET", "PUT"}),
            status_forcelist=_RETRIED_STATUS,
            backoff_factor=0.1,
            backoff_jitter=0.1,
            backoff_max=5,
            retry_after_max=10,
            raise_on_status=False,
            redirect=0,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry, pool_maxsize=4))

    def close(self) -> None:
        """Close the pooled connections."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, submission: Submission) -> Delay:
        """Submit; returns what is published now. Raises `SubmissionLate`, `SubmissionInvalid`, `CallFailed`."""
        path = _path(submission.consumer, submission.topic)
        return self._call("PUT", path, DelayBody, body=SubmissionBody.of(submission)).delay()

    def read(self, consumer: str, topic: str, *, partitions: bool = False) -> Delay:
        """How far `consumer` has come in `topic`. Raises `DelayNotFound`, `CallFailed`."""
        query = {"partitions": "true"} if partitions else None
        return self._call("GET", _path(consumer, topic), DelayBody, query=query).delay()

    def list(self) -> tuple[Delay, ...]:
        """Every consumer and topic, by name. Raises `CallFailed`."""
        return tuple(body.delay() for body in self._call("GET", "/v1/delays", DelayListBody).delays)

    def history(
        self,
        consumer: str,
        topic: str,
        *,
        limit: int = 200,
        before: int | None = None,
        since_ms: int | None = None,
    ) -> HistoryPage:
        """What was published when, newest first. Raises `DelayNotFound`, `CallFailed`."""
        wanted = {"limit": limit, "before": before, "since_ms": since_ms}
        query = {name: str(value) for name, value in wanted.items() if value is not None}
        page = self._call("GET", _path(consumer, topic) + "/history", HistoryBody, query=query)
        return HistoryPage(tuple(body.point() for body in page.points), page.next_before)

    def rewind(self, consumer: str, topic: str, note: str | None = None) -> Delay:
        """Report that the consumer went back on purpose: unknown until the next submission, which is accepted."""
        return self._call("POST", _path(consumer, topic) + "/rewind", DelayBody, body=RewindBody(note=note)).delay()

    def forget(self, consumer: str, topic: str) -> None:
        """Delete a retired consumer and topic with its history. Raises `DelayNotFound`, `CallFailed`."""
        self._send("DELETE", _path(consumer, topic))

    def _call(
        self,
        method: str,
        path: str,
        answer: type[Body],
        *,
        query: dict[str, str] | None = None,
        body: BaseModel | None = None,
    ) -> Body:
        response = self._send(method, path, query=query, body=body)
        try:
            return answer.model_validate_json(response.content)
        except (ValidationError, SubmissionInvalid) as error:
            raise AnswerNotUnderstood(
                f"{method} {self._url}{path}: the answer is no {answer.__name__}: {error}"
            ) from error

    def _send(
        self, method: str, path: str, *, query: dict[str, str] | None = None, body: BaseModel | None = None
    ) -> requests.Response:
        where = f"{method} {self._url}{path}"
        try:
            response = self._session.request(
                method,
                self._url + path,
                params=query,
                data=None if body is None else body.model_dump_json().encode(),
                headers={"Accept": "application/json"} | ({} if body is None else {"Content-Type": "application/json"}),
                timeout=self._timeout_s,
                allow_redirects=False,  # a token must not be sent elsewhere
            )
        except requests.RequestException as error:
            raise ServerUnavailable(f"{where}: no answer: {error}") from error
        if response.ok and not response.is_redirect:
            return response
        raise _refusal(response, where)


class _Bearer(AuthBase):
    """Set as `auth`; otherwise requests would replace the header with credentials from a netrc file."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _path(consumer: str, topic: str) -> str:
    return f"/v1/delays/{quote(consumer, safe='')}/{quote(topic, safe='')}"


def _refusal(response: requests.Response, where: str) -> Exception:
    """The error for an answer other than 2xx."""
    status = response.status_code
    try:
        problem = ProblemBody.model_validate_json(response.content)
    except ValidationError:
        message = f"{where}: status {status} from something that is no Data Delay API: {response.text[:200]!r}"
        return ServerUnavailable(message) if status >= 500 else AnswerNotUnderstood(message)
    places = "".join(f"; {part.pointer}: {part.detail}" for part in problem.errors or ())
    message = f"{where}: {status} {problem.detail}{places}"
    if status >= 500:
        return ServerUnavailable(message)
    if status == 404 and problem.type != NO_DELAY:
        return AnswerNotUnderstood(message)
    kind = _REFUSALS.get(status, CallFailed)
    if kind is SubmissionInvalid and response.request.method != "PUT":
        kind = CallFailed
    return kind(message)
