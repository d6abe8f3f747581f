"""Avro records to JSON text: containers of many, against fastavro record by record: `python -m benchmarks.avro`.

CPU time of one process, so that what else the machine does counts little. Both ways give equal values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import fastavro
import pyarrow as pa

from benchmarks.measure import least_cpu_s
from teacup.kafka.records.avro import AvroSchema

RECORDS = 20_000
ROUNDS = 5
SCHEMA = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "user", "type": {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}},
        {"name": "page", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CLICK", "VIEW"]}},
        {"name": "price", "type": "double"},
        {"name": "seen", "type": "boolean"},
    ],
}


def written(number: int) -> bytes:
    """Returns a record in Avro."""
    value = {
        "id": f"impression-{number:08}",
        "at": 1_700_000_000_000 + number,
        "user": {"id": number % 1_000},
        "page": None if number % 3 else f"/page/{number % 50}",
        "tags": ["a", "b"][: number % 3],
        "kind": ("CLICK", "VIEW")[number % 2],
        "price": number / 7,
        "seen": number % 2 == 0,
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, SCHEMA, value)
    return stream.getvalue()


def main() -> None:
    """Prints the table."""
    schema = AvroSchema(json.dumps(SCHEMA))
    records = [written(number) for number in range(RECORDS)]
    column = pa.array(records, pa.binary())
    parsed = fastavro.parse_schema(SCHEMA)
    some = [*range(0, RECORDS, 97)]
    one_by_one = [json.loads(schema._one(records[i]) or "") for i in some]
    assert [json.loads(text) for text in schema.json_of(column.take(pa.array(some))).to_pylist()] == one_by_one
    ways: dict[str, Callable[[], object]] = {
        "containers, all fields": lambda: schema.json_of(column),
        "containers, two fields": lambda: schema.json_of(column, ["id", "at"]),
        "fastavro and json, one by one": lambda: [schema._one(record) for record in records],
        "fastavro alone, one by one": lambda: [
            fastavro.schemaless_reader(io.BytesIO(record), parsed, None) for record in records
        ],
    }
    found = {name: least_cpu_s(work, ROUNDS) / RECORDS * 1e6 for name, work in ways.items()}
    base = found["containers, all fields"]
    for name, us in found.items():
        print(f"{name:30} {us:6.2f} us per record   {us / base:5.1f} x")


if __name__ == "__main__":
    main()
