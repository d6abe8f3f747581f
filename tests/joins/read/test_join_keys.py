"""Join keys of a side that does not take Kafka's: what takes part, what has no key, what is a dead letter."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

from joins.read.parse import parse
from joins.rows.frames import OWN_KEY, RECORD, rows_about
from joins.spec import Format, Right, Side
from joins.testing.log import RECORDS
from joins.window.slice_files import FileStore
from joins.window.slices import Slice
from joins.window.window import Window
from teacup.base.times import EARLIEST_MS

NOW_MS = 9_000


def taken(side, values, headers=None):
    """Records with Kafka's key `own`, from offset 0 on."""
    n = len(values)
    columns = [[0] * n, list(range(n)), [5] * n, [1] * n, [b"own"] * n, values, headers or [None] * n]
    arrays = [pa.array(column, part.type) for column, part in zip(columns, RECORDS, strict=True)]
    return parse("left", side, pa.record_batch(arrays, schema=RECORDS), NOW_MS, 1_000, EARLIEST_MS)


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

    parsed = taken(side, values, [[("h", b"1")]] * 5)

    assert parsed.records["key"].to_list() == [b"x|1"]
    assert parsed.dead["reason"].to_list() == ["invalid_key", "invalid_json", "invalid_text", "invalid_key"]
    assert parsed.dead["left_key"].to_list() == [b"own"] * 4


@pytest.mark.parametrize("form", Format)
def test_a_header_is_a_key_in_every_format(form):
    """Any bytes; the value is not looked at for it."""
    side = Side(topic="t", key="header:h", format=form)

    records = taken(side, [b"{}", b"{}"], [[("h", b"\xff|")], None]).records

    assert records["key"].to_list() == [b"\xff|", None]


def test_time_and_key_come_from_the_same_value():
    """In one reading of it."""
    side = Side(topic="t", key="$.id", time="$.at", format=Format.JSON)

    parsed = taken(side, [b'{"id": "k", "at": 50}', b'{"id": "k"}', b'{"at": 60}', b'{"id": [], "at": 70}'])

    assert parsed.records.select("time", "key").rows() == [(50, b"k"), (60, None)]
    assert dict(parsed.dead.select("left_offset", "reason").iter_rows()) == {1: "no_time", 3: "invalid_key"}


def test_rows_have_both_keys():
    """The join key as `key`, the record's own as its side's."""
    side = Side(topic="t", key="$.id", format=Format.JSON)

    rows = rows_about("right", taken(side, [b'{"id": "k"}']).records, "unjoined", "expired", late=False)

    assert rows.select("key", "right_key", "left_key").rows() == [(b"k", b"own", None)]


def test_of_right_remains_what_is_kept_and_dead_letters_are_whole():
    """Fields at their places, headers by name, Kafka's key only if it is named."""
    kept = ("$.price.amount", "header:h")
    values = [b'{"id": "k", "price": {"amount": 5, "tax": 1}, "long": "x"}', b'{"id": [1], "long": "y"}']
    headers = [[("h", b"1"), ("g", b"2")]] * 2

    for keep, own in ((kept, None), ((*kept, "kafka"), b"own")):
        parsed = taken(Side(topic="t", key="$.id", keep=keep, format=Format.JSON), values, headers)

        (record,) = parsed.records.iter_rows(named=True)
        assert record["value"] == b'{"price":{"amount":5}}'
        assert record["headers"] == [{"key": "h", "value": b"1"}]
        assert (record["key"], record[OWN_KEY]) == (b"k", own)
        assert parsed.dead["left_value"].to_list() == values[1:]
        assert parsed.dead["left_key"].to_list() == [b"own"]


def test_the_window_takes_the_bytes_of_what_is_kept():
    """With a tenth of the fields kept, at most 15 % of the bytes, in memory and in the slice's file."""
    fields = {f"field{i:02}": "x" * 100 for i in range(20)}
    values = [json.dumps({**fields, "field00": f"{i:0100}"}).encode() for i in range(1_000)]

    def sizes(keep, folder):
        side = Right(topic="t", key="kafka", keep=keep, format=Format.JSON, before_ms=1, after_ms=1)
        slice_ = Slice.build(taken(side, values).records, {0: (0, len(values))})
        FileStore(folder).save_slice(slice_)
        window = Window(side)
        window.add(slice_)
        return window.data_bytes, sum(path.stat().st_size for path in folder.iterdir())

    with TemporaryDirectory() as folder:
        whole, part = (
            sizes(keep, Path(folder) / name) for name, keep in (("a", None), ("b", ("$.field00", "$.field01")))
        )

    assert part[0] <= 0.15 * whole[0]
    assert part[1] <= 0.15 * whole[1]
