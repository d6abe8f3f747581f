"""The database that a URL names.

sqlite:////var/lib/teacup/delay.db      sqlitefile.py: one server, with a file of its own
postgresql://user@host:5432/database    postgresql.py: several servers
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from datadelay.api.postgresql import Postgresql, check_options
from datadelay.api.sqlitefile import SqliteFile

_EXAMPLES = "write sqlite:////var/lib/teacup/delay.db or postgresql://user@host:5432/database"


class Database(Protocol):
    """A database that is migrated to the newest version.

    name      for messages
    shared    whether other servers may write to it
    writing   held by this server while it writes
    """

    engine: Engine
    name: str
    shared: bool
    writing: AbstractContextManager[Any, Any]

    def exclude_others(self, connection: Connection, consumer: str, topic: str) -> None:
        """Keeps other servers from changing this consumer and topic until the transaction ends."""
        ...

    def check(self, connection: Connection) -> None:
        """Fails if the database cannot be written."""
        ...

    def check_kept(self) -> None:
        """Raises `StoreUnavailable` if its file has been removed or replaced; called after each transaction."""
        ...

    def close(self) -> None:
        """Closes its connections."""
        ...


def parsed(database: str) -> URL:
    """Returns the URL of a database that is supported. Raises ValueError; its message does not show the URL."""
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        raise ValueError(f"this is not a database URL: {_EXAMPLES}") from None
    if "@" in (url.host or ""):
        raise ValueError("percent-encode what is special in its user and password: %40 for @, %2F for /, %3A for :")
    kind = url.get_backend_name()
    if kind not in _KINDS or not url.database or url.database == ":memory:":
        raise ValueError(f"it must name a SQLite file or a PostgreSQL database: {_EXAMPLES}")
    return url


def check_url(database: str) -> None:
    """Raises ValueError for a URL that would be refused, as far as that can be said without connecting."""
    url = parsed(database)
    if url.get_backend_name() == "postgresql":
        check_options(url)


def open_database(database: str) -> Database:
    """Opens and migrates the database of a URL. Raises `StoreUnavailable`, `ConfigInvalid`."""
    url = parsed(database)
    return _KINDS[url.get_backend_name()](url)


_KINDS: dict[str, type[SqliteFile] | type[Postgresql]] = {"sqlite": SqliteFile, "postgresql": Postgresql}
