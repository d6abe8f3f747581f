"""Protobuf messages as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.records.protobuf import NotProtobuf, ProtoSchema
from tests.support.protofile import proto_file


def schema_of(*fields: tuple[str, int | str], imports: tuple[str, ...] = ()) -> ProtoSchema:
    """Of one message."""
    file = proto_file("a.proto", [("Click", fields)], *imports)
    return ProtoSchema(base64.b64encode(file.SerializeToString()).decode())


def read(schema: ProtoSchema, message: Any, columns: list[str] | None = None) -> Any:
    (text,) = schema.json_of(pa.array([b"\x00" + message.SerializeToString()], pa.binary()), columns).to_pylist()
    return json.loads(text)


def test_each_kind_of_field_as_it_is_written_in_the_documents() -> None:
    """By its name in the file; numbers of 64 bits are numbers."""
    schema = schema_of(
        ("id", Field.TYPE_STRING),
        ("n", Field.TYPE_UINT64),
        ("raw", Field.TYPE_BYTES),
        ("price", Field.TYPE_DOUBLE),
        ("ok", Field.TYPE_BOOL),
        ("tags", Field.TYPE_STRING),
        ("at", ".google.protobuf.Timestamp"),
        ("later", ".google.protobuf.Timestamp"),
        imports=("google/protobuf/timestamp.proto",),
    )
    message = schema._message((0,))(id="a", n=2**64 - 1, raw=b"\xff", price=float("inf"), tags=["x", "y"])
    message.at.FromMilliseconds(1_769_860_800_250)

    assert read(schema, message) == {
        "id": "a",
        "n": 2**64 - 1,
        "raw": "/w==",
        "price": None,
        "ok": False,
        "tags": ["x", "y"],
        "at": "2026-01-31T12:00:00.250000Z",
        "later": None,
    }
    assert read(schema, message, ["id", "ok", "gone"]) == {"id": "a", "ok": False}


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x02", b"\x02\x08", b"\x02\x01", b"\x00\xff", b"\xff" * 20])
def test_what_is_not_of_the_schema_is_null(value: bytes) -> None:
    """No index, fewer than none, an index of no message, a torn message."""
    assert schema_of(("id", Field.TYPE_STRING)).json_of(pa.array([value], pa.binary())).to_pylist() == [None]


@pytest.mark.parametrize("text", ["!", base64.b64encode(b"\xff\xff").decode()])
def test_what_is_no_file_is_refused(text: str) -> None:
    """Its messages become dead letters."""
    with pytest.raises(NotProtobuf):
        ProtoSchema(text)


HOSTILE = schema_of(
    ("id", Field.TYPE_STRING),
    ("n", Field.TYPE_UINT64),
    ("raws", Field.TYPE_BYTES),
    ("price", Field.TYPE_FLOAT),
    ("at", ".google.protobuf.Timestamp"),
    imports=("google/protobuf/timestamp.proto",),
)
LENGTHS = [b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10"]
WIRE = st.lists(
    st.sampled_from([b"\x0a", b"\x10", b"\x1a", b"\x25", b"\x2a", *LENGTHS]) | st.binary(max_size=5), max_size=6
).map(b"".join)


@given(WIRE)
def test_hostile_messages_are_null_or_what_protobuf_reads(value: bytes) -> None:
    """Huge lengths, wrong types, cut messages; a Timestamp that no text can hold is null."""
    (text,) = HOSTILE.json_of(pa.array([b"\x00" + value], pa.binary())).to_pylist()

    try:
        message = HOSTILE._message((0,)).FromString(value)
    except DecodeError:
        assert text is None
        return
    read = json.loads(text)
    raws = [base64.b64encode(raw).decode() for raw in message.raws]
    seconds = message.at.seconds + message.at.nanos // 10**9
    assert (read["at"] is not None) == (message.HasField("at") and -62_135_596_800 <= seconds < 253_402_300_800)
    assert (read["id"], read["n"], read["raws"]) == (message.id, message.n, raws)
