"""Records and headers of any bytes become columns of an audit."""

import pyarrow as pa
import pytest

from deploy.inspection.audit.plan_history import PlanHistory
from deploy.inspection.audit.records import SHIFT, SideTable, last_time
from deploy.inspection.audit.written import past_corrections_of, rows_of
from joins.spec import Format, Side
from teacup.kafka.read.fetch import SCHEMA
from tests.support.provenance import header

NO_TEXT = b"\xff\xfe, longer than what polars keeps beside its length"


def fetched(values, **changes):
    """Records of one partition with these values, as a fetch gives them."""
    plain = {"partition": 0, "timestamp": 1_000, "timestamp_type": 1, "key": b"k", "headers": None}
    records = [{**plain, **changes, "offset": at, "value": value} for at, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


def table_of(batch, **side):
    made = SideTable("left", Side(topic="left", disorder_ms=0, **side), 1_000, 10_000)
    return made.of(batch, PlanHistory().of("left", 0)).to_pydict()


@pytest.mark.parametrize("form", [Format.JSON, Format.TEXT])
def test_what_is_no_text_is_a_dead_letter_and_spoils_no_other(form):
    found = table_of(fetched([b"1", NO_TEXT, None, b"2"]), format=form)

    assert found["dead"] == [None, "invalid_text", None, None]
    assert found["len"][0] == found["len"][3] > 0
    assert table_of(fetched([NO_TEXT]), format=form)["dead"] == ["invalid_text"]


@pytest.mark.parametrize("what", ["skip", "dead_letter"])
def test_tombstones_take_no_part_where_their_side_has_them(what):
    """As in the join, whatever else is wrong with them."""
    at_9, at_99 = fetched([None, b"v"]), fetched([None, b"v"], timestamp=99_000)

    assert table_of(at_9, tombstones=what)["dead"] == ["tombstone", None]
    assert table_of(at_99, tombstones=what)["dead"] == ["tombstone", "future_time"]
    assert table_of(at_9)["dead"] == [None, None]


def test_a_delete_without_a_time_has_that_of_the_record_before_it_also_in_another_fetch():
    """As its feeder stores it, if the time is in the value."""
    side = Side(topic="right", disorder_ms=0, format=Format.JSON, time="$.t", tombstones="delete", deletes="$.op=d")
    table, at = SideTable("right", side, 1_000, 10_000), PlanHistory().of("right", 0)

    first = table.of(fetched([b'{"t": 5}', b'{"t": 7, "op": "d"}']), at)
    second = table.of(fetched([None, None, b'{"t": 9}']), at, before_ms=last_time(first))

    assert [*first["deleted"].to_pylist(), *second["deleted"].to_pylist()] == [False, True, True, True, False]
    assert second["t"].to_pylist() == [7, 7, 9]
    assert second["dead"].to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    "text", [b"\xff:1", b"1", b"1:2:3", b"1:", b"-1:2", b"1:-2", b"1048576:5", b"0:17592186044416", b"", None]
)
def test_a_header_that_names_no_position_is_read_as_none(text):
    """A number too large for a partition would be another one, once it is put together with its offset."""
    headers = [("teacup", text and b"1 " + text + b" - ab:1"), ("teacup.time", NO_TEXT), ("teacup.late", NO_TEXT)]

    found = rows_of(fetched([b"v"], headers=headers)).to_pydict()

    assert (found["lpos"], found["ts"]) == ([None], [1_000])
    assert rows_of(fetched([b"v"], headers=[header("3:4")]))["lpos"].to_pylist() == [(3 << SHIFT) + 4]


def test_a_correction_is_withdrawn_only_if_it_says_so():
    """A `select` may give a row no value."""
    named = header("0:1", "0:2", "0:7")
    rows = [fetched([None], headers=[named, *more]) for more in ((), [("teacup.outcome", b"withdrawn")])]

    assert [past_corrections_of(row)["withdrawn"].to_pylist() for row in rows] == [[False], [True]]
