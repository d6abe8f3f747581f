"""What headers say, whatever they are: they may be of another program."""

import pyarrow as pa
import pytest

from deploy.output.ours import (
    added_to_copies,
    copies_of_others,
    positions_in,
    rows_before,
    rows_by,
    rows_of_others,
    tags_in,
    texts_in,
)
from teacup.kafka.headers import BATCH, LEFT, RIGHT, TOPIC
from teacup.kafka.read.fetch import HEADERS, SCHEMA

FOREIGN = [b"", b":", b"1", b"1:", b":1", b"a:1", b"1:2:3", b"\xff:1", b"1:\xff", b"1 :2", None]


def headers(name, *values):
    return pa.array([None if value is None else [{"key": name, "value": value}] for value in values], HEADERS)


def test_positions():
    assert positions_in(headers(LEFT, b"0:0", b"12:9000000000"), LEFT).rows() == [(0, 0), (12, 9_000_000_000)]
    assert all(None in position for position in positions_in(headers(LEFT, *FOREIGN), LEFT).rows())


def test_tags():
    assert tags_in(headers(BATCH, b"ab:7", b"cd:8", b"ab:7")).rows() == [("ab", 7), ("cd", 8), ("ab", 7)]
    assert tags_in(headers(BATCH, b"ab:99999999999999999999")).rows() == [("ab", None)]
    assert (
        tags_in(headers(BATCH, b"", b":", b"a:", b":1", b"a:b", b"a:1:2", b"\xff:1", None)).rows() == [(None, None)] * 8
    )


def test_texts():
    assert texts_in(headers(LEFT, b"x", b"\xff", None), LEFT).to_list() == ["x", None, None]


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_records_without_headers_are_of_nobody(values):
    found = headers(LEFT, *values)
    batch = pa.RecordBatch.from_pylist([{"headers": None}] * len(values), pa.schema([SCHEMA.field("headers")]))

    assert positions_in(found, LEFT).rows() == tags_in(found).rows() == [(None, None)] * len(values)
    assert texts_in(found, LEFT).to_list() == values
    assert rows_before(batch, "ab").to_pylist() == rows_by(batch, ("ab",)).to_pylist() == [False] * len(values)
    assert rows_of_others(batch, (), None) is None
    assert copies_of_others(batch, (), ()) is None
    assert rows_by(batch, ()).to_pylist() == [False] * len(values)


def test_a_copy_of_a_row_of_another_join_has_only_what_was_added_to_it():
    theirs, other = [(LEFT, b"0:1"), (RIGHT, b"0:2"), (BATCH, b"ab:1")], [("h", None)]
    ours = [(TOPIC, b"t"), (RIGHT, b"3:4")]
    lists = [[*theirs, *ours], None, other, [(TOPIC, b"x"), *theirs, (TOPIC, b"t")], [], theirs]
    found = pa.array(lists, HEADERS)

    added = [ours, None, other, [(TOPIC, b"t")], [], theirs]
    assert added_to_copies(found) == pa.array(added, HEADERS)
    assert added_to_copies(found.slice(2, 3)) == pa.array(added[2:5], HEADERS)
    assert added_to_copies(found.slice(1, 2)) == pa.array(added[1:3], HEADERS)
    assert positions_in(added_to_copies(found), LEFT).rows()[0] == (None, None)
