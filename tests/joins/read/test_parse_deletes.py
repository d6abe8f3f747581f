"""Records that delete their key, and keys inside Kafka's key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from datadelay.watermark import UNKNOWN
from joins import SpecError
from joins.read.parse import ParsedBatch, parse
from joins.spec import Format, Side
from teacup.kafka.read.fetch import SCHEMA

TABLE: dict[str, Any] = {
    "topic": "customers",
    "key": "kafka:$.id",
    "time": "$.at",
    "tombstones": "delete",
    "deletes": "$.op=d",
    "format": Format.JSON,
}


def parsed(side: Side, records: list[tuple[bytes | None, bytes | None]], before_ms: int | None = None) -> ParsedBatch:
    columns = [
        [0] * len(records),
        list(range(len(records))),
        [9_000 + number for number in range(len(records))],
        [0] * len(records),
        [key for key, _ in records],
        [value for _, value in records],
        [None] * len(records),
    ]
    batch = pa.record_batch([pa.array(c, part.type) for c, part in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    return parse("right", side, batch, 10_000, 1_000, UNKNOWN, before_ms)


def test_a_field_of_kafkas_key_equals_the_same_text_elsewhere():
    """A number is its digits, as in a value or in Kafka's key itself; what is not JSON is a dead letter."""
    side = Side(topic="t", key="kafka:$.id")
    keys = [b'{"id": 7}', b'{"id":"7"}', b'{"id":7.0}', b'{"other":1}', None, b"no json", b'{"id":[7]}']

    found = parsed(side, [(key, b"v") for key in keys])

    assert found.records["key"].to_list() == [b"7", b"7", b"7", None, None]
    assert found.dead["reason"].to_list() == ["invalid_key", "invalid_key"]


def test_parts_of_several_places_make_one_key():
    """In their order."""
    side = Side(topic="t", key=("$.shop", "kafka:$.id"), format=Format.JSON)

    assert parsed(side, [(b'{"id": 7}', b'{"shop": "a"}')]).records["key"].to_list() == [b"a|7"]


def test_a_delete_is_a_record_without_a_value_or_with_the_mark():
    """The first has the time of the record before it; both take part, and say so."""
    records = [
        (b'{"id":1}', None),
        (b'{"id":7}', b'{"at":50,"op":"c"}'),
        (b'{"id":7}', b'{"at":60,"op":"d"}'),
        (b'{"id":7}', None),
        (b'{"id":7}', b'{"at":61,"op":"c"}'),
    ]

    first, later = parsed(Side(**TABLE), records), parsed(Side(**TABLE), records, before_ms=40)

    assert first.records["time"].to_list() == [0, 50, 60, 60, 61]
    assert later.records["time"].to_list() == [40, 50, 60, 60, 61]
    assert first.deleted is not None
    assert first.deleted.to_list() == [True, False, True, True, False]


def test_what_is_kept_of_a_value_does_not_make_it_a_delete():
    """A side that keeps no value has deletes nevertheless."""
    side = Side(**{**TABLE, "keep": ("kafka",)})

    found = parsed(side, [(b'{"id":7}', b'{"at":50}'), (b'{"id":7}', None)])

    assert found.records["value"].to_list() == [None, None]
    assert found.deleted is not None
    assert found.deleted.to_list() == [False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "$.id"}, r"'\$.id', and would delete nothing.*'kafka:\$.id'"),
        ({"tombstones": "skip"}, "needs tombstones 'delete'"),
        ({"deletes": "op=d"}, r"give PATH=TEXT, as '\$.op=d'"),
        ({"deletes": "$.op"}, r"give PATH=TEXT"),
        ({"key": "kafka:id"}, "a field of Kafka's key"),
    ],
)
def test_what_could_not_delete_is_refused(changes: dict[str, str], message: str):
    """With what to give."""
    with pytest.raises(SpecError, match=message):
        Side(**{**TABLE, **changes})
