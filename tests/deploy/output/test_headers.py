"""What headers say, whatever they are: they may be of another program."""

import pyarrow as pa
import pytest

from deploy.output.ours import (
    added_to_copies,
    copies_of_others,
    rows_before,
    rows_by,
    rows_of_others,
    texts_in,
)
from teacup.kafka.delivery.provenance import provenance_of
from teacup.kafka.headers import REASON, TOPIC
from teacup.kafka.read.fetch import HEADERS, SCHEMA
from tests.support.provenance import header


def headers(name, *values):
    return pa.array([None if value is None else [{"key": name, "value": value}] for value in values], HEADERS)


def test_texts():
    assert texts_in(headers(REASON, b"x", b"\xff", None), REASON).to_list() == ["x", None, None]


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_records_without_headers_are_of_nobody(values):
    found = headers(REASON, *values)
    batch = pa.RecordBatch.from_pylist([{"headers": None}] * len(values), pa.schema([SCHEMA.field("headers")]))

    assert provenance_of(found).rows() == [(None, None, None)] * len(values)
    assert texts_in(found, REASON).to_list() == values
    assert rows_before(batch, "ab").to_pylist() == rows_by(batch, ("ab",)).to_pylist() == [False] * len(values)
    assert rows_of_others(batch, (), None) is None
    assert copies_of_others(batch, (), ()) is None
    assert rows_by(batch, ()).to_pylist() == [False] * len(values)


def test_a_copy_of_a_row_of_another_join_has_only_what_was_added_to_it():
    theirs, other = [header("0:1", "0:2", "ab:1"), (REASON, b"expired")], [("h", None)]
    ours = [(TOPIC, b"t"), header(right="3:4")]
    lists = [[*theirs, *ours], None, other, [(TOPIC, b"x"), *theirs, (TOPIC, b"t")], [], theirs]
    found = pa.array(lists, HEADERS)

    added = [ours, None, other, [(TOPIC, b"t")], [], theirs]
    assert added_to_copies(found) == pa.array(added, HEADERS)
    assert added_to_copies(found.slice(2, 3)) == pa.array(added[2:5], HEADERS)
    assert added_to_copies(found.slice(1, 2)) == pa.array(added[1:3], HEADERS)
    assert texts_in(added_to_copies(found), REASON).to_list()[0] is None
    assert provenance_of(found).row(0) == (None, "3:4", None)
