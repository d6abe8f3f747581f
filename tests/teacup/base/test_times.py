"""Times and durations: their bounds, and how people read and write them, in every kind of file."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.times import EARLIEST_MS, LONGEST_MS, duration_ms, duration_s, iso, millis_of, written
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


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0", 0), ("250ms", 250), ("10s", 10_000), ("1m 30s", 90_000), ("1.5h", 5_400_000), ("7d", 604_800_000)],
)
def test_a_text_is_a_duration(text: str, milliseconds: int) -> None:
    """Also of several parts."""
    assert (duration_ms(text), duration_s(text)) == (milliseconds, milliseconds / 1_000)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10, "give a duration with its unit"),
        (True, "give a duration with its unit"),
        ("-1s", "a duration is not negative; give 0 or more"),
        ("-1", "give a duration with its unit"),
        ("1s30ms", "give a duration with its unit"),
        ("0.5ms", "give whole milliseconds"),
        ("3651d", "give at most 3650d"),
    ],
)
def test_anything_else_is_refused(value: object, message: str) -> None:
    """With what is allowed."""
    with pytest.raises(ValueError, match=message):
        duration_ms(value)


@given(st.integers(0, LONGEST_MS))
def test_a_duration_is_written_as_it_may_be_read(milliseconds: int) -> None:
    """A message can be copied into a file."""
    assert duration_ms(written(milliseconds)) == milliseconds


def test_a_duration_is_written_in_the_largest_units() -> None:
    """Each part that is not zero."""
    assert [written(ms) for ms in (0, 250, 90_000, 172_800_000, 259_204_000)] == ["0", "250ms", "1m 30s", "2d", "3d 4s"]
