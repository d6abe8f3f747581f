"""DuckDB for work on JSON, in memory. Pure: each thread has its own connection, with a single DuckDB thread."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_local = threading.local()


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's in-memory database. It uses one thread; parallelism is the caller's."""
    kept: tuple[int, duckdb.DuckDBPyConnection] | None = getattr(_local, "kept", None)
    if kept is None or kept[0] != os.getpid():
        import duckdb  # not at the top: most processes never need it

        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        kept = _local.kept = (os.getpid(), connection)
    return kept[1]
