"""DuckDB for work on JSON, in memory. Pure: each thread has its own connection, with a single DuckDB thread."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

# By process and thread; a thread that ends leaves its connection to the next one of its number. Not a
# `threading.local`: when another thread forks, the child would close this one's connection, and crash.
_connections: dict[tuple[int, int], duckdb.DuckDBPyConnection] = {}

# A daemon thread that is still alive when the process ends keeps what it can reach; of a connection, DuckDB would
# print all classes and functions as leaked.
atexit.register(_connections.clear)


def connection() -> duckdb.DuckDBPyConnection:
    """Returns this thread's in-memory database. It uses one thread; parallelism is the caller's."""
    key = os.getpid(), threading.get_ident()
    kept = _connections.get(key)
    if kept is None:
        import duckdb  # not at the top: most processes never need it

        kept = duckdb.connect(config={"threads": 1})
        kept.execute("SET TimeZone = 'UTC'")
        _connections[key] = kept
    return kept


def selected(query: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Returns what a select gives. Its table is called `batch`, and has these columns."""
    answer = connection().from_arrow(pa.table(dict(columns))).query("batch", query)
    assert answer is not None  # a select always has a result
    return answer.to_arrow_table()
