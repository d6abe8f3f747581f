"""The tables of an audit in DuckDB, and the faults that are gathered there. Pure, except that DuckDB may spill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

_AT_ONCE = 200_000


class AuditTables:
    """Runs statements on the connection that has the tables."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con

    def run(self, sql: str) -> None:
        """Runs a statement."""
        self._con.execute(sql)

    def make(self, table: str, select: str) -> None:
        """Makes a table from a select."""
        self._con.execute(f"CREATE OR REPLACE TABLE {table} AS {select}")

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        """Returns all rows of a select."""
        return self._con.execute(sql).fetchall()

    def one(self, sql: str) -> Any:
        """Returns the only value of a select."""
        return self.all(sql)[0][0]

    def integers(self, table: str, columns: str, rows: Sequence[tuple[int, ...]]) -> None:
        """Makes a small table of integers."""
        names = columns.split()
        self._con.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(f'{name} BIGINT' for name in names)})")
        self.insert(table, pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)}))

    def insert(self, table: str, rows: pa.Table) -> None:
        """Appends rows to a table."""
        if not len(rows):
            return
        self._con.register("given", rows)
        self._con.execute(f"INSERT INTO {table} SELECT * FROM given")
        self._con.unregister("given")

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yields the result of a select in pieces; other statements may run meanwhile."""
        yield from self._con.cursor().sql(sql).to_arrow_reader(_AT_ONCE)

    def tuples(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yields the result of a select row by row; other statements may run meanwhile."""
        for batch in self.batches(sql):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


FAULTS = (
    "CREATE OR REPLACE TABLE faults (kind VARCHAR, role VARCHAR, spot BIGINT, lpos BIGINT, rpos BIGINT, "
    "expected BIGINT[], t BIGINT, why VARCHAR)"
)
