"""Event times in every spelling of one instant, against `datetime` and dateutil; and times that do not exist."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from dateutil import parser
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.times import millis_of
from teacup.kafka.errors import ConfigError
from teacup.kafka.log.broker_log import HEADERS
from teacup.kafka.records.record import TimeOf, event_times
from teacup.kafka.records.written_times import TimeUnit, times_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)


def read(given: object, unit: str = "ms", zone: str | None = None) -> int | None:
    """The time of a field that holds this."""
    values = pa.array([json.dumps({"at": given}).encode()], pa.binary())
    return one(TimeOf("$.at", TimeUnit(unit), zone), values, pa.nulls(1, HEADERS))


def in_header(given: bytes | None, unit: str = "ms") -> int | None:
    """The time of a header that holds this, after another one of its name; None: there is no header."""
    headers = None if given is None else [{"key": "at", "value": b"7"}, {"key": "at", "value": given}]
    return one(TimeOf("header:at", TimeUnit(unit)), pa.array([b"\xff"], pa.binary()), pa.array([headers], HEADERS))


def one(time_of: TimeOf, values: pa.Array, headers: pa.Array) -> int | None:
    (found,) = event_times(time_of, pa.array([5], pa.int64()), values, headers).to_pylist()
    return None if found is None else int(found)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[datetime, str]:
    """An instant, and a text for it."""
    offset = draw(OFFSETS)
    at = draw(INSTANTS)
    basic, decimals = draw(st.booleans()), draw(st.integers(0, 9))
    there = at.astimezone(timezone(timedelta(minutes=offset)))
    hours, minutes = divmod(abs(offset), 60)
    sign = "+" if offset >= 0 else "-"
    zones = [f"{sign}{hours:02}:{minutes:02}", f"{sign}{hours:02}{minutes:02}"]
    zones += [f"{sign}{hours:02}"] if minutes == 0 else []
    zones += ["Z", "z", "-00:00"] if offset == 0 else []
    fraction = f"{there.microsecond:06}000"[:decimals]
    text = there.strftime("%Y%m%d?%H%M%S" if basic else "%Y-%m-%d?%H:%M:%S").replace("?", draw(st.sampled_from("Tt ")))
    text += draw(st.sampled_from(".,")) + fraction if fraction else ""
    exact = there.replace(microsecond=int(fraction[:6].ljust(6, "0") or 0))
    return exact, text + draw(st.sampled_from(zones))


@given(spellings())
def test_every_spelling_of_an_instant_is_that_instant(spelled: tuple[datetime, str]) -> None:
    """In values, in headers and in options of commands."""
    at, text = spelled
    expected = (at - EPOCH) // timedelta(milliseconds=1)

    assert (read(text), in_header(text.encode()), millis_of(text)) == (expected,) * 3
    assert (parser.isoparse(text.upper()) - EPOCH) // timedelta(milliseconds=1) == expected


@given(INSTANTS)
def test_every_number_of_an_instant_is_that_instant(at: datetime) -> None:
    """An integer, a double and a text, in each unit."""
    us = (at - EPOCH) // timedelta(microseconds=1)
    for unit, count, per in (("us", us, 1), ("ms", us // 1_000, 1_000), ("s", us // 1_000_000, 1_000_000)):
        expected = count * per // 1_000
        for number in (count, float(count), str(count), f"{count}.0", f"{count:.17e}"):
            assert read(number, unit) == expected, (unit, number)
        assert in_header(str(count).encode(), unit) == expected


FIELDS = {
    "month": ("00", "13", "99"), "day": ("00", "32", "99"), "hour": ("24", "25", "99"), "minute": ("60", "99"),
    "second": ("60", "61", "99"), "offset_hours": ("24", "25", "99"), "offset_minutes": ("60", "99"),
}  # fmt: skip


@given(INSTANTS, st.sampled_from([(name, bad) for name in FIELDS for bad in FIELDS[name]]), st.booleans())
def test_a_field_that_no_clock_has_makes_it_no_time(at: datetime, bad: tuple[str, str], basic: bool) -> None:
    """Never another time, in values, headers and options."""
    fields = {"month": f"{at.month:02}", "day": f"{at.day:02}", "hour": f"{at.hour:02}", "minute": f"{at.minute:02}"}
    fields |= {"second": f"{at.second:02}", "offset_hours": "01", "offset_minutes": "00"} | {bad[0]: bad[1]}
    form = "{month}-{day}T{hour}:{minute}:{second}+{offset_hours}:{offset_minutes}"
    text = f"{at.year}-" + form.format(**fields)
    text = text.replace("-", "").replace(":", "") if basic else text

    assert (read(text), in_header(text.encode())) == (None, None)
    if not bad[0].startswith("offset"):
        assert read(text.split("+")[0], zone="UTC") is None
    with pytest.raises(ValueError, match="not an ISO-8601 time"):
        millis_of(text)


@pytest.mark.parametrize("day", ["2026-02-29", "2026-02-30", "2026-04-31", "1900-02-29", "2100-02-29"])
def test_a_day_that_its_month_lacks_is_no_time(day: str) -> None:
    """Nor does it become the next month's first."""
    assert [read(f"{text}{zone}") for text in (f"{day}T10:00:00", f"{day} 10:00") for zone in ("Z", "z")] == [None] * 4
    with pytest.raises(ValueError, match="not an ISO-8601 time"):
        millis_of(f"{day}T10:00Z")


def test_a_fraction_below_a_millisecond_is_cut_off() -> None:
    """As in texts; and what is before 1970 does not become 1970."""
    assert [read(1795773600000.9), read("1795773600000.9"), read(1795773600.1239, "s")] == [
        1795773600000, 1795773600000, 1795773600123,
    ]  # fmt: skip
    assert [read(-0.5), read(-0.5, "us"), read("-5"), read(1e300), read("9" * 30), read(""), read("1.")] == [None] * 7


def test_a_missing_header_is_a_missing_time() -> None:
    """So is one that is not text."""
    assert [in_header(None), in_header(b"\xff"), in_header(b"soon"), in_header(b"9")] == [None, None, None, 9]


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2026, 1, 1)), st.sampled_from(("Europe/Berlin", "UTC", "Asia/Kolkata"))
)
def test_a_local_time_is_of_the_zone_that_its_side_gives(local: datetime, zone: str) -> None:
    """An hour that is skipped when summer time begins is no time."""
    at = local.replace(tzinfo=ZoneInfo(zone))
    exists = at.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local
    expected = (at - EPOCH) // timedelta(milliseconds=1) if exists else None

    assert read(local.isoformat(), zone=zone) == expected
    assert read(local.isoformat()) is None


def test_of_a_repeated_hour_the_earlier_one_counts() -> None:
    """And the skipped one is no time; a text with a zone keeps its own."""
    assert read("2026-10-25T02:30:00", zone="Europe/Berlin") == millis_of("2026-10-25T02:30+02:00")
    assert read("2026-03-29T02:30:00", zone="Europe/Berlin") is None
    assert read("2026-10-25T02:30:00Z", zone="Europe/Berlin") == millis_of("2026-10-25T02:30Z")
    assert times_of(pa.array(["2026-10-25T02:30", None, "7"]), TimeUnit.MS).in_zone(None)[1].to_pylist() == [
        True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("zone", ["Europe/Nowhere", "", "summer"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match=r"time_zone: .* is not a zone"):
        TimeOf("$.at", zone=zone)
