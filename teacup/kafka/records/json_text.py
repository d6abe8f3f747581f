"""Whether texts are JSON, exactly as RFC 8259 defines it; and DuckDB, which finds fields. Pure.

The C library (`teacup.kafka.native`) decides, as DuckDB's parser differs from the RFC. It accepts a comma before a
closing bracket and numbers that JSON does not have (NaN, Infinity), and refuses half of a surrogate pair, escaped as
`\\ud800`. Such a half has no UTF-8 form. `Halves` writes it as ordinary characters, so that DuckDB reads other fields.

Each thread has its own connection to DuckDB, which uses a single thread (`selected`).
"""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa

from teacup.kafka.native import columns, library

if TYPE_CHECKING:
    import duckdb


def valid_json(texts: pa.Array) -> pa.Array:
    """Returns whether each text (`string`) is JSON (boolean); true for null. Raises `LibraryMissing`."""
    return columns.valid_json(library.loaded(), texts)[0]


def holding(texts: pa.Array, names: Sequence[str], choices: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Returns the same, whether the field at a path of names holds one of the choices, and where that is not sure.

    It holds one as `teacup.kafka.records.json_fields` says for keys.
    """
    json, held = columns.valid_json(library.loaded(), texts, names, choices)
    return json, pa.array(held == columns.YES), pa.array(held == columns.UNSURE)


# By process and thread; a thread that ends leaves its connection to the next one with its number. Not a
# `threading.local`: when another thread forks, the child would close this one's connection, and crash.
_connections: dict[tuple[int, int], duckdb.DuckDBPyConnection] = {}

# A daemon thread that is still alive when the process ends keeps what it can reach; DuckDB would print all classes and
# functions of a connection as leaked.
atexit.register(_connections.clear)


def connection() -> duckdb.DuckDBPyConnection:
    """Returns this thread's in-memory database, which uses one thread; parallelism is up to the caller."""
    key = os.getpid(), threading.get_ident()
    kept = _connections.get(key)
    if kept is None:
        import duckdb  # not at the top: most processes never need it

        kept = duckdb.connect(config={"threads": 1})
        kept.execute("SET TimeZone = 'UTC'")
        _connections[key] = kept
    return kept


def selected(query: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Returns the result of a select from the table `batch`, which has these columns."""
    answer = connection().from_arrow(pa.table(dict(columns))).query("batch", query)
    assert answer is not None  # a select always has a result
    return answer.to_arrow_table()


_HALF = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)")


def mark_of(texts: Sequence[str]) -> str:
    """Returns a word that occurs in none of the texts, escaped or not: a digest of them all."""
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode())
    return f"mark-{digest.hexdigest()}:"


class Halves:
    """Escaped halves of surrogate pairs in JSON texts, written as a mark that occurs in none of these texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.mark = mark_of(texts)

    def marked(self, text: str) -> str:
        """Returns the text with each half as the mark and its four digits."""
        return _HALF.sub(lambda found: f"{self.mark}{found[1]}" if found[1] else found[0], text)


def decoded(value: bytes | None) -> str | None:
    """Returns the value as text; None if it is not UTF-8, or null."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
