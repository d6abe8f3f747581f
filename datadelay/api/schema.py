"""The tables as the newest migration leaves them (a test compares the two), and their rows.

`migrate` brings a database to the newest version. Errors of a database are reported without the statement and its
values, which may be anything (`cause`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    RowMapping,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.exc import DBAPIError, ProgrammingError, SQLAlchemyError

from datadelay.errors import ConfigInvalid, StoreUnavailable
from datadelay.model import PartitionReport, Submission, slowest
from datadelay.publish import Published

_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|invalid value for parameter|unrecognized configuration parameter|invalid \S+ value|certificate|SSL was required"
)
"""PostgreSQL gives no code for a connection that it refuses. In another language these are failures like any other."""

_NOT_PERMITTED = "42501"

metadata = MetaData()

published = Table(
    "published",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("consumer", String, nullable=False),
    Column("topic", String, nullable=False),
    # the newest accepted submission
    Column("listed_ms", BigInteger, nullable=False),
    Column("consumed_until_ms", BigInteger),
    Column("submitted_reason", Text),
    Column("caught_up", Boolean, nullable=False),
    Column("generation", Text, nullable=False),
    Column("store_generation", Text),
    Column("partitions", JSON, nullable=False),  # [[partition, position, watermark_ms, reason], ...]
    # what is published of it
    Column("positions", JSON(none_as_null=True)),  # [[partition, position], ...], NULL after a rewind
    Column("value_ms", BigInteger),
    Column("floor_ms", BigInteger),
    Column("held", Text),
    Column("reason", Text),
    Column("rewound_ms", BigInteger),
    Column("success_ms", BigInteger),
    Column("since_ms", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the newest point of the history
    UniqueConstraint("consumer", "topic", name="uq_published_consumer_topic"),
)

history = Table(
    "history",
    metadata,
    Column("published_id", Integer, ForeignKey("published.id", ondelete="CASCADE"), primary_key=True, nullable=False),
    Column("sequence", BigInteger, primary_key=True, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("state", String, nullable=False),
    Column("consumed_until_ms", BigInteger),
    Column("reason", Text),
    Column("slowest_partition", Integer),
    sqlite_with_rowid=False,  # a page is a contiguous range of the primary key
)


_OF_LAST = ("listed_ms", "consumed_until_ms", "caught_up", "generation", "store_generation")
_OF_PUBLISHED = ("value_ms", "floor_ms", "held", "reason", "rewound_ms", "success_ms", "since_ms")
"""Columns that are named like the fields."""


def to_row(entry: Published) -> dict[str, Any]:
    """Returns all columns except the key and the sequence number."""
    last = entry.last
    return {
        **{name: getattr(last, name) for name in _OF_LAST},
        "submitted_reason": last.reason,
        "partitions": [[p.partition, p.position, p.watermark_ms, p.reason] for p in last.partitions],
        "positions": None if entry.positions is None else sorted(map(list, entry.positions.items())),
        **{name: getattr(entry, name) for name in _OF_PUBLISHED},
    }


def from_row(row: RowMapping) -> Published:
    """Returns what is published, from all columns of its row."""
    partitions = tuple(PartitionReport(*values) for values in row["partitions"])
    positions: Mapping[int, int] | None = None if row["positions"] is None else dict(row["positions"])
    return Published(
        last=Submission(
            consumer=row["consumer"],
            topic=row["topic"],
            reason=row["submitted_reason"],
            partitions=partitions,
            **{name: row[name] for name in _OF_LAST},
        ),
        positions=positions,
        **{name: row[name] for name in _OF_PUBLISHED},
        slowest=slowest(partitions),
    )


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
                    f"database {name} has a newer version (migration {_revision(connection)}, "
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


def cause(error: SQLAlchemyError) -> str:
    """Returns the database's message in one line."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(said).split())


def is_refusal(error: SQLAlchemyError) -> bool:
    """Returns whether the database, or its driver, would refuse the same URL again."""
    return isinstance(error, ProgrammingError) or _REFUSED.search(cause(error)) is not None


def remedy(refusal: SQLAlchemyError) -> str:
    """Returns what to do so that the database accepts the URL."""
    if isinstance(refusal, DBAPIError) and getattr(refusal.orig, "sqlstate", None) == _NOT_PERMITTED:
        return "the database must belong to the user: ALTER DATABASE ... OWNER TO ..."
    return "correct its user, password, database or options"
