"""Avro records as JSON: the container that polars decodes, against records read one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from inspect import isfunction
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.process import no_garbage_collection
from teacup.kafka.records.avro import AvroSchema, NotAvro, read_in_python
from teacup.kafka.records.avro_schemas import INT32
from tests.support.avrorecords import PLAIN, VALUES, read, record, shown, varint, written


@given(st.lists(VALUES, max_size=6))
def test_records_are_what_was_written(values: list[dict[str, Any]]) -> None:
    """Every kind of field that polars decodes, null and nested ones too."""
    schema = AvroSchema(json.dumps(PLAIN))

    found = read(schema, [written(PLAIN, value) for value in values])

    assert schema._at_once is not None
    assert found == [shown(value) for value in values]


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


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Hypothesis is called by the garbage collector; at the deepest call there is no room for it."""
    with no_garbage_collection():
        yield


@pytest.mark.usefixtures("uncollected")
def test_a_value_nested_too_deep_is_null() -> None:
    """A list linked through 100,000 records of one byte each; its neighbour is read."""
    schema = record({"name": "next", "type": ["null", "Click"]})

    assert read(AvroSchema(json.dumps(schema)), [b"\x02" * 100_000 + b"\x00", b"\x00"]) == [None, {"next": None}]


@pytest.mark.usefixtures("uncollected")
def test_fastavros_reader_in_python_is_there_and_can_be_trusted() -> None:
    """It is private, so a new fastavro may drop or change it. The public one ends the process on such a record."""
    lacks = "fastavro._read_py.schemaless_reader has changed: see where teacup/kafka/records/avro.py imports it"
    counted = {"type": "int", "logicalType": INT32}
    tree = record({"name": "n", "type": counted}, {"name": "next", "type": ["null", "Click"]})
    parsed = fastavro.parse_schema(tree, {})
    good = varint(7) + b"\x02" + varint(8) + b"\x00"

    def outcome(value: bytes) -> Any:
        try:
            return read_in_python(io.BytesIO(value), parsed)
        except (RecursionError, ValueError) as error:
            return type(error)

    assert isfunction(read_in_python), lacks  # not compiled
    assert outcome(good) == {"n": 7, "next": {"n": 8, "next": None}}, lacks
    assert outcome((varint(7) + b"\x02") * 100_000) is RecursionError, lacks
    assert outcome(varint(2**31)) is ValueError, lacks  # our check of ints


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
        avro_schema = AvroSchema(json.dumps(schema))
        assert (avro_schema._at_once is not None) == at_once
        value = {name: given for name, _, given, _ in some}
        assert read(avro_schema, [written(schema, value)] * 2) == [{name: shown for name, _, _, shown in some}] * 2


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
    value = written(schema, {"id": "a", "long": "x"})

    assert read(AvroSchema(json.dumps(schema)), [value], ["id", "gone"]) == [{"id": "a"}]
    assert read(AvroSchema(json.dumps(schema)), [value], []) == [{}]


@pytest.mark.parametrize("text", ["{torn", '{"type": "record"}', '"shop.Unknown"', "5"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    """Its records become dead letters."""
    with pytest.raises(NotAvro):
        AvroSchema(text)
