"""The SQLite file: locked for one server process, migrated, and every commit on disk.

`synchronous=FULL` in WAL mode syncs the log before a commit returns: once a submission is answered, neither kill -9 nor
a power failure loses it.
"""

from __future__ import annotations

import fcntl
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from datadelay.errors import StoreUnavailable


def open_database(database: str) -> tuple[Engine, TextIO]:
    """Lock the file of an SQLAlchemy URL and migrate it to the newest version; the lock ends when it is closed.

    Raises `StoreUnavailable`.
    """
    lock = _lock(Path(make_url(database).database or ""))
    try:
        engine = create_engine(database)
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
        migrate(engine)
    except BaseException:
        lock.close()
        raise
    return engine, lock


def migrate(engine: Engine) -> None:
    """Migrate the database to the newest version. Raises `StoreUnavailable`, also if its version is newer."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(files("datadelay.api") / "migrations").replace("%", "%%"))
    newest = ScriptDirectory.from_config(config).get_current_head()
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            if _revision(connection) not in (None, *_known(config)):
                raise StoreUnavailable(
                    f"database {engine.url.database} is of a newer version (migration {_revision(connection)}, "
                    f"this one knows up to {newest}): run the newer teacup, or restore a backup"
                )
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"database {engine.url.database} cannot be migrated: {error}") from error


def _known(config: AlembicConfig) -> list[str]:
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]


def _revision(connection: Connection) -> str | None:
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


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
        raise StoreUnavailable(f"database {path}: cannot create {lock_path}: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise StoreUnavailable(f"database {path}: another server uses it ({lock_path} is locked)") from error
    return lock
