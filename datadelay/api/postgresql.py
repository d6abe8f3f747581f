"""A PostgreSQL database that several servers share.

Each change locks its consumer and topic until it is committed (an advisory lock, as there may be no row yet), so that
every server decides on the newest state. A connection that is lost, or that leads to a server which has become
read-only, is replaced by a new one for the next request: with several hosts in the URL and
`target_session_attrs=read-write` that is how a fail-over is followed. Time limits keep a request from waiting for a
database that hangs; options in the URL take precedence.

What is acknowledged is as durable as a commit is there (`synchronous_commit`, and that of the standby).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sqlalchemy import URL, Connection, ExceptionContext, create_engine, event, func, select, text

from configfile.problems import most_similar
from datadelay.api.migrating import migrate

_CONNECTIONS = 10
_OPTIONS = {
    "connect_timeout": 5,  # s, for each host
    "tcp_user_timeout": 10_000,  # ms
    "options": "-c statement_timeout=10s -c idle_in_transaction_session_timeout=10s",
}
_MIGRATING = 0x7EAC0B
_READ_ONLY = "25006"


def check_options(url: URL) -> None:
    """Raises ValueError for a parameter that libpq does not know; it would refuse the URL when it connects."""
    from psycopg.pq import Conninfo  # an extra of its own

    known = [option.keyword.decode() for option in Conninfo.get_defaults()]
    for name in url.query:
        if name not in known:
            close = most_similar(name, known)
            what = f"did you mean {close}?" if close else "name only parameters of libpq"
            raise ValueError(f"unknown option {name!r}: {what}")


class Postgresql:
    """A `Database` on a server. Raises `StoreUnavailable`, `ConfigInvalid`."""

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

    def check_kept(self) -> None:
        """Does nothing: the server notices a lost database by itself."""

    def close(self) -> None:
        """Closes the connections."""
        self.engine.dispose()


def _replace_read_only(context: ExceptionContext) -> None:
    if getattr(context.original_exception, "sqlstate", None) == _READ_ONLY:
        context.is_disconnect = True


def _one_at_a_time(connection: Connection) -> None:
    """Lets servers that start at the same time migrate one after the other."""
    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
