"""One exchange with the storage API: bytes out, bytes in, or an error that says whether a retry is safe.

Sessions are pooled, and each is used by one thread at a time. Nothing is retried here; `Again` wraps an error after
which the caller may retry.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from pydantic import ValidationError
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from httpapi.problem import ProblemBody
from storage.codecs.encodings import ENCODINGS, compress, decompress
from storage.errors import (
    AccessDenied,
    AnswerNotUnderstood,
    CallFailed,
    NamespaceUnknown,
    RateLimited,
    RequestInvalid,
    RequestMalformed,
    RequestTooLarge,
    ServerUnavailable,
    StorageConfigInvalid,
    StorageError,
)
from storage.wire import NO_NAMESPACE

Answer = TypeVar("Answer")

_MAX_ANSWER_BYTES = 1 << 30  # of a compressed answer, decompressed
_RETRY_AFTER_MAX_S = 10.0
_SMALLEST_COMPRESSED = 1024
_REFUSALS: dict[int, type[StorageError]] = {
    400: RequestMalformed,
    401: AccessDenied,
    403: AccessDenied,
    404: NamespaceUnknown,
    406: RequestInvalid,
    413: RequestTooLarge,
    415: RequestInvalid,
    422: RequestInvalid,
    429: RateLimited,
}
_NOTHING_DONE = (429, 503)


class Again(Exception):
    """`error` happened, and the same call may be retried: after `after_s` seconds, or at any time if that is None."""

    def __init__(self, error: StorageError, after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


class Transport:
    """Pooled sessions to one storage API. Thread-safe."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
        verify: bool | str,
        compression: str | None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise StorageConfigInvalid(f"url {url!r} of the storage API: expected http(s)://host:port")
        if compression is not None and compression not in ENCODINGS:
            raise StorageConfigInvalid(f"compression {compression!r}: expected one of {ENCODINGS}, or None")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = (connect_timeout_s, read_timeout_s)
        self._verify = verify
        self._compression = compression
        self._idle: LifoQueue[requests.Session] = LifoQueue()

    def close(self) -> None:
        """Close the idle connections; a call in progress keeps its own."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return

    def call(
        self,
        method: str,
        path: str,
        understand: Callable[[bytes], Answer],
        *,
        body: bytes | None = None,
        media_type: str = "application/json",
        repeatable: bool = True,
    ) -> Answer:
        """What `understand` makes of the answer. Raises `Again` or a `StorageError`.

        repeatable: carrying it out twice has the same effect as once.
        """
        where = f"{method} {self._url}{path}"
        try:
            response, content = self._exchange(method, path, body, media_type)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            failed = ServerUnavailable(f"{where}: no answer, or half of one: {error}")
            failed.__cause__ = error
            if repeatable or _never_sent(error):
                raise Again(failed) from error
            raise failed from error
        if response.status_code == 200:
            try:
                return understand(self._decoded(response, content, media_type))
            except (RequestInvalid, AnswerNotUnderstood) as error:
                wrong = AnswerNotUnderstood(f"{where}: the answer is not understood: {error}")
                if repeatable:
                    raise Again(wrong) from error
                raise wrong from error
        refused = _refusal(response, content, where)
        if response.status_code in _NOTHING_DONE or (response.status_code >= 500 and repeatable):
            raise Again(refused, _retry_after_s(response))
        raise refused

    def _exchange(self, method: str, path: str, body: bytes | None, media_type: str) -> tuple[requests.Response, bytes]:
        headers = {"Accept": media_type, "Accept-Encoding": self._compression or "identity"}
        if body is not None:
            headers["Content-Type"] = media_type
            if self._compression is not None and len(body) >= _SMALLEST_COMPRESSED:
                headers["Content-Encoding"] = self._compression
                body = compress(body, self._compression)
        with self._session() as session:
            response = session.request(
                method,
                self._url + path,
                data=body,
                headers=headers,
                timeout=self._timeout_s,
                allow_redirects=False,  # a token must not be sent elsewhere
                stream=True,
            )
            try:
                return response, response.raw.read(decode_content=False)
            except BaseException:
                response.close()
                raise

    def _decoded(self, response: requests.Response, content: bytes, media_type: str) -> bytes:
        found = response.headers.get("Content-Type", "").split(";", 1)[0].strip().lower()
        if found != media_type:
            raise AnswerNotUnderstood(f"Content-Type {found!r}, expected {media_type!r}: {content[:100]!r}")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding == "identity":
            return content
        if encoding not in ENCODINGS:
            raise AnswerNotUnderstood(f"Content-Encoding {encoding!r} was not asked for")
        return decompress(content, encoding, _MAX_ANSWER_BYTES)

    @contextmanager
    def _session(self) -> Iterator[requests.Session]:
        try:
            session = self._idle.get_nowait()
        except Empty:
            session = self._new_session()
        try:
            yield session
        finally:
            self._idle.put(session)

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        session.verify = self._verify
        session.auth = _Bearer(self._token)
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=0, pool_connections=1, pool_maxsize=1))
        return session


class _Bearer(AuthBase):
    """Set as `auth`, because requests would otherwise replace the header with credentials from a netrc file."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _never_sent(error: Exception) -> bool:
    """The server cannot have seen the request: there was no connection."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, urllib3.exceptions.NewConnectionError)


def _retry_after_s(response: requests.Response) -> float | None:
    """What the server asks for, within bounds, plus a random part so that its clients do not all return at once."""
    value = response.headers.get("Retry-After", "")
    if not value.isdigit():
        return None
    wait_s = min(float(value), _RETRY_AFTER_MAX_S)
    return wait_s + random.uniform(0, wait_s / 4)


def _refusal(response: requests.Response, content: bytes, where: str) -> StorageError:
    """The error for an answer other than 200."""
    status = response.status_code
    try:
        problem = ProblemBody.model_validate_json(content)
    except ValidationError:
        message = f"{where}: status {status} from something that is no storage API: {content[:200]!r}"
        kind: type[StorageError] = ServerUnavailable if status >= 500 else AnswerNotUnderstood
        return (RateLimited if status == 429 else kind)(message)
    places = "".join(f"; {part.pointer}: {part.detail}" for part in problem.errors or ())
    message = f"{where}: {status} {problem.detail}{places}"
    if status >= 500:
        return ServerUnavailable(message)
    if status == 404 and problem.type != NO_NAMESPACE:
        return AnswerNotUnderstood(message)
    return _REFUSALS.get(status, CallFailed)(message)
