"""The join key of a batch, against one record after the other with the json module."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.errors import ConfigError
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.records.json_fields import json_fields
from teacup.kafka.records.record import KeyOf, composed

ODD = object()
"""A field that cannot be a key."""

Record = tuple[bytes | None, list[tuple[str, bytes | None]] | None, bytes | None]
"""Kafka's key, headers, value."""


def keys_of(key_of: KeyOf, records: list[Record]) -> list[Any]:
    """The key of each record as the code reads a batch; `ODD` where a field cannot be one."""
    own, headers, values = (list(column) for column in zip(*records, strict=True)) if records else ([], [], [])
    fields = json_fields(pa.array(values, pa.binary()), None, key_of.paths)
    found = key_of.keys(pa.array(own, pa.binary()), pa.array(headers, HEADERS), fields.keys).to_pylist()
    return [ODD if odd else key for key, odd in zip(found, fields.odd.to_pylist(), strict=True)]


def reference(key_of: KeyOf, record: Record) -> Any:
    """The same for one record, by what the documents say."""
    parts = [part_of(part, *record) for part in key_of.parts]
    if ODD in parts:
        return ODD
    if None in parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return b"|".join(part.replace(b"\\", b"\\\\").replace(b"|", b"\\|") for part in parts)


def part_of(part: str, own: bytes | None, headers: Any, value: bytes | None) -> Any:
    if part == "kafka":
        return own
    if part.startswith("header:"):
        named = [held for name, held in headers or () if name == part.removeprefix("header:")]
        return named[-1] if named else None
    try:
        at = None if value is None else json.loads(value, parse_float=Fraction)
    except ValueError:
        return None
    for name in part.split(".")[1:]:
        at = at.get(name) if isinstance(at, dict) else None
    return text_of_field(at)


def text_of_field(at: Any) -> Any:
    if isinstance(at, bool):
        return b"true" if at else b"false"
    if isinstance(at, Fraction):
        return b"%d" % at if at.denominator == 1 and abs(at) < 2**53 else ODD
    if isinstance(at, int):
        return b"%d" % at
    if isinstance(at, str):
        return at.encode()
    return None if at is None else ODD


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.integers(2**52, 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-100, 100).map(float),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["7", "a|b", "a\\", "|", "", "\x00"]),
)
FIELDS = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.sampled_from("id"), SCALARS, max_size=1))
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=4).filter(lambda some: some.strip(b" \t\r\n0123456789[]{},.") != b"" or not some),
    st.dictionaries(st.sampled_from(["id", "user", "other"]), FIELDS, max_size=3).map(lambda d: json.dumps(d).encode()),
    st.dictionaries(st.just("user"), st.dictionaries(st.just("id"), FIELDS)).map(
        lambda d: json.dumps(d, ensure_ascii=False).encode()
    ),
)
BYTES = st.one_of(st.none(), st.binary(max_size=4), st.sampled_from([b"|", b"\\", b"7"]))
HEADER_LISTS = st.one_of(st.none(), st.lists(st.tuples(st.sampled_from(["h", "g"]), BYTES), min_size=1, max_size=4))
RECORDS = st.lists(st.tuples(BYTES, HEADER_LISTS, VALUES), max_size=6)
PARTS = st.lists(st.sampled_from(["kafka", "$.id", "$.user.id", "header:h", "header:g"]), min_size=1, max_size=3)


@given(PARTS, RECORDS)
def test_a_batch_has_the_keys_that_each_record_has_alone(parts: list[str], records: list[Record]) -> None:
    """Whatever is in the values, headers and Kafka's keys around it."""
    key_of = KeyOf.of(parts)

    assert keys_of(key_of, records) == [reference(key_of, record) for record in records]


TEXTS: list[tuple[str, Any]] = [
    ('"7"', b"7"),
    ("7", b"7"),
    ("7.0", b"7"),
    ("7e0", b"7"),
    ("-0.0", b"0"),
    ("18446744073709551616", b"18446744073709551616"),
    ("123456789012345678901234567890", b"123456789012345678901234567890"),
    ("true", b"true"),
    ("null", None),
    ('""', b""),
    ('"\\u00e4"', "ä".encode()),
    ("7.5", ODD),
    ("1e-400", ODD),
    ("0." + "9" * 900_000, ODD),
    ("4503599627370496.5", ODD),
    ("4503599627370496.0", b"4503599627370496"),
    ("0." + "0" * 900_000 + "e-0500", b"0"),
    ("1" + "0" * 400 + "e-399", b"10"),
    ("0.5e" + "-" + "9" * 5_000, ODD),
    ("1e300", ODD),
    ("9007199254740993.0", ODD),
    ("[7]", ODD),
    ('{"a": 7}', ODD),
]


def test_the_text_of_a_field() -> None:
    """A number is its digits, so it is the same key as the text; what is not exact cannot be a key."""
    for field, key in TEXTS:
        value = b'{"id": %b}' % field.encode()

        assert keys_of(KeyOf.of("$.id"), [(None, None, value)]) == [key], field[:40]


NUMBERS = st.tuples(
    st.sampled_from(["", "-"]),
    st.sampled_from(["0", "7", "4503599627370496", "9007199254740991", "9" * 20]),
    st.sampled_from(["", ".0", ".5", f".{'0' * 20}", f".{'9' * 20}"]) | st.text("0579", min_size=1).map(".{}".format),
    st.just("") | st.integers(-400, 400).map("e{}".format) | st.sampled_from(["E+1", "e-01", "e-0400"]),
).map("".join)


@given(st.lists(st.tuples(NUMBERS, st.sampled_from(["", "\\ud800", "1e-400", '\\"0.5'])), min_size=1, max_size=5))
def test_a_number_is_a_key_by_its_value_and_not_by_its_double(fields: list[tuple[str, str]]) -> None:
    """Whatever texts stand beside it: half a surrogate pair, numbers in quotes."""
    records: list[Record] = [
        (None, None, f'{{"before": "{text}", "id": {number}, "after": "{text}"}}'.encode()) for number, text in fields
    ]

    assert keys_of(KeyOf.of("$.id"), records) == [reference(KeyOf.of("$.id"), record) for record in records]


@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), min_size=2, max_size=20))
def test_different_parts_never_make_the_same_key(pairs: list[tuple[bytes, bytes]]) -> None:
    """Also with separators and backslashes in them."""
    keys = composed([pa.array(column, pa.binary()) for column in zip(*pairs, strict=True)]).to_pylist()

    assert len(set(keys)) == len(set(pairs))


def test_the_last_header_of_a_name_counts() -> None:
    """Also if it is null, and in a part of a batch."""
    records: list[Record] = [
        (b"k", [("h", b"1"), ("g", b"x"), ("h", b"2")], None),
        (b"k", [("h", b"1"), ("h", None)], None),
        (b"k", [("g", b"x")], None),
        (b"k", None, None),
    ]

    assert keys_of(KeyOf.of("header:h"), records) == [b"2", None, None, None]


@pytest.mark.parametrize(
    "written", ["", "key", "$", "$.a[*]", "$.a[18446744073709551616]", "header:", [], ["kafka"] * 17, ["$.a", "b"]]
)
def test_what_names_no_key_is_refused(written: Any) -> None:
    """Checked before anything connects."""
    with pytest.raises(ConfigError, match="not allowed"):
        KeyOf.of(written)
