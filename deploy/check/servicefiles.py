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
from deploy.servicekinds import service_of


def check_service(path: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """The service whose file this is; None for any other file. Raises `SettingsInvalid` with every problem."""
    service = service_of(load_yaml(path))
    if service is None:
        return None
    keys = Document.read(path, environ).as_model(service.keys)
    if problems := _of_files(keys, environ):
        raise SettingsInvalid(path, problems)
    return service.name


def _of_files(keys: Keys, environ: Mapping[str, str]) -> list[str]:
    """What is wrong with the tokens and certificates of a server, and with the URL of its store."""
    from httpapi.server.serverkeys import ServerKeys

    if not isinstance(keys, ServerKeys):
        return []
    from httpapi.server.serving import check_certificate

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

    if not isinstance(keys, StorageServeConfig):
        return []
    from storage.backends.opening import parsed
    from storage.errors import StorageConfigInvalid

    try:
        parsed(keys.store)
    except StorageConfigInvalid as error:
        return [str(error)]
    return []
