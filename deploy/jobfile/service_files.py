"""The files of the services: whose a file is, and all that is wrong with it. Connects to nothing.

What a service needs is imported once it is known that the file is its own: it may be an extra that is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from teacup.base.config.document import Document, load_yaml
from teacup.base.config.keys import Keys
from teacup.base.errors import SettingsInvalid


@dataclass(frozen=True, slots=True)
class Service:
    """One of the services, which have files of their own.

    keys_at   the keys of its file; importing them may need an extra
    """

    name: str
    command: str
    keys_at: str

    @property
    def keys(self) -> type[Keys]:
        """The keys of its file."""
        keys_class: type[Keys] = resolve_name(self.keys_at)
        return keys_class


SERVICES: Mapping[str, Service] = {
    "store": Service("the storage API", "teacup storage serve", "teacup.storage.api.config:StorageServeConfig"),
    "database": Service("the Data Delay API", "teacup delay serve", "datadelay.api.config:DelayServeConfig"),
    "consumers": Service("the collector", "teacup delay collect", "datadelay.collector.config:CollectorConfig"),
}
"""By a key that its file must have, and that no other file has."""


def service_of(document: Mapping[str, object]) -> Service | None:
    """Returns the service whose file this is; None for any other file."""
    return next((SERVICES[key] for key in SERVICES if key in document and "kind" not in document), None)


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A service's valid file. service: its name; warning: what it opens to anyone on the network, None if nothing."""

    service: str
    warning: str | None = None


def check_service(path: Path) -> ServiceFile | None:
    """Checks the file of a service; returns None for any other file. Raises `SettingsInvalid` with every problem."""
    service = service_of(load_yaml(path))
    if service is None:
        return None
    document = Document.read(path)
    keys: Keys | None = None
    problems: list[str] = []
    try:
        keys = document.as_model(service.keys)
    except SettingsInvalid as error:
        problems += error.problems
    problems += _of_files(service.keys, keys, document)
    if problems:
        raise SettingsInvalid(path, problems)
    return ServiceFile(service.name, getattr(keys, "exposed", None))


def _of_files(model: type[Keys], keys: Keys | None, document: Document) -> Iterator[str]:
    """Yields what is wrong with the tokens and certificates of a server, and with the URL of its store.

    keys   None: others of its keys are not valid
    """
    from teacup.http.server.config import ServerKeys

    if not issubclass(model, ServerKeys):
        return
    from teacup.http.server.auth import load_tokens
    from teacup.http.server.serving import check_certificate

    values = document.values
    unset = {where[0] for where, _ in document.faults}

    def path(key: str) -> Path | None:
        return Path(values[key]) if values.get(key) is not None else None

    def tokens() -> None:
        anonymous = values.get("anonymous") or ()
        allowed = keys.scopes if isinstance(keys, ServerKeys) else None
        load_tokens(path("tokens_file"), os.environ, anonymous, variables=model.token_variables, allowed=allowed)

    checks: dict[tuple[str, ...], Callable[[], None]] = {
        ("tokens_file",): tokens,
        ("tls_certificate", "tls_key"): lambda: check_certificate(path("tls_certificate"), path("tls_key")),
        ("store",): lambda: _parse_store(values.get("store")),
    }
    for needed, check in checks.items():
        if unset & {*needed} or not all(isinstance(values.get(key), str | None) for key in needed):
            continue  # a problem of the key itself
        try:
            check()
        except SettingsInvalid as error:
            yield from (f"{error.source}: {problem}" for problem in error.problems)


def _parse_store(url: str | None) -> None:
    """Checks the URL of a store; a database's is checked with the other keys. Raises `SettingsInvalid`."""
    if url is None:
        return
    from teacup.storage.backends.opening import parsed
    from teacup.storage.errors import StorageConfigInvalid

    try:
        parsed(url)
    except StorageConfigInvalid as error:
        raise SettingsInvalid("store", [str(error)]) from error
