"""A SQLite file: locked for one server process, and every commit on disk.

`synchronous=FULL` in WAL mode syncs the log before a commit returns: once a submission is answered, neither kill -9 nor
a power failure loses it.
"""

from __future__ import annotations

import fcntl
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import URL, Connection, create_engine, event

from datadelay.api.migrating import migrate
from datadelay.errors import ConfigInvalid, StoreUnavailable


class SqliteFile:
    """A `Database` in a file, which is created if it is missing. Raises `StoreUnavailable`, `ConfigInvalid`."""

    shared = False

    def __init__(self, url: URL) -> None:
        path = Path(url.database or "")
        self.name = str(path)
        self.writing: AbstractContextManager[Any, Any] = threading.Lock()
        self._lock = _lock(path)
        try:
            self.engine = create_engine(url)
            event.listen(self.engine, "connect", _configure)
            event.listen(self.engine, "begin", _begin)
            migrate(self.engine, self.name)
        except BaseException:
            self._lock.close()
            raise

    def exclude_others(self, connection: Connection, consumer: str, topic: str) -> None:
        """There are none."""

    def check(self, connection: Connection) -> None:
        """Write, as a full disk can still be read."""
        connection.exec_driver_sql("PRAGMA user_version = 1")  # used for nothing else

    def close(self) -> None:
        """Close the connections and release the file."""
        self.engine.dispose()
        self._lock.close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver's own transactions would leave out the migrations' DDL
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _lock(path: Path) -> TextIO:
    """Two servers on one file would each publish from their own memory."""
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
