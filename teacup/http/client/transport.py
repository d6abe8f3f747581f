"""One exchange with an API: bytes out, bytes in, or an error that says whether a retry is safe.

Sessions are pooled, and each is used by one thread at a time: requests 2.34 does not promise that threads may share
one. Nothing is retried here; `Again` wraps an error after which the caller may retry:

    no connection, 429, 503                  nothing was done
    a lost or incomplete answer, other 5xx   it may have been done: only what is `repeatable`

A certificate that is not trusted, or a request that cannot be made, is the same at every attempt; the error says what
to do about a certificate. `ApiClient` is the base of the clients: a transport with patience, closed by `with`.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import BadStatusLine
from queue import Empty, LifoQueue
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from teacup.base.config.keys import api_url
from teacup.http.bodies import NOT_SENDABLE, can_be_sent
from teacup.http.client.retries import Again, ApiErrors, Patience

Answer = TypeVar("Answer")

_RETRY_AFTER_MAX_S = 10.0
_NOTHING_DONE = (429, 503)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")

_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)  # of a host, of an address
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
"""OpenSSL's codes: X509_V_ERR_ in its x509_vfy.h."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer, as it arrived: `content` is still encoded as `headers` say."""

    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Pooled sessions to one API. Thread-safe; after a fork, make a new one.

    url                 `https://delay.example:8710`
    token               a bearer token; None if the server is open
    errors              what to raise
    connect_timeout_s   for a connection
    read_timeout_s      between two pieces of an answer
    verify              False or the path of a CA bundle; True: the system's, or that of REQUESTS_CA_BUNDLE
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        errors: ApiErrors,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
        verify: bool | str,
    ) -> None:
        if "@" in url:  # what is before it may be a password
            raise errors.misconfigured(f"url of the {errors.api}: give http(s)://host:port, and no user")
        try:
            api_url(url)
        except ValueError as error:
            raise errors.misconfigured(f"url {url!r} of the {errors.api}: {error}") from None
        if token is not None and not can_be_sent(token):
            raise errors.misconfigured(f"the token of the {errors.api} {NOT_SENDABLE}")
        if isinstance(verify, str) and not os.path.exists(verify):
            raise errors.misconfigured(f"verify {verify!r} of the {errors.api}: there is no such file of certificates")
        self._url = url.rstrip("/")
        self._token = token
        self._errors = errors
        self._timeout_s = (connect_timeout_s, read_timeout_s)
        self._verify = verify
        self._known = False  # the API has answered
        self._idle: LifoQueue[requests.Session] = LifoQueue()

    def close(self) -> None:
        """Closes the idle connections; a call in progress keeps its own."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return

    def call(
        self,
        method: str,
        path: str,
        understand: Callable[[Reply], Answer],
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str],
        repeatable: bool = True,
        refusals: Mapping[int, type[Exception]] | None = None,
    ) -> Answer:
        """Returns what `understand` makes of the answer; it raises ValueError for what it cannot read.

        repeatable   carrying it out twice has the same effect as once
        refusals     errors of this call by status, before those of every call

        Raises `Again`, or an error of the API.
        """
        where = f"{method} {self._url}{path}"
        try:
            response, content = self._exchange(method, path, query, body, headers)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if isinstance(error, ValueError):
                raise self._errors.misconfigured(f"{where}: this request cannot be sent: {error}") from error
            untrusted = [inner for inner in _within(error) if isinstance(inner, ssl.SSLCertVerificationError)]
            if untrusted:
                why = f"{untrusted[0].verify_message.rstrip('.')}; {remedy(untrusted[0], self._names(untrusted[0]))}"
                raise self._errors.not_understood(f"{where}: the certificate is not trusted: {why}") from error
            why = cause(error, self._url, self._timeout_s)
            failed = self._errors.unreachable(f"{where}: no answer, or half of one: {why}")
            failed.__cause__ = error
            if repeatable or _never_sent(error):
                raise Again(failed) from error
            raise failed from error
        if 200 <= response.status_code < 300:
            try:
                answer = understand(Reply(response.headers, content))
            except (ValueError, self._errors.not_understood) as error:
                wrong = self._errors.not_understood(f"{where}: the answer is not understood: {error}")
                wrong.__cause__ = error
                if repeatable:
                    raise Again(wrong) from error
                raise wrong from error
            self._known = True
            return answer
        server = response.headers.get("Server", "")
        refused = self._errors.refusal(
            response.status_code, content, where, refusals or {}, server=server, known=self._known
        )
        if response.status_code in _NOTHING_DONE or (response.status_code >= 500 and repeatable):
            raise Again(refused, _retry_after_s(response))
        raise refused

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[requests.Response, bytes]:
        with self._session() as session:
            response = session.request(
                method,
                self._url + path,
                params=query,
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                timeout=self._timeout_s,
                allow_redirects=False,  # a token must not be sent elsewhere
                stream=True,
                verify=self._verify,  # of the session it would yield to REQUESTS_CA_BUNDLE
            )
            try:
                return response, response.raw.read(decode_content=False)
            except BaseException:
                response.close()
                raise

    def _names(self, error: ssl.SSLCertVerificationError) -> list[str]:
        """Returns the names that the certificate is for, where only the name is wrong."""
        if not is_for_another_name(error):
            return []
        with self._session() as session:
            bundle = session.merge_environment_settings(self._url, {}, None, self._verify, None)["verify"]
        return names_of(self._url, bundle if isinstance(bundle, str) else DEFAULT_CA_BUNDLE_PATH, self._timeout_s[0])

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
        session.auth = _Bearer(self._token)
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=0, pool_connections=1, pool_maxsize=1))
        return session


class ApiClient:
    """Calls one API. May be used by many threads at once; after a fork, make a new one."""

    def __init__(self, transport: Transport, patience: Patience) -> None:
        self._transport = transport
        self._patience = patience

    def close(self) -> None:
        """Closes the pooled connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Bearer(AuthBase):
    """Sets the header. It is set as `auth`, because requests would replace it with credentials from a netrc file."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def cause(error: Exception, url: str, timeout_s: tuple[float, float]) -> str:
    """Says why there is no answer, in words of the system, not of libraries. `timeout_s`: of connecting, of reading."""
    errors = _within(error)
    if any(isinstance(inner, ssl.SSLError) and inner.reason in _NOT_TLS for inner in errors):
        return "the server does not speak TLS: write http: in place of https:, or give it a certificate"
    if any(isinstance(inner, ConnectionResetError | BrokenPipeError | BadStatusLine) for inner in errors):
        hint = "; if it speaks TLS, write https:" if url.startswith("http:") else ""
        return f"the server closed the connection, or does not speak HTTP{hint}"
    system = [inner.strerror for inner in errors if isinstance(inner, OSError) and inner.strerror]
    if system:
        return system[0]
    if any(isinstance(inner, requests.ConnectTimeout) for inner in errors):
        return f"no connection within {timeout_s[0]:g} s"
    if any(isinstance(inner, TimeoutError | urllib3.exceptions.TimeoutError) for inner in errors):
        return f"nothing arrived for {timeout_s[1]:g} s"
    return str(errors[-1])


def _within(error: BaseException) -> list[BaseException]:
    """Lists an error and what it was made from; requests and urllib3 wrap errors as contexts and arguments."""
    found = [error]
    for outer in found:
        wrapped = (outer.__context__, *outer.args)
        found += [inner for inner in wrapped if isinstance(inner, BaseException) and inner not in found]
    return found


def _never_sent(error: Exception) -> bool:
    """Tells whether the server cannot have seen the request: there was no connection."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(reason, urllib3.exceptions.NewConnectionError)


def _retry_after_s(response: requests.Response) -> float | None:
    """Returns what the server asks for, within bounds, plus a random part: not all clients should return at once."""
    value = response.headers.get("Retry-After", "")
    if not value.isdigit():
        return None
    wait_s = min(float(value), _RETRY_AFTER_MAX_S)
    return wait_s + random.uniform(0, wait_s / 4)


def is_for_another_name(error: ssl.SSLCertVerificationError) -> bool:
    """Tells whether only the name is wrong."""
    return error.verify_code in _OTHER_NAME


def remedy(error: ssl.SSLCertVerificationError, names: Sequence[str] = ()) -> str:
    """Says what to do. `names`: those that the certificate is for, if only the name is wrong, and they are known."""
    code = error.verify_code
    if code == _EXPIRED:
        return "renew it on the server, and restart that; or correct the clock here"
    if code == _NOT_YET_VALID:
        return "correct the clock here, or that of the machine where it was issued"
    if code in _OTHER_NAME:
        here = f"it is for {', '.join(names)}: " if names else ""
        return f"{here}write such a name in the URL, or issue one for this name (DNS:NAME) or address (IP:ADDRESS)"
    if code in _UNKNOWN_ISSUER:
        return "name the file of the certificates that it is signed by: ca_bundle (in Python: verify)"
    return "the server needs another certificate"


def names_of(url: str, bundle: str, timeout_s: float) -> list[str]:
    """Asks for the names that a server's certificate is for, by a connection of its own; none if it cannot be made.

    bundle   the certificates that it is signed by: a file or a folder
    """
    at = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(**{"capath" if os.path.isdir(bundle) else "cafile": bundle})
    try:
        with (
            socket.create_connection((at.hostname or "", at.port or 443), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=at.hostname) as secure,
        ):
            certificate = secure.getpeercert() or {}
    except OSError:  # the names only complete a message
        return []
    return [str(pair[1]) for pair in certificate.get("subjectAltName", ())]
