"""Clients whose login is in files (`${file:PATH}`) get the new one when it changes: a thread looks every two seconds.

librdkafka takes it for the next connection that it opens, or when brokers ask for the login again; connections that are
open stay. So a password may be changed while jobs run, if its file and the brokers' own record change together.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from teacup.base.config.secret_files import FORM, read_now

log = logging.getLogger("teacup.kafka.rotation")

LOOK_EVERY_S = 2.0
USER, PASSWORD = "sasl.username", "sasl.password"


@dataclass(slots=True)
class _Followed:
    """A client as long as it lives; login: what it has."""

    client: weakref.ref[Any]
    kafka: Mapping[str, str]
    login: Mapping[str, str]


_followed: list[_Followed] = []
_lock = threading.Lock()
_threads: list[threading.Thread] = []


def rotates(kafka: Mapping[str, str]) -> bool:
    """Returns whether the login in these properties is in files."""
    return any(FORM.search(kafka.get(name, "")) for name in (USER, PASSWORD))


def follow(client: Any, kafka: Mapping[str, str], made_with: Mapping[str, Any]) -> None:
    """Gives a client, which takes weak references, each new login by its `set_sasl_credentials`.

    kafka, made_with   the properties as they are written, and those that the client has
    """
    known, has = ({name: given.get(name, "") for name in (USER, PASSWORD)} for given in (kafka, made_with))
    with _lock:
        _followed.append(_Followed(weakref.ref(client), known, has))
        if not _threads:
            _threads.append(threading.Thread(target=_look, name="rotation", daemon=True))
            _threads[0].start()


def look() -> None:
    """Looks once."""
    with _lock:
        _followed[:] = [one for one in _followed if _up_to_date(one)]


def _up_to_date(one: _Followed) -> bool:
    """Gives a client its present login. Returns whether it lives."""
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
        except Exception as error:  # noqa: BLE001 - a client that is closed just now; others still get it
            log.warning("a client does not take a new login: %s", type(error).__name__)
        else:
            log.info("the login of %s has changed", login[USER])
    return True


def _look() -> None:
    while True:
        time.sleep(LOOK_EVERY_S)
        look()


def _after_fork() -> None:
    """Threads and clients stay behind."""
    global _lock
    _followed.clear()
    _threads.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
