"""Gives clients whose login is in files the new login when it changes.

    a password       as `${file:PATH}`: a thread looks every two seconds
    a token          in our property `sasl.oauthbearer.token`, as `${file:PATH}`: librdkafka asks for it again before it
                     expires, and once a minute (`token_now`)
    a certificate    the same thread warns that existing clients keep the old one, as librdkafka takes no other

librdkafka uses a login for the next connection that it opens, or when brokers ask for it again; open connections stay
open. So a password may be changed while jobs run, if its file and the brokers' own record change together.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teacup.base.config.secret_files import FORM, read_now

log = logging.getLogger("teacup.kafka.rotation")

POLL_EVERY_S = 2.0
USER, PASSWORD = "sasl.username", "sasl.password"
TOKEN = "sasl.oauthbearer.token"
CERTIFICATE = "ssl.certificate.location"
_ASKED_AGAIN_S = 60.0


@dataclass(slots=True)
class _Followed:
    """A client as long as it lives; login: the one that it has."""

    client: weakref.ref[Any]
    kafka: Mapping[str, str]
    login: Mapping[str, str]


_followed: list[_Followed] = []
_certificates: dict[str, float] = {}
"""When each was last written."""
_lock = threading.Lock()
_threads: list[threading.Thread] = []


def token_now(token: str, now_s: float) -> tuple[str, float]:
    """Returns a token, and until when librdkafka is to use it; it asks again after four fifths of that time.

    token   as written in the properties. Raises `ValueError` if its file cannot be read or has an expired token
    """
    current = read_now({TOKEN: token})[TOKEN]
    expires_s = _expires_s(current)
    if expires_s <= now_s:
        raise ValueError(
            f"{TOKEN}: the token has expired {now_s - expires_s:.0f} s ago; whoever writes it has to renew it"
        )
    return current, min(expires_s, now_s + _ASKED_AGAIN_S)


def _expires_s(token: str) -> float:
    """Returns when a token expires, if it says so as JSON Web Tokens do; checking it is up to the brokers."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return math.inf


def watch_certificate(kafka: Mapping[str, str]) -> None:
    """Warns once the client's certificate is replaced from now on."""
    path = kafka.get(CERTIFICATE)
    if path is not None:
        with _lock:
            _certificates.setdefault(path, _written_s(path))
            _begin()


def _written_s(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0  # it is being replaced


def _begin() -> None:
    if not _threads:
        _threads.append(threading.Thread(target=_follow_files, name="rotation", daemon=True))
        _threads[0].start()


def rotates(kafka: Mapping[str, str]) -> bool:
    """Returns whether the login in these properties is in files."""
    return any(FORM.search(kafka.get(name, "")) for name in (USER, PASSWORD))


def follow(client: Any, kafka: Mapping[str, str], made_with: Mapping[str, Any]) -> None:
    """Gives a client, which must allow weak references, each new login by its `set_sasl_credentials`.

    kafka, made_with   the properties as written, and those that the client has
    """
    had, has = ({name: given.get(name, "") for name in (USER, PASSWORD)} for given in (kafka, made_with))
    with _lock:
        _followed.append(_Followed(weakref.ref(client), had, has))
        _begin()


def follow_files() -> None:
    """Reads the files of logins and certificates once."""
    with _lock:
        _followed[:] = [one for one in _followed if _up_to_date(one)]
        for path, known_s in _certificates.items():
            if (written_s := _written_s(path)) not in (0.0, known_s):
                _certificates[path] = written_s
                log.warning(
                    "the certificate %s has changed: clients that live keep the one before. Restart the job before "
                    "that one expires: brokers refuse it then (exit code 12)",
                    path,
                )


def _up_to_date(one: _Followed) -> bool:
    """Gives a client its present login. Returns whether the client lives."""
    if (client := one.client()) is None:
        return False
    try:
        login = read_now(one.kafka)
    except ValueError as error:
        log.debug("the login is not known: %s", error)  # it is being replaced; whoever makes a client reports it
        return True
    if login != one.login:
        one.login = login
        try:
            client.set_sasl_credentials(login[USER], login[PASSWORD])
        except Exception as error:  # noqa: BLE001 - a client that is just being closed; others still get it
            log.warning("a client does not take a new login: %s", type(error).__name__)
        else:
            log.info("the login of %s has changed", login[USER])
    return True


def _follow_files() -> None:
    while True:
        time.sleep(POLL_EVERY_S)
        follow_files()


def _after_fork() -> None:
    """Forgets threads and clients, which a forked child does not have."""
    global _lock
    _followed.clear()
    _certificates.clear()
    _threads.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
