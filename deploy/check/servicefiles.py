"""The files of the services: of which one a file is, and everything that is wrong with it. Connects to nothing.

What a service needs is imported once it is known that the file is its own: it may be an extra that is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from configfile.document import Document
from configfile.errors import SettingsInvalid
from configfile.keys import Keys
from configfile.yamlfile import load_yaml

_SERVICES = {"store": "the storage API", "database": "the Data Delay API", "consumers": "the collector"}
"""By a key that the service's files must have, and that no other file has."""


def check_service(path: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """The service whose file this is; None for any other file. Raises `SettingsInvalid` with every problem."""
    written = load_yaml(path)
    key = next((key for key in _SERVICES if key in written and "kind" not in written), None)
    if key is None:
        return None
    keys = Document.read(path, environ).as_model(_model(key))
    if key != "consumers" and (problems := _of_files(keys, environ)):
        raise SettingsInvalid(path, problems)
    return _SERVICES[key]


def _model(key: str) -> type[Keys]:
    if key == "store":
        from storage.api.config import StorageServeConfig

        return StorageServeConfig
    if key == "database":
        from datadelay.api.config import DelayServeConfig

        return DelayServeConfig
    from datadelay.collector.config import CollectorConfig

    return CollectorConfig


def _of_files(keys: Keys, environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the tokens and certificates of a server, and with the URL of its store."""
    from httpapi.server.serverkeys import ServerKeys
    from httpapi.server.serving import check_certificate

    assert isinstance(keys, ServerKeys)
    problems = _of_store(keys)
    for look in (lambda: keys.load_tokens(environ), lambda: check_certificate(keys)):
        try:
            look()
        except SettingsInvalid as error:
            problems += [f"{error.source}: {one}" for one in error.problems]
    return problems


def _of_store(keys: Keys) -> list[str]:
    """What is wrong with the URL of a store; that of a database is looked at with the other keys."""
    from storage.api.config import StorageServeConfig
    from storage.backends.opening import parsed
    from storage.errors import StorageConfigInvalid

    if isinstance(keys, StorageServeConfig):
        try:
            parsed(keys.store)
        except StorageConfigInvalid as error:
            return [str(error)]
    return []
