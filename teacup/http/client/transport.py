"""One exchange with an API: bytes out, bytes in, or an error that says whether a retry is safe.

urllib3 keeps the connections, which many threads may share. This module adds:

    a token           with each request, to this address only: redirects are not followed
    the environment   its proxies, read as requests does, and REQUESTS_CA_BUNDLE
    no retries        `Again` tells the caller what is safe to repeat
    errors            of the API, in words of the system (`cause`, `distrust`)

What is safe to repeat:

    no connection, 429, 503                  nothing was done
    a lost or incomplete answer, other 5xx   it may have been done: only what is `repeatable`

A connection that is closed before anything was answered is a lost answer: a server that ends also drops connections
that it has not accepted yet, whose requests it has not seen, and a client cannot tell them apart.

An untrusted certificate, or a request that cannot be made, is the same at every attempt; the error says what to do
about a certificate. `ApiClient` is the base of the clients: a transport with patience, closed by `with`.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import BadStatusLine
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as NothingInTime

from teacup.base.config.keys import api_url
from teacup.http.bodies import NOT_SENDABLE, can_be_sent
from teacup.http.client.retries import Again, ApiErrors, Patience

Answer = TypeVar("Answer")

_CONNECTIONS_KEPT = 100
_RETRY_AFTER_MAX_S = 10.0
_NOTHING_DONE = (429, 503)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")

_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_NAME = (62, 64)  # for a host, for an address
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)
"""OpenSSL's codes: X509_V_ERR_ in its x509_vfy.h."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A 2xx answer as it arrived: `content` is still encoded as `headers` say."""

    headers: Mapping[str, str]
    content: bytes


class Transport:
    """Pooled connections to one API. Thread-safe; after a fork, make a new one.

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
        if "@" in url:  # what precedes it may be a password
            raise errors.misconfigured(f"url of the {errors.api}: give http(s)://host:port, and no user")
        try:
            api_url(url)
        except ValueError as error:
            raise errors.misconfigured(f"url {url!r} of the {errors.api}: {error}") from None
        if token is not None and not can_be_sent(token):
            raise errors.misconfigured(f"the token of the {errors.api} {NOT_SENDABLE}")
        bundle, named = os.environ.get("REQUESTS_CA_BUNDLE") or DEFAULT_CA_BUNDLE_PATH, "REQUESTS_CA_BUNDLE"
        if isinstance(verify, str):
            bundle, named = verify, "verify"
        if verify is not False and not os.path.exists(bundle):
            raise errors.misconfigured(f"{named} {bundle!r} of the {errors.api}: there is no such file of certificates")
        self._url = url.rstrip("/")
        self._authorization = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._errors = errors
        self._timeout_s = (connect_timeout_s, read_timeout_s)
        self._bundle = bundle
        self._known = False  # whether the API has answered
        self._pool = _pool(self._url, None if verify is False else bundle, *self._timeout_s)

    def close(self) -> None:
        """Closes the idle connections; a call in progress keeps its own."""
        self._pool.clear()

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
        """Returns what `understand` makes of the answer; that raises `ValueError` for what it cannot read.

        repeatable   carrying it out twice has the same effect as once
        refusals     errors of this call by status, before those of every call

        Raises `Again`, or an error of the API.
        """
        where = f"{method} {self._url}{path}"
        try:
            response = self._pool.urlopen(
                method,
                f"{self._url}{path}?{urlencode(query)}" if query else self._url + path,
                body=body,
                headers={"Accept-Encoding": "identity", **headers, **self._authorization},
                redirect=False,
                decode_content=False,
            )
        except ValueError as error:
            raise self._errors.misconfigured(f"{where}: this request cannot be sent: {error}") from error
        except (HTTPError, OSError) as error:
            if untrusted := distrust(error, self._url, self._bundle, self._timeout_s[0]):
                raise self._errors.not_understood(f"{where}: the certificate is not trusted: {untrusted}") from error
            why = cause(error, self._url, self._timeout_s)
            failed = self._errors.unreachable(f"{where}: no answer, or half of one: {why}")
            failed.__cause__ = error
            if repeatable or isinstance(error, NewConnectionError | ConnectTimeoutError):
                raise Again(failed) from error
            raise failed from error
        if 200 <= response.status < 300:
            try:
                answer = understand(Reply(response.headers, response.data))
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
            response.status, response.data, where, refusals or {}, server=server, known=self._known
        )
        if response.status in _NOTHING_DONE or (response.status >= 500 and repeatable):
            raise Again(refused, _retry_after_s(response.headers))
        raise refused


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


def _pool(url: str, bundle: str | None, connect_timeout_s: float, read_timeout_s: float) -> urllib3.PoolManager:
    """Returns a pool without retries. `bundle`: the trusted certificates; None: any is trusted."""
    options: dict[str, Any] = {
        "maxsize": _CONNECTIONS_KEPT,
        "retries": False,
        "timeout": urllib3.Timeout(connect=connect_timeout_s, read=read_timeout_s),
        "cert_reqs": "CERT_NONE" if bundle is None else "CERT_REQUIRED",
    }
    if bundle is not None:
        options["ca_cert_dir" if os.path.isdir(bundle) else "ca_certs"] = bundle
    proxy = select_proxy(url, get_environ_proxies(url))
    if proxy is None:
        return urllib3.PoolManager(**options)
    return urllib3.proxy_from_url(proxy, proxy_headers=HTTPAdapter().proxy_headers(proxy), **options)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Returns the server's wait, within limits, plus a random part, as not all clients should return at once."""
    value = headers.get("Retry-After", "")
    if not value.isdigit():
        return None
    wait_s = min(float(value), _RETRY_AFTER_MAX_S)
    return wait_s + random.uniform(0, wait_s / 4)


def cause(error: Exception, url: str, timeout_s: tuple[float, float]) -> str:
    """Returns why there is no answer, in words of the system, not of libraries. `timeout_s`: to connect, to read."""
    errors = _within(error)
    if any(isinstance(inner, ssl.SSLError) and inner.reason in _NOT_TLS for inner in errors):
        return "the server does not speak TLS: write http: in place of https:, or give it a certificate"
    if any(isinstance(inner, ConnectionResetError | BrokenPipeError | BadStatusLine) for inner in errors):
        hint = "; if it speaks TLS, write https:" if url.startswith("http:") else ""
        return f"the server closed the connection, or does not speak HTTP{hint}"
    system = [inner.strerror for inner in errors if isinstance(inner, OSError) and inner.strerror]
    if system:
        return system[0]
    if any(isinstance(inner, ConnectTimeoutError) for inner in errors):
        return f"no connection within {timeout_s[0]:g} s"
    if any(isinstance(inner, TimeoutError | NothingInTime) for inner in errors):
        return f"nothing arrived for {timeout_s[1]:g} s"
    return str(errors[-1])


def distrust(error: Exception, url: str, bundle: str, timeout_s: float) -> str | None:
    """Returns why the server's certificate is not trusted, and what to do; None if it is trusted.

    bundle   the trusted certificates: a file or a folder
    """
    refused = next((inner for inner in _within(error) if isinstance(inner, ssl.SSLCertVerificationError)), None)
    if refused is None:
        return None
    return f"{refused.verify_message.rstrip('.')}; {_remedy(refused.verify_code, url, bundle, timeout_s)}"


def _remedy(code: int, url: str, bundle: str, timeout_s: float) -> str:
    if code == _EXPIRED:
        return "renew it on the server, and restart that; or correct the clock here"
    if code == _NOT_YET_VALID:
        return "correct the clock here, or that of the machine where it was issued"
    if code in _OTHER_NAME:
        names = _names(url, bundle, timeout_s)
        here = f"it is for {', '.join(names)}: " if names else ""
        return f"{here}write such a name in the URL, or issue one for this name (DNS:NAME) or address (IP:ADDRESS)"
    if code in _UNKNOWN_ISSUER:
        return "name the file of the certificates that it is signed by: ca_bundle (in Python: verify)"
    return "the server needs another certificate"


def _names(url: str, bundle: str, timeout_s: float) -> list[str]:
    """Asks for the names that a server's certificate is for, on a connection of its own; none if that fails."""
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


def _within(error: BaseException) -> list[BaseException]:
    """Returns an error and those it was made from; urllib3 and requests wrap errors as contexts and arguments."""
    errors = [error]
    for outer in errors:
        wrapped = (outer.__context__, *outer.args)
        errors += [inner for inner in wrapped if isinstance(inner, BaseException) and inner not in errors]
    return errors
