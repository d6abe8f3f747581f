"""Avro values that are not of their schema: found before polars sees them, and nothing to their neighbours."""

from __future__ import annotations

import ctypes
import io
import json
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from teacup.kafka.native.columns import valid_avro
from teacup.kafka.records import avro
from teacup.kafka.records.avro import AvroSchema
from tests.support.avrorecords import PLAIN, VALUES, read, record, shown, varint, written
from tests.support.avroskip import is_record, skip_of


def kinds(prefix: str = "") -> st.SearchStrategy[Any]:
    """Types of fields; the names of those that have one begin with the prefix."""
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    day = {"type": "int", "logicalType": "date"}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    enum = {"type": "enum", "name": f"{prefix}E", "symbols": ["A", "B", "C"]}
    fixed = {"type": "fixed", "name": f"{prefix}F", "size": 3}
    plain = st.sampled_from(
        ["boolean", "int", "long", "float", "double", "bytes", "string", millis, micros, day, decimal, enum, fixed]
    )
    inner = plain | plain.map(lambda kind: ["null", kind]) | plain.map(lambda kind: {"type": "array", "items": kind})
    nested = inner.map(lambda kind: {"type": "record", "name": f"{prefix}N", "fields": [{"name": "x", "type": kind}]})
    some = plain | nested
    return some | some.map(lambda kind: {"type": "array", "items": kind}) | some.map(lambda kind: ["null", kind])


SLOWER = st.sampled_from(
    [
        {"type": "map", "values": "int"},
        ["null", "long", "string"],
        {"type": "array", "items": ["null", "boolean", "bytes"]},
    ]
)
LENGTHS = [0, 1, -1, 5, -5, 2**20, 2**31, -(2**40), 2**40, 2**62, -(2**63), 2**63 - 1]
WIRE = st.lists(st.sampled_from(LENGTHS).map(varint) | st.binary(max_size=4), max_size=8).map(b"".join)


@given(kinds("a"), kinds("b") | SLOWER, st.lists(WIRE, min_size=1, max_size=6))
def test_hostile_records_are_null_or_read_and_never_change_their_neighbours(
    first: Any, second: Any, records: list[bytes]
) -> None:
    """Huge lengths and counts, negative ones, cut varints. Without unions nothing is read that fastavro refuses."""
    whole = record({"name": "a", "type": first}, {"name": "b", "type": second})
    schema = AvroSchema(json.dumps(whole))

    together = schema.json_of(pa.array(records, pa.binary())).to_pylist()

    assert together == [schema.json_of(pa.array([value], pa.binary())).to_pylist()[0] for value in records]
    for value, text in zip(records, together, strict=True):
        if text is not None:
            assert json.loads(text).keys() == {"a", "b"}
            assert "null" in json.dumps(whole) or reads(whole, value)


@given(kinds("a"), kinds("b"), st.lists(WIRE, min_size=1, max_size=6))
def test_records_that_polars_refuses_are_found_without_it(first: Any, second: Any, records: list[bytes]) -> None:
    """Exactly those: a record that is found wrongly would depend on its neighbours, one that is not found is slow."""
    schema = AvroSchema(json.dumps(record({"name": "a", "type": first}, {"name": "b", "type": second})))
    container = schema._at_once
    assume(container is not None)
    assert container is not None
    skip = skip_of(container.schema)

    for value in records:
        alone = container._decoded(pa.array([value], pa.binary()), None)

        assert is_record(skip, value) == (alone is not None)


@given(kinds("a"), kinds("b"), st.lists(WIRE, max_size=6), st.data())
def test_c_finds_the_same_records(
    native_library: ctypes.CDLL, first: Any, second: Any, wire: list[bytes], data: st.DataObject
) -> None:
    """Hostile ones, cut ones, and ones with a byte changed; also in a part of a column."""
    schema = AvroSchema(json.dumps(record({"name": "a", "type": first}, {"name": "b", "type": second})))
    container = schema._at_once
    assume(container is not None)
    assert container is not None
    skip = skip_of(container.schema)
    records = wire + [value[: data.draw(st.integers(0, len(value)))] for value in wire if is_record(skip, value)]
    column = pa.array([b"before", *records], pa.binary())[1:]

    found = valid_avro(native_library, container._program, column)

    expected = [is_record(skip, value) for value in records]
    assert ([True] * len(records) if found is None else found.to_pylist()) == expected


@pytest.mark.parametrize("text", ["", "é😀", "\x00"])
@pytest.mark.parametrize("tail", [b"", b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_c_agrees_about_texts_and_numbers(native_library: ctypes.CDLL, text: str, tail: bytes) -> None:
    """UTF-8, the longest numbers, blocks with their size in bytes."""
    schema = record(
        {"name": "s", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "a", "type": {"type": "array", "items": ["null", "int"]}},
    )
    value = text.encode() + tail
    texts = [varint(len(value) + more) + value for more in (0, 1, -1)]
    numbers = [varint(2**63 - 1), varint(-(2**63)), b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\x01"]
    blocks = [b"\x00", varint(-2) + varint(99) + b"\x00\x02\x05\x00", varint(-(2**63)) + b"\x00\x00", varint(2**40)]
    records = [s + n + a for s in texts for n in numbers for a in blocks]
    container = AvroSchema(json.dumps(schema))._at_once
    assert container is not None
    skip = skip_of(container.schema)

    found = valid_avro(native_library, container._program, pa.array(records, pa.binary()))

    assert found is not None
    assert found.to_pylist() == [is_record(skip, value) for value in records]


@pytest.mark.parametrize("bad", [b"\xfe\xff\xff\xff\x0f", b""], ids=["a huge length", "nothing"])
def test_polars_never_sees_a_bad_record(
    native_library: ctypes.CDLL, capfd: pytest.CaptureFixture[str], bad: bytes
) -> None:
    """Whatever it panics on, in batches of any size: it would print dozens of lines for each batch."""
    schema = record({"name": "id", "type": "string"}, {"name": "n", "type": "long"})
    records = [bad if i % 24 == 7 else written(schema, {"id": str(i), "n": i}) for i in range(600)]
    whole = AvroSchema(json.dumps(schema))

    found = [row for at in range(0, 600, 20) for row in read(whole, records[at : at + 20])]

    assert found == [None if i % 24 == 7 else {"id": str(i), "n": i} for i in range(600)]
    assert "panicked" not in capfd.readouterr().err  # other clients of this process may say something, too


def test_bad_records_are_found_without_asking_polars_for_each(capfd: pytest.CaptureFixture[str]) -> None:
    """It would print a line for each of 500."""
    schema = record({"name": "id", "type": "string"}, {"name": "n", "type": "long"})
    records = [
        written(schema, {"id": str(number), "n": number})[: 2 if number % 2 else None] for number in range(1_000)
    ]

    found = read(AvroSchema(json.dumps(schema)), records)

    assert found == [None if number % 2 else {"id": str(number), "n": number} for number in range(1_000)]
    assert capfd.readouterr().err.count("panicked") <= 1


def reads(schema: dict[str, Any], value: bytes) -> bool:
    """Whether fastavro reads it; times may lie in any year."""
    stream = io.BytesIO(value)
    plain = json.loads(json.dumps(schema).replace("logicalType", "was"))
    try:
        fastavro.schemaless_reader(stream, plain, None)
    except (EOFError, ValueError, IndexError, TypeError, KeyError, MemoryError, OverflowError):
        return False
    return stream.tell() == len(value)


@given(st.lists(VALUES, min_size=1, max_size=5), st.data())
def test_a_record_that_is_not_of_its_schema_does_not_change_the_others(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Cut short, longer, or anything: it is null, or what it happens to be, and its neighbours are themselves."""
    schema = AvroSchema(json.dumps(PLAIN))
    records = [written(PLAIN, value) for value in values]
    at = data.draw(st.integers(0, len(records) - 1))
    good_value = records[at]
    cut = data.draw(
        st.sampled_from([good_value[:-1], good_value + b"\x00", good_value[:3], b""]) | st.binary(max_size=12)
    )

    found = read(schema, [*records[:at], cut, *records[at + 1 :]])

    good = [shown(value) for value in values]
    assert found == [*good[:at], read(schema, [cut])[0], *good[at + 1 :]]


@pytest.mark.parametrize("at", [0, 7, 8, 11])
def test_one_bad_record_among_many(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are read, in several groups."""
    monkeypatch.setattr(avro, "GROUP", 8)
    schema = record({"name": "id", "type": "string"})
    records = [written(schema, {"id": str(number)}) for number in range(12)]
    records[at] = b"\x20short"

    found = read(AvroSchema(json.dumps(schema)), records)

    assert found == [None if number == at else {"id": str(number)} for number in range(12)]


def test_a_record_cannot_pretend_to_be_its_neighbours() -> None:
    """It holds what its neighbours would have to be, and cannot know the value that ends each record."""
    schema = AvroSchema(json.dumps(record({"name": "id", "type": "string"})))
    guessed = struct.pack("<q", 0x3FF0_0000_0000_0000)

    found = read(schema, [b"\x02a" + guessed + b"\x02x" + guessed, b"\x02b"])

    assert found == [None, {"id": "b"}]
