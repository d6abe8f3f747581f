"""Avro schemas, and records as Avro writes them."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from teacup.kafka.records.avro import AvroSchema


def record(*fields: dict[str, Any], name: str = "Click") -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def read(schema: AvroSchema, records: list[bytes], columns: list[str] | None = None) -> list[Any]:
    found = schema.json_of(pa.array(records, pa.binary()), columns).to_pylist()
    return [None if text is None else json.loads(text) for text in found]


def varint(number: int) -> bytes:
    rest, found = (number << 1 ^ number >> 63) & (1 << 64) - 1, bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


WHO = record({"name": "id", "type": "int"}, {"name": "key", "type": "bytes"}, name="Who")
PLAIN = record(
    {"name": "id", "type": "string"},
    {"name": "n", "type": "long"},
    {"name": "ok", "type": ["null", "boolean"], "default": None},
    {"name": "raw", "type": "bytes"},
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {
        "name": "who",
        "type": ["null", WHO],
    },
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
)


VALUES = st.fixed_dictionaries(
    {
        "id": st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "n": st.integers(-(2**63), 2**63 - 1),
        "ok": st.none() | st.booleans(),
        "raw": st.binary(max_size=5),
        "tags": st.lists(st.none() | st.text("ab", max_size=2), max_size=3),
        "who": st.none() | st.fixed_dictionaries({"id": st.integers(-9, 9), "key": st.binary(max_size=3)}),
        "kind": st.sampled_from("AB"),
        "at": st.integers(0, 2**42),
    }
)


def shown(value: dict[str, Any]) -> dict[str, Any]:
    at = datetime.fromtimestamp(value["at"] / 1000, UTC).replace(tzinfo=None)
    who = value["who"] and {**value["who"], "key": base64.b64encode(value["who"]["key"]).decode()}
    return {
        **value,
        "who": who,
        "raw": base64.b64encode(value["raw"]).decode(),
        "at": at.isoformat(timespec="microseconds") + "Z",
    }
