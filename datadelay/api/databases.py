"""The database that a URL names.

    sqlite:////var/lib/teacup/delay.db      `SqliteFile`: one server, with a file of its own
    postgresql://user@host:5432/database    `Postgresql`: several servers may share it

A SQLite file is locked for one server process, and every commit is on disk: `synchronous=FULL` in WAL mode syncs the
log before a commit returns, so once a submission is answered, neither kill -9 nor a power failure loses it. A file that
is removed or replaced while it is open can still be written to, but all of that is gone with this process: so after
each transaction the path must still lead to it.

In PostgreSQL each change locks its consumer and topic until it is committed (an advisory lock, as there may be no row
yet), so that every server decides on the newest state. A connection that is lost, or that leads to a server which has
become read-only, is replaced by a new one for the next request. With several hosts in the URL and
`target_session_attrs=read-write` this follows a fail-over. Time limits keep a request from waiting for a
database that hangs; options in the URL take precedence. What is acknowledged is as durable as a commit there
(`synchronous_commit`, and that of the standby).
"""

from __future__ import annotations

import fcntl
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from datadelay.api.schema import cause, migrate
from datadelay.errors import ConfigInvalid, StoreUnavailable
from teacup.base.config.keys import most_similar
from teacup.base.disks import with_disk

_EXAMPLES = "write sqlite:////var/lib/teacup/delay.db or postgresql://user@host:5432/database"
_ROOM_BYTES = 1 << 20
"""More than a submission needs."""
_CONNECTIONS = 10
_OPTIONS = {
    "connect_timeout": 5,  # s, for each host
    "tcp_user_timeout": 10_000,  # ms
    "client_encoding": "utf8",  # for a database in SQL_ASCII, whose texts would otherwise be bytes
    "options": "-c statement_timeout=10s -c idle_in_transaction_session_timeout=10s",
}
_MIGRATING = 0x7EAC0B
_READ_ONLY = "25006"


class Database(ABC):
    """A database that is migrated to the newest version.

    name      for messages
    shared    whether other servers may write to it
    writing   held by this server while it writes
    """

    engine: Engine
    name: str
    shared: bool
    writing: AbstractContextManager[Any, Any]

    def exclude_others(self, connection: Connection, consumer: str, topic: str) -> None:  # noqa: B027 - optional
        """Keeps other servers from changing this consumer and topic until the transaction ends."""

    @abstractmethod
    def check(self, connection: Connection) -> None:
        """Fails if the database cannot be written to."""

    def check_kept(self) -> None:  # noqa: B027 - optional
        """Raises `StoreUnavailable` if its file has been removed or replaced; called after each transaction."""

    def said(self, error: SQLAlchemyError) -> str:
        """Returns what an error of the database says, and the state of its disk if that matters."""
        return cause(error)

    def close(self) -> None:
        """Closes its connections."""
        self.engine.dispose()


def parsed(database: str) -> URL:
    """Returns the URL of a supported database. Raises `ValueError`, whose message does not show the URL."""
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
    """Raises `ValueError` for a URL that would be refused, as far as can be told without connecting."""
    url = parsed(database)
    if url.get_backend_name() == "postgresql":
        check_options(url)


def open_database(database: str) -> Database:
    """Opens and migrates the database of a URL. Raises `StoreUnavailable`, `ConfigInvalid`."""
    url = parsed(database)
    return _KINDS[url.get_backend_name()](url)


def check_options(url: URL) -> None:
    """Raises `ValueError` for a parameter that libpq does not know, as it would refuse the URL when it connects."""
    from psycopg.pq import Conninfo  # an extra of its own

    keywords = [option.keyword.decode() for option in Conninfo.get_defaults()]
    for name in url.query:
        if name not in keywords:
            close = most_similar(name, keywords)
            what = f"did you mean {close}?" if close else "name only parameters of libpq"
            raise ValueError(f"unknown option {name!r}: {what}")


class SqliteFile(Database):
    """A file, which is created if it is missing. Raises `StoreUnavailable`, `ConfigInvalid`."""

    shared = False

    def __init__(self, url: URL) -> None:
        self._path = path = Path(url.database or "")
        self.name = str(path)
        self.writing: AbstractContextManager[Any, Any] = threading.Lock()
        self._lock = _lock(path)
        try:
            self.engine = create_engine(url)
            event.listen(self.engine, "connect", _configure)
            event.listen(self.engine, "begin", _begin)
            migrate(self.engine, self.name)
            self._file = _identity(path)
        except BaseException:
            self._lock.close()
            raise

    def check(self, connection: Connection) -> None:
        """Also writes a file, as a full disk can still be read, and a small change may fit into the existing log."""
        connection.exec_driver_sql("PRAGMA user_version = 1")  # used for nothing else
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(bytes(_ROOM_BYTES))
        except OSError as error:
            raise StoreUnavailable(
                f"database {self._path}: its disk is full, or cannot be written: {with_disk(error, self._path.parent)}"
            ) from error

    def check_kept(self) -> None:
        if _identity(self._path) != self._file:
            raise StoreUnavailable(
                f"database {self._path} was removed or replaced while this server ran: nothing that it writes is kept; "
                "start it again"
            )

    def said(self, error: SQLAlchemyError) -> str:
        return with_disk(cause(error), self._path.parent)

    def close(self) -> None:
        """Also releases the file."""
        super().close()
        self._lock.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own transactions would leave out the DDL of migrations
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _lock(path: Path) -> TextIO:
    """Locks the file, as two servers on it would each publish from their own memory."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        lock = lock_path.open("w")
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not path.is_absolute():
            raise ConfigInvalid(
                f"database: there is no folder {str(path.parent)!r} in {Path.cwd()}; write an absolute path with four "
                f"slashes: sqlite:////{path}"
            ) from error
        raise StoreUnavailable(f"database {path}: cannot create {lock_path}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreUnavailable(f"database {path}: another server uses it ({lock_path} is locked)") from error
    return lock


class Postgresql(Database):
    """A database on a server. Raises `StoreUnavailable`, `ConfigInvalid`."""

    shared = True

    def __init__(self, url: URL) -> None:
        hosts = url.normalized_query.get("host", (f"{url.host}:{url.port or 5432}",))
        self.name = f"{url.database} on {', '.join(hosts)}"
        self.writing: AbstractContextManager[Any, Any] = nullcontext()
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={name: value for name, value in _OPTIONS.items() if name not in url.query},
            pool_pre_ping=True,
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=5,
        )
        event.listen(self.engine, "handle_error", _replace_read_only)
        try:
            migrate(self.engine, self.name, _one_at_a_time)
        except BaseException:
            self.engine.dispose()
            raise

    def exclude_others(self, connection: Connection, consumer: str, topic: str) -> None:
        """Locks this consumer and topic until the transaction ends."""
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"{consumer}/{topic}", 0))))

    def check(self, connection: Connection) -> None:
        """Writes something, which a standby and a full disk refuse."""
        connection.execute(text("UPDATE alembic_version SET version_num = version_num"))


def _replace_read_only(context: ExceptionContext) -> None:
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _one_at_a_time(connection: Connection) -> None:
    """Makes servers that start at the same time migrate one after the other."""
    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))


_KINDS: dict[str, Callable[[URL], Database]] = {"sqlite": SqliteFile, "postgresql": Postgresql}
