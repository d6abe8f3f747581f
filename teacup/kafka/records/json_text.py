r"""Whether texts are JSON, as RFC 8259 defines it, nothing more and nothing less. Pure.

The C library (`teacup.kafka.native`) decides. Where there is none, DuckDB's parser does, in memory and for a whole
batch, more slowly. It differs from the RFC in three ways, so the texts that these concern are decided one by one,
exactly:

    [1,]  {"a":1,}                a comma before a closing bracket: DuckDB accepts it
    NaN  -Infinity  [inf]         numbers that JSON does not have: DuckDB accepts them
    "\ud800"                      half of a surrogate pair, escaped: DuckDB refuses it, the RFC allows it

Such a half has no UTF-8 form. `Halves` writes it as ordinary characters, so that DuckDB can read the other fields.

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
import pyarrow.compute as pc

from teacup.kafka.native import columns, library

if TYPE_CHECKING:
    import duckdb

_LENIENT = r"(?i)(^|[\[:,])[ \t\r\n]*-?(nan|inf)|,[ \t\r\n]*[}\]]"
"""What DuckDB may have accepted wrongly; also matches within strings, where it is harmless."""

_ESCAPED_HALF = r"(?i)\\ud[89a-f]"
"""What DuckDB may have refused wrongly; also matches whole pairs."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<bracket>[\[\]{},:])
      | (?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
      | (?P<other>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)

_VALUE, _FIRST, _NAME, _FIRST_NAME, _COLON, _AFTER = "value", "first element", "name", "first name", "colon", "after"
_NEXT = {
    **{(state, kind): _AFTER for state in (_VALUE, _FIRST) for kind in ("string", "other")},
    **{(state, "["): _FIRST for state in (_VALUE, _FIRST)},
    **{(state, "{"): _FIRST_NAME for state in (_VALUE, _FIRST)},
    **{(state, "string"): _COLON for state in (_NAME, _FIRST_NAME)},
    (_COLON, ":"): _VALUE,
    (_FIRST, "]"): _AFTER,
    (_FIRST_NAME, "}"): _AFTER,
}
"""What is expected next, by what was expected and the token found."""

_AFTER_VALUE = {("[", ","): _VALUE, ("{", ","): _NAME, ("[", "]"): _AFTER, ("{", "}"): _AFTER}
"""The same after a value, by the innermost open bracket and the token found."""


def valid_json(texts: pa.Array) -> pa.Array:
    """Returns whether each text (`string`) is JSON (boolean); true for null."""
    native = library.loaded()
    return _by_duckdb(texts) if native is None else columns.valid_json(native, texts)


def _by_duckdb(texts: pa.Array) -> pa.Array:
    answer = selected("select json_valid(text) as ok from batch", {"text": texts})
    ok = answer.column("ok").combine_chunks().fill_null(True)
    doubtful = pc.if_else(
        ok, pc.match_substring_regex(texts, _LENIENT), pc.match_substring_regex(texts, _ESCAPED_HALF)
    ).fill_null(False)
    if not pc.any(doubtful).as_py():
        return ok
    exact = pa.array(map(is_json, texts.filter(doubtful).to_pylist()), pa.bool_())
    return pc.replace_with_mask(ok, doubtful, exact)


def is_json(text: str) -> bool:
    """Returns whether one text is JSON. Its depth is limited by memory only."""
    open_brackets: list[str] = []
    expected, at = _VALUE, 0
    while (found := _TOKEN.match(text, at)) is not None:
        at = found.end()
        kind = found[0][-1] if found.lastgroup == "bracket" else str(found.lastgroup)
        if kind == "end":
            return expected == _AFTER and not open_brackets
        if expected == _AFTER:
            inside = open_brackets[-1] if open_brackets else ""
            following = _AFTER_VALUE.get((inside, kind))
        else:
            following = _NEXT.get((expected, kind))
        if following is None:
            return False
        if kind in "[{":
            open_brackets.append(kind)
        elif kind in "]}":
            open_brackets.pop()
        expected = following
    return False


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


_HALF = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)")


def mark_of(texts: Sequence[str]) -> str:
    """Returns a word that none of the texts has, escaped or not: a digest of them all."""
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
