"""The newest schema of a topic as the fields of a side: what the records of it become has these types."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from joins import JoinSpec, Right, Side, SpecError
from joins.fields import with_fields
from joins.items import row_table
from joins.read.deserialize import json_values
from joins.rows.frames import ROW
from tests.support.framed import avro
from tests.support.protofile import proto_file
from tests.support.registry import RegistryServer, registry_server

AT = datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000, datetime.UTC)
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS: dict[str, tuple[Any, Any, str, Any]] = {
    "id": ("string", "a", "string", "a"),
    "n": ("int", 7, "int", 7),
    "big": ("long", 2**62, "bigint", 2**62),
    "part": ("double", 0.5, "double", 0.5),
    "yes": ("boolean", True, "boolean", True),
    "maybe": (["null", "int"], None, "int", None),
    "either": (["null", "int", "string"], 5, "string", "5"),
    "money": (MONEY, Decimal("1.25"), "decimal(9,2)", Decimal("1.25")),
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, AT, "timestamp", AT.replace(tzinfo=None)),
    "day": ({"type": "int", "logicalType": "date"}, AT.date(), "date", AT.date()),
    "which": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=1), "string", str(uuid.UUID(int=1))),
    "raw": ("bytes", b"ab", "string", "YWI="),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B", "string", "B"),
    "inner": (INNER, {"x": 3}, "struct<x:int>", (3,)),
    "many": ({"type": "array", "items": "int"}, [1, 2], "array<int>", [1, 2]),
    "map": ({"type": "map", "values": "int"}, {"k": 4}, "map<string,int>", {"k": 4}),
}  # fmt: skip
RECORD = {"type": "record", "name": "R", "fields": [{"name": name, "type": of[0]} for name, of in FIELDS.items()]}


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def spec_of(registry: RegistryServer, form: str = "avro") -> JoinSpec:
    return JoinSpec(
        name="x",
        left=Side(topic="orders", format=form, value_schema="registry"),
        right=Right(topic="right", before="1s"),
        registry={"url": registry.url},
    )


def frame(spark: Any, *values: bytes | None) -> Any:
    rows = [dict.fromkeys(ROW) | {"outcome": "matched", "left_value": value} for value in values]
    return spark.createDataFrame(row_table(pl.DataFrame(rows, schema=ROW)))


def test_a_record_of_avro_has_the_types_of_its_schema(spark: Any, registry: RegistryServer) -> None:
    """Every value as it was, none of them a mismatch; of the newest version."""
    registry.register("orders-value", {"type": "record", "name": "R", "fields": []})
    number = registry.register("orders-value", RECORD)
    spec = spec_of(registry)
    written = pa.array([avro(number, RECORD, {name: of[1] for name, of in FIELDS.items()})], pa.binary())
    (text,), (why,) = json_values(spec.left, spec.registry, None)(written)

    rows = with_fields(frame(spark, text.as_py()), spec)

    assert why.as_py() is None
    assert [(field.name, field.dataType.simpleString()) for field in rows.schema["left"].dataType] == [
        (name, kind) for name, (_, _, kind, _) in FIELDS.items()
    ]
    (row,) = rows.collect()
    assert not row.left_mismatch
    for name, (_, _, _, value) in FIELDS.items():
        found = row.left[name]
        assert (tuple(found) if name == "inner" else found) == value, name


def test_a_schema_that_is_missing_or_contains_itself_is_named(spark: Any, registry: RegistryServer) -> None:
    """With what to do."""
    spec = spec_of(registry)
    with pytest.raises(
        SpecError, match=r"left\.schema: .*'orders-value' in the registry .* there is none; register it"
    ):
        with_fields(frame(spark, None), spec)
    registry.register(
        "orders-value", {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    )
    with pytest.raises(SpecError, match="has no type of Spark's: it contains itself"):
        with_fields(frame(spark, None), spec)
    with pytest.raises(SpecError, match="the registry's schema needs format 'avro' or 'protobuf'"):
        Side(topic="t", format="json", value_schema="registry")


def test_a_message_of_protobuf_has_the_types_of_its_file(spark: Any, registry: RegistryServer) -> None:
    """Of the first message; 64 bits without a sign have digits enough, and repeated fields are arrays."""
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    fields = [
        ("id", kinds.TYPE_STRING), ("n", kinds.TYPE_INT32), ("big", kinds.TYPE_UINT64), ("part", kinds.TYPE_FLOAT),
        ("raw", kinds.TYPE_BYTES), ("number", kinds.TYPE_UINT32), ("flag", kinds.TYPE_BOOL),
        ("tags", kinds.TYPE_STRING),
        ("at", ".google.protobuf.Timestamp"), ("inner", ".shop.Inner"),
    ]  # fmt: skip
    file = proto_file(
        "order.proto", [("Order", fields), ("Inner", [("x", kinds.TYPE_INT64)])], "google/protobuf/timestamp.proto"
    )
    registry.register_serialized("orders-value", file)

    rows = with_fields(
        frame(spark, b'{"big": 18446744073709551615, "n": 1}', b'{"number": "x"}'), spec_of(registry, "protobuf")
    )

    assert rows.schema["left"].dataType.simpleString() == (
        "struct<id:string,n:int,big:decimal(20,0),part:double,raw:string,number:bigint,flag:boolean,tags:array<string>,"
        "at:timestamp,inner:struct<x:bigint>>"
    )
    fits, other = rows.collect()
    assert (fits.left.big, fits.left_mismatch, other.left_mismatch) == (Decimal(2**64 - 1), False, True)
