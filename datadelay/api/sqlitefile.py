"""A SQLite file: locked for one server process, and every commit on disk.

`synchronous=FULL` in WAL mode syncs the log before a commit returns: once a submission is answered, neither kill -9 nor
a power failure loses it. A file that is removed or replaced can still be written to while it is open, and all of that
is gone with this process: so after each transaction the path must still lead to it.
"""

from __future__ import annotations

import fcntl
import tempfile
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import URL, Connection, create_engine, event

from datadelay.api.migrating import migrate
from datadelay.errors import ConfigInvalid, StoreUnavailable

_ROOM_BYTES = 1 << 20
"""More than a submission needs."""


class SqliteFile:
    """A `Database` in a file, which is created if it is missing. Raises `StoreUnavailable`, `ConfigInvalid`."""

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

    def exclude_others(self, connection: Connection, consumer: str, topic: str) -> None:
        """Does nothing: no other server has the file."""

    def check(self, connection: Connection) -> None:
        """Writes a file, too: a full disk can still be read, and a small change may fit into what the log has."""
        connection.exec_driver_sql("PRAGMA user_version = 1")  # used for nothing else
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                file.write(bytes(_ROOM_BYTES))
        except OSError as error:
            raise StoreUnavailable(f"database {self._path}: its disk is full, or cannot be written: {error}") from error

    def check_kept(self) -> None:
        """Raises `StoreUnavailable` if the file was removed or replaced."""
        if _identity(self._path) != self._file:
            raise StoreUnavailable(
                f"database {self._path} was removed or replaced while this server ran: nothing that it writes is kept; "
                "start it again"
            )

    def close(self) -> None:
        """Closes the connections and releases the file."""
        self.engine.dispose()
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
    connection.isolation_level = None  # the driver's own transactions would leave out the migrations' DDL
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _lock(path: Path) -> TextIO:
    """Locks the file: two servers on it would each publish from their own memory."""
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
