"""DuckDB, for what is vectorised over JSON: a connection of the thread's own, in memory, with one thread."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_local = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's in-memory database, with one thread of its own: the parallelism is outside."""
    kept: tuple[int, duckdb.DuckDBPyConnection] | None = getattr(_local, "kept", None)
    if kept is None or kept[0] != os.getpid():
        import duckdb  # here, as most processes of a query's start never need it

        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        kept = _local.kept = (os.getpid(), connection)
    return kept[1]
