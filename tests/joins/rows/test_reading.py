"""Join keys of a side that does not take Kafka's: what takes part, what has no key, what is a dead letter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from joins.rows.intake import take_in
from joins.rows.records import OWN_KEY, RECORD, rows_about
from joins.spec import Format, Side
from joins.testing.log import RECORDS
from kafkaio.times import EARLIEST_MS

NOW_MS = 9_000


def taken(side, values, headers=None):
    """Records with Kafka's key `own`, from offset 0 on."""
    n = len(values)
    columns = [[0] * n, list(range(n)), [5] * n, [1] * n, [b"own"] * n, values, headers or [None] * n]
    arrays = [pa.array(column, part.type) for column, part in zip(columns, RECORDS, strict=True)]
    return take_in("left", side, pa.record_batch(arrays, schema=RECORDS), NOW_MS, 1_000, EARLIEST_MS)


def test_a_field_is_the_key_and_kafkas_stays_beside_it():
    """A missing field and a null are no key; the records take part all the same."""
    side = Side(topic="t", key="$.user.id", format=Format.JSON)

    records = taken(side, [b'{"user": {"id": 7}}', b'{"user": {}}', b'{"user": {"id": null}}', b"[]", None]).records

    assert records["key"].to_list() == [b"7", None, None, None, None]
    assert records[OWN_KEY].to_list() == [b"own"] * 5
    assert records.select(RECORD.names()).schema == RECORD


def test_what_cannot_be_a_key_is_a_dead_letter_with_its_own_key():
    """So is what is not JSON, also if the time is Kafka's."""
    side = Side(topic="t", key=["$.a", "header:h"], format=Format.JSON)
    values = [b'{"a": 1.5}', b"{torn", b"\xff", b'{"a": {}}', b'{"a": "x"}']

    intake = taken(side, values, [[("h", b"1")]] * 5)

    assert intake.records["key"].to_list() == [b"x|1"]
    assert intake.dead["reason"].to_list() == ["invalid_key", "invalid_json", "invalid_text", "invalid_key"]
    assert intake.dead["left_key"].to_list() == [b"own"] * 4


@pytest.mark.parametrize("form", Format)
def test_a_header_is_a_key_in_every_format(form):
    """Any bytes; the value is not looked at for it."""
    side = Side(topic="t", key="header:h", format=form)

    records = taken(side, [b"{}", b"{}"], [[("h", b"\xff|")], None]).records

    assert records["key"].to_list() == [b"\xff|", None]


def test_time_and_key_come_from_the_same_value():
    """In one reading of it."""
    side = Side(topic="t", key="$.id", time="$.at", format=Format.JSON)

    intake = taken(side, [b'{"id": "k", "at": 50}', b'{"id": "k"}', b'{"at": 60}', b'{"id": [], "at": 70}'])

    assert intake.records.select("time", "key").rows() == [(50, b"k"), (60, None)]
    assert dict(intake.dead.select("left_offset", "reason").iter_rows()) == {1: "no_time", 3: "invalid_key"}


def test_rows_have_both_keys():
    """The join key as `key`, the record's own as its side's."""
    side = Side(topic="t", key="$.id", format=Format.JSON)

    rows = rows_about("right", taken(side, [b'{"id": "k"}']).records, "unjoined", "expired", late=False)

    assert rows.select("key", "right_key", "left_key").rows() == [(b"k", b"own", None)]
