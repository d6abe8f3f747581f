"""Migrates a database to the newest version of its tables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from datadelay.api.causes import cause, is_refusal, remedy
from datadelay.errors import ConfigInvalid, StoreUnavailable


def migrate(engine: Engine, name: str, first: Callable[[Connection], None] = lambda connection: None) -> None:
    """Migrates the database to the newest version.

    Raises `StoreUnavailable`, also if its version is newer, and `ConfigInvalid` for a URL that is refused.

    name    of the database, for messages
    first   carried out in the same transaction, before anything is read
    """
    config = AlembicConfig()
    config.set_main_option("script_location", str(files("datadelay.api") / "migrations").replace("%", "%%"))
    newest = ScriptDirectory.from_config(config).get_current_head()
    try:
        with engine.begin() as connection:
            first(connection)
            config.attributes["connection"] = connection
            if _revision(connection) not in (None, *_known(config)):
                raise StoreUnavailable(
                    f"database {name} is of a newer version (migration {_revision(connection)}, "
                    f"this one knows up to {newest}): run the newer teacup, or restore a backup"
                )
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        if is_refusal(error):
            raise ConfigInvalid(f"database: {name} refuses this URL: {cause(error)}; {remedy(error)}") from error
        raise StoreUnavailable(f"database {name} cannot be opened, or migrated: {cause(error)}") from error


def _known(config: AlembicConfig) -> list[str]:
    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]


def _revision(connection: Connection) -> str | None:
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision
