"""A time and a key in JSON values of 150 bytes, against others: `python -m benchmarks.json_fields`.

    duckdb  one query, as `try_cast(value->>'$.at' as bigint)`
    polars  one expression with `str.json_path_match`
    json    the standard library, record by record

CPU time of one process, for small and large batches. All find the same times and keys; ours also says which values are
JSON by RFC 8259 and which times and keys cannot be used, and takes times in every spelling.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from benchmarks.measure import least_cpu_s
from teacup.kafka.records.json_fields import json_fields

BATCHES = (30, 1_000, 100_000)
ROUNDS = 7
TIME, KEY = "$.at", "$.user.id"

Found = tuple[Any, Any]
"""Times and keys, as columns or lists."""


def made(count: int) -> pa.Array:
    """Returns JSON values (binary)."""
    form = b'{"click":"%016x","user":{"id":"user-%08d"},"at":%d,"note":"%b"}'
    return pa.array([form % (n, n, 1_795_773_600_000 + n, b"x" * 60) for n in range(count)], pa.binary())


def ours(values: pa.Array) -> Found:
    found = json_fields(values, TIME, [KEY])
    assert found.time is not None
    return found.time.utc, found.keys[0]


def by_duckdb(values: pa.Array) -> Found:
    batch = pa.table({"value": values.cast(pa.string())})
    query = f"select try_cast(value->>'{TIME}' as bigint) as at, value->>'{KEY}' as key from batch"
    answer = duckdb.from_arrow(batch).query("batch", query)
    assert answer is not None  # a select always has a result
    found = answer.to_arrow_table()
    return found["at"], found["key"]


def by_polars(values: pa.Array) -> Found:
    text = pl.Series(values).cast(pl.String)
    found = pl.select(text.str.json_path_match(TIME).cast(pl.Int64).alias("at"), text.str.json_path_match(KEY))
    return found.to_series(0).to_arrow(), found.to_series(1).to_arrow()


def by_json(values: pa.Array) -> Found:
    read = [json.loads(value) for value in values.to_pylist()]
    return [value["at"] for value in read], [value["user"]["id"] for value in read]


SYSTEMS: dict[str, Callable[[pa.Array], Found]] = {
    "ours": ours,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "json": by_json,
}


def list_of(column: Any) -> list[Any]:
    found: list[Any] = column if isinstance(column, list) else column.to_pylist()
    return found


def main() -> None:
    print(f"{'records':>8}  {'ours':>10}  over ours: {', '.join(name for name in SYSTEMS if name != 'ours')}")
    for count in BATCHES:
        values = made(count)
        expected = by_json(values)
        for name, system in SYSTEMS.items():
            if tuple(map(list_of, system(values))) != expected:
                raise SystemExit(f"{name} finds other times or keys")
        took = {name: least_cpu_s(partial(system, values), ROUNDS) * 1e6 for name, system in SYSTEMS.items()}
        ratios = ", ".join(f"{took[name] / took['ours']:.1f}" for name in SYSTEMS if name != "ours")
        print(f"{count:8,}  {took['ours']:7,.0f} us  {ratios}")


if __name__ == "__main__":
    main()
