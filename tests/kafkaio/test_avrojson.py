"""Avro records as JSON: the container that polars decodes, against records read one by one."""

from __future__ import annotations

import base64
import ctypes
import io
import json
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafkaio import avrojson
from kafkaio.avrojson import AvroSchema, NotAvro
from kafkaio.avroskip import is_record
from kafkaio.native import library
from kafkaio.native.avro import valid_avro


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


@given(st.lists(VALUES, max_size=6))
def test_records_are_what_was_written(values: list[dict[str, Any]]) -> None:
    """Every kind of field that polars decodes, null and nested ones too."""
    schema = AvroSchema(json.dumps(PLAIN))

    found = read(schema, [written(PLAIN, value) for value in values])

    assert schema._at_once is not None
    assert found == [shown(value) for value in values]


def shown(value: dict[str, Any]) -> dict[str, Any]:
    at = datetime.fromtimestamp(value["at"] / 1000, UTC).replace(tzinfo=None)
    who = value["who"] and {**value["who"], "key": base64.b64encode(value["who"]["key"]).decode()}
    return {
        **value,
        "who": who,
        "raw": base64.b64encode(value["raw"]).decode(),
        "at": at.isoformat(timespec="microseconds") + "Z",
    }


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

    assert together == [schema.json_of(pa.array([one], pa.binary())).to_pylist()[0] for one in records]
    for one, text in zip(records, together, strict=True):
        if text is not None:
            assert json.loads(text).keys() == {"a", "b"}
            assert "null" in json.dumps(whole) or reads(whole, one)


@given(kinds("a"), kinds("b"), st.lists(WIRE, min_size=1, max_size=6))
def test_records_that_polars_refuses_are_found_without_it(first: Any, second: Any, records: list[bytes]) -> None:
    """Exactly those: a record that is found wrongly would depend on its neighbours, one that is not found is slow."""
    schema = AvroSchema(json.dumps(record({"name": "a", "type": first}, {"name": "b", "type": second})))
    container = schema._at_once
    assume(container is not None)
    assert container is not None

    for one in records:
        alone = container._decoded(pa.array([one], pa.binary()), None)

        assert is_record(container._skip, one) == (alone is not None)


@given(kinds("a"), kinds("b"), st.lists(WIRE, max_size=6), st.data())
def test_c_finds_the_same_records(
    native_library: ctypes.CDLL, first: Any, second: Any, wire: list[bytes], data: st.DataObject
) -> None:
    """Hostile ones, cut ones, and ones with a byte changed; also in a part of a column."""
    schema = AvroSchema(json.dumps(record({"name": "a", "type": first}, {"name": "b", "type": second})))
    container = schema._at_once
    assume(container is not None)
    assert container is not None
    records = wire + [one[: data.draw(st.integers(0, len(one)))] for one in wire if is_record(container._skip, one)]
    column = pa.array([b"before", *records], pa.binary())[1:]

    found = valid_avro(native_library, container._program, column)

    expected = [is_record(container._skip, one) for one in records]
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

    found = valid_avro(native_library, container._program, pa.array(records, pa.binary()))

    assert found is not None
    assert found.to_pylist() == [is_record(container._skip, one) for one in records]


@pytest.mark.parametrize("bad", [b"\xfe\xff\xff\xff\x0f", b""], ids=["a huge length", "nothing"])
def test_polars_never_sees_a_bad_record(
    native_library: ctypes.CDLL, capfd: pytest.CaptureFixture[str], bad: bytes
) -> None:
    """Whatever it panics on, in batches of any size: it would print dozens of lines for each batch."""
    schema = record({"name": "id", "type": "string"}, {"name": "n", "type": "long"})
    records = [bad if i % 24 == 7 else written(schema, {"id": str(i), "n": i}) for i in range(600)]
    whole = AvroSchema(json.dumps(schema))

    found = [one for at in range(0, 600, 20) for one in read(whole, records[at : at + 20])]

    assert found == [None if i % 24 == 7 else {"id": str(i), "n": i} for i in range(600)]
    assert capfd.readouterr().err == ""


def test_without_the_c_library_bad_records_are_found_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same rows."""
    monkeypatch.setattr(library, "loaded", lambda: None)
    schema = record({"name": "id", "type": "string"})
    records = [b"" if i % 3 else written(schema, {"id": str(i)}) for i in range(30)]

    assert read(AvroSchema(json.dumps(schema)), records) == [None if i % 3 else {"id": str(i)} for i in range(30)]


def test_bad_records_are_found_without_asking_polars_for_each(capfd: pytest.CaptureFixture[str]) -> None:
    """It would print a line for each of 500."""
    schema = record({"name": "id", "type": "string"}, {"name": "n", "type": "long"})
    records = [
        written(schema, {"id": str(number), "n": number})[: 2 if number % 2 else None] for number in range(1_000)
    ]

    found = read(AvroSchema(json.dumps(schema)), records)

    assert found == [None if number % 2 else {"id": str(number), "n": number} for number in range(1_000)]
    assert capfd.readouterr().err.count("panicked") <= 1


INTS = record(
    {"name": "i", "type": "int"},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "some", "type": {"type": "array", "items": ["null", "int"]}},
    {"name": "who", "type": ["null", record({"name": "id", "type": "int"}, name="Who")]},
)
WIDE = json.loads(json.dumps(INTS).replace('"int"', '"long"').replace("logicalType", "was"))
OTHER_WAYS = [
    [],
    [{"name": "m", "type": {"type": "map", "values": "int"}}],
    [{"name": "next", "type": ["null", "Click"]}],
]


@pytest.mark.parametrize("more", OTHER_WAYS, ids=["at once", "one by one", "recursive"])
def test_an_int_of_more_than_32_bits_is_not_of_the_schema(more: list[Any]) -> None:
    """Wherever it stands, and however its records are read; its neighbours are read."""
    of_tail = b"\x00" if more else b""
    good = {"i": 2**31 - 1, "day": 5, "some": [None, -(2**31)], "who": {"id": 7}}
    schema = AvroSchema(json.dumps({**INTS, "fields": [*INTS["fields"], *more]}))

    for number in (2**31, -(2**31) - 1, 2**32 + 5):
        for name, wrong in {"i": number, "day": number, "some": [1, number], "who": {"id": number}}.items():
            bad = {**good, name: wrong}
            found = read(schema, [written(WIDE, good) + of_tail, written(WIDE, bad) + of_tail])

            assert found[1] is None, (name, number)
            assert found[0] is not None
            assert {name: found[0][name] for name in good} == {**good, "day": "1970-01-06"}


def test_enums_inside_of_records_and_arrays() -> None:
    """Polars reads none there."""
    enum = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    inner = record({"name": "k", "type": ["null", enum]}, name="Inner")
    schema = record({"name": "who", "type": inner}, {"name": "some", "type": {"type": "array", "items": "Kind"}})
    value = {"who": {"k": "B"}, "some": ["A", "B"]}
    nothing = {"who": {"k": None}, "some": []}

    found = read(AvroSchema(json.dumps(schema)), [written(schema, value), written(schema, nothing), b"\x02\x04\x00"])

    assert found == [value, nothing, None]


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
    one = records[at]
    cut = data.draw(st.sampled_from([one[:-1], one + b"\x00", one[:3], b""]) | st.binary(max_size=12))

    found = read(schema, [*records[:at], cut, *records[at + 1 :]])

    good = [shown(value) for value in values]
    assert found == [*good[:at], read(schema, [cut])[0], *good[at + 1 :]]


@pytest.mark.parametrize("at", [0, 7, 8, 11])
def test_one_bad_record_among_many(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are read, in several groups."""
    monkeypatch.setattr(avrojson, "GROUP", 8)
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


def test_a_value_nested_too_deep_is_null() -> None:
    """A list linked through 100,000 records of one byte each; its neighbour is read."""
    schema = record({"name": "next", "type": ["null", "Click"]})

    assert read(AvroSchema(json.dumps(schema)), [b"\x02" * 100_000 + b"\x00", b"\x00"]) == [None, {"next": None}]


NOTHING = record({"name": "n", "type": "null"}, name="Nothing")


@pytest.mark.parametrize("items", ["null", {"type": "fixed", "name": "F", "size": 0}, NOTHING])
def test_arrays_of_items_without_bytes_are_refused(items: Any) -> None:
    """Three bytes would be a million of them."""
    schema = record({"name": "a", "type": ["null", {"type": "map", "values": {"type": "array", "items": items}}]})

    with pytest.raises(NotAvro, match="items without bytes"):
        AvroSchema(json.dumps(schema))


def test_a_short_schema_that_names_more_types_than_memory_holds() -> None:
    """Each of its types names the one before it twice."""
    named: Any = "long"
    for number in range(30):
        fields = [{"name": "a", "type": named}, {"name": "b", "type": f"N{number - 1}" if number else "long"}]
        named = {"type": "record", "name": f"N{number}", "fields": fields}

    assert read(AvroSchema(json.dumps(named)), [b"\x02"]) == [None]


def test_times_outside_the_years_that_texts_can_hold_are_null() -> None:
    """Milliseconds, microseconds and days that other libraries refuse, or cannot write; the record's rest is read."""
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    fields = [("ms", millis), ("us", micros), ("day", {"type": "int", "logicalType": "date"}), ("n", "long")]
    schema = AvroSchema(json.dumps(record(*({"name": name, "type": kind} for name, kind in fields))))
    numbers = [2**62, -(2**63), 2**31 - 1, 7]

    found = read(schema, [b"".join(map(varint, numbers))])

    assert found == [{"ms": None, "us": None, "day": None, "n": 7}]


def test_values_of_logical_types() -> None:
    """As ISO 8601 and text, whichever way they are read."""
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    iso = "2026-01-31T12:00:00.250000Z"
    fields: list[tuple[str, Any, Any, Any]] = [
        ("ms", millis, datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC), iso),
        ("us", micros, datetime(2026, 1, 31, 12, 0, 0, 7, UTC), "2026-01-31T12:00:00.000007Z"),
        ("day", {"type": "int", "logicalType": "date"}, date(2026, 1, 31), "2026-01-31"),
        ("price", decimal, Decimal("1.25"), "1.25"),
        ("f", "double", float("nan"), None),
        ("uuid", {"type": "string", "logicalType": "uuid"}, UUID(int=7), str(UUID(int=7))),
        ("fx", {"type": "fixed", "name": "F", "size": 2}, b"\xff\x00", "/wA="),
    ]
    slower: list[tuple[str, Any, Any, Any]] = [
        ("clock", {"type": "int", "logicalType": "time-millis"}, time(1, 2, 3), "01:02:03.000000"),
        ("ns", {"type": "long", "logicalType": "timestamp-nanos"}, 1_769_860_800_250_000_001, iso),
        ("counts", {"type": "map", "values": "long"}, {"a": 1}, {"a": 1}),
        ("either", ["null", "string", "long"], 5, 5),
    ]

    for some, at_once in ((fields, True), ([*fields, *slower], False)):
        schema = record(*({"name": name, "type": kind} for name, kind, _, _ in some))
        one = AvroSchema(json.dumps(schema))
        assert (one._at_once is not None) == at_once
        value = {name: given for name, _, given, _ in some}
        assert read(one, [written(schema, value)] * 2) == [{name: shown for name, _, _, shown in some}] * 2


def test_a_schema_may_name_others_and_itself() -> None:
    """Referenced ones are decoded at once; one that contains itself record by record."""
    who = record({"name": "id", "type": "int"}, name="Who")
    click = record({"name": "by", "type": "shop.Who"}, {"name": "for", "type": ["null", "Who"]})
    tree = record({"name": "next", "type": ["null", "Click"]})
    whole = record({"name": "by", "type": who}, {"name": "for", "type": ["null", "shop.Who"]})
    referring = AvroSchema(json.dumps(click), (json.dumps(who),))

    assert referring._at_once is not None
    assert read(referring, [written(whole, {"by": {"id": 1}, "for": None})]) == [{"by": {"id": 1}, "for": None}]
    assert read(AvroSchema(json.dumps(tree)), [written(tree, {"next": {"next": None}})]) == [{"next": {"next": None}}]


def test_only_the_fields_that_are_needed_are_decoded() -> None:
    """Unknown ones are missing in what comes out."""
    schema = record({"name": "id", "type": "string"}, {"name": "long", "type": "string"})
    one = written(schema, {"id": "a", "long": "x"})

    assert read(AvroSchema(json.dumps(schema)), [one], ["id", "gone"]) == [{"id": "a"}]
    assert read(AvroSchema(json.dumps(schema)), [one], []) == [{}]


@pytest.mark.parametrize("text", ["{torn", '{"type": "record"}', '"shop.Unknown"', "5"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    """Its records become dead letters."""
    with pytest.raises(NotAvro):
        AvroSchema(text)
