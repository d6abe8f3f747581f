"""The bounds of times, and how people read and write one."""

import ast

import pytest

from teacup.base.times import EARLIEST_MS, iso, millis_of
from tests.support.packages import modules, tree

SHOWN = {
    0: "1970-01-01T00:00:00.000Z",
    1_795_168_800_123: "2026-11-20T10:00:00.123Z",
    -1: "1969-12-31T23:59:59.999Z",
    253_402_300_799_999: "9999-12-31T23:59:59.999Z",
    253_402_300_800_000: "253402300800000 ms",
    EARLIEST_MS: "-4611686018427387904 ms",
}
READ = {
    "1970-01-01T00:00Z": 0,
    " 2026-11-20T10:00:00.123Z ": 1_795_168_800_123,
    "2026-11-20T11:00:00.1239+01:00": 1_795_168_800_123,
    "1969-12-31T23:59:59.999Z": -1,
}


def test_a_time_is_shown_in_utc_to_the_millisecond() -> None:
    """Without a rounding error, however far from today it is. A record may carry any number: it is shown, too."""
    assert {time_ms: iso(time_ms) for time_ms in SHOWN} == SHOWN


def test_a_time_with_a_zone_is_read_to_the_millisecond() -> None:
    """What is below a millisecond is dropped."""
    assert {text: millis_of(text) for text in READ} == READ


@pytest.mark.parametrize(("text", "why"), [("yesterday", "not an ISO-8601 time"), ("2026-11-20T10:00", "no zone")])
def test_another_text_is_refused(text: str, why: str) -> None:
    """A time without a zone would mean another time on another machine."""
    with pytest.raises(ValueError, match=why):
        millis_of(text)


def test_times_are_read_and_formatted_in_one_place() -> None:
    """So that two lines about one time show the same text. Values of records are shown with all that they have."""
    formatting = {
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute) and node.attr in ("strftime", "isoformat", "fromisoformat")
    }

    assert formatting - {"teacup.kafka.records.avro", "teacup.kafka.records.protobuf"} == {"teacup.base.times"}


def test_the_bounds_of_times_are_in_one_place() -> None:
    """`teacup.kafka.log.broker_log` has the bound of offsets."""
    bounds = {
        name
        for name in modules()
        for node in ast.walk(tree(name))
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow | ast.LShift)
        and ast.unparse(node) in ("2 ** 62", "1 << 62")
    }

    assert bounds == {"teacup.base.times", "teacup.kafka.log.broker_log"}
