"""The event time of a batch, of a single record, and of values that are not times."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.base.times import UNLIMITED_MS
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.record import TimeOf, ceilings, event_times, typical, valid
from teacup.kafka.records.written_times import TimeUnit

NO_HEADERS = pa.nulls(0, pa.null())  # not looked at
PAYLOAD = TimeOf("$.event.time")


def values(*times: object) -> pa.Array:
    """JSON values with these times under the path."""
    return pa.array([json.dumps({"event": {"time": at}}).encode() for at in times], pa.binary())


def payload_times(column: pa.Array) -> list[int | None]:
    found: list[int | None] = event_times(PAYLOAD, pa.nulls(len(column), pa.int64()), column, NO_HEADERS).to_pylist()
    return found


def test_kafka_time_is_the_timestamp_where_there_is_one() -> None:
    """-1 is Kafka's "none"."""
    times = event_times(TimeOf(), pa.array([5, -1, None], pa.int64()), pa.array([b"a", b"b", b"c"]), NO_HEADERS)

    assert times.to_pylist() == [5, None, None]


PAYLOAD_TIMES: list[tuple[object, int | None]] = [
    (1_700_000_000_123, 1_700_000_000_123),
    (0, 0),
    (-5, None),
    ("1969-12-31T23:59:59Z", None),
    ("1969-12-31T23:59:59.9999Z", None),
    ("1970-01-01T00:00:00.0009Z", 0),
    ("2026-01-31T12:00:00Z", 1_769_860_800_000),
    ("2026-01-31T12:00:00.1239Z", 1_769_860_800_123),
    ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
    ("2026-01-31 12:00Z", 1_769_860_800_000),
    ("2026-01-31T12:00:00", None),
    ("2026-02-31T12:00:00Z", None),
    ("yesterday", None),
    ("1700000000123", 1_700_000_000_123),
    (1.5, 1),
    (10**20, None),
    (True, None),
    (None, None),
    ([1], None),
]


def test_a_payload_time_is_an_integer_or_a_text_with_a_zone() -> None:
    """Everything else is null, and never a guess; each alone, and all of them together."""
    found = [payload_times(values(given))[0] for given, _ in PAYLOAD_TIMES]

    assert list(zip(PAYLOAD_TIMES, found, strict=True)) == [(pair, pair[1]) for pair in PAYLOAD_TIMES]
    assert payload_times(values(*(given for given, _ in PAYLOAD_TIMES))) == found


def test_what_is_not_json_has_no_time_and_does_not_disturb_its_neighbours() -> None:
    """Torn JSON, invalid UTF-8, a missing field, a tombstone."""
    good = values(7).to_pylist()[0]
    column = pa.array([b'{"event"', good, b"\xff\xfe", b"{}", None, b"", good], pa.binary())

    assert payload_times(column) == [None, 7, None, None, None, None, 7]


UNITS: list[tuple[str, object, int | None]] = [
    ("s", 1_700_000_000, 1_700_000_000_000),
    ("s", 1_700_000_000.123, 1_700_000_000_123),
    ("s", 1_700_000_000.1239, 1_700_000_000_123),
    ("s", 0.001, 1),
    ("s", 1e300, None),
    ("s", 10**17, None),
    ("s", "2026-01-31T12:00:00Z", 1_769_860_800_000),
    ("us", 1_700_000_000_123_999, 1_700_000_000_123),
    ("us", 1500.5, 1),
    ("us", 999, 0),
    ("us", -5, None),
    ("us", -(2**63), None),
    ("us", "2026-01-31T12:00:00.1239Z", 1_769_860_800_123),
]


def test_a_number_counts_its_unit() -> None:
    """A text says itself what it means."""
    for unit, number, meant in UNITS:
        found = event_times(TimeOf("$.event.time", TimeUnit(unit)), pa.nulls(1, pa.int64()), values(number), NO_HEADERS)

        assert found.to_pylist() == [meant], (unit, number)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.binary(max_size=12),
            st.integers().map(lambda t: json.dumps({"event": {"time": t}}).encode()),
            st.datetimes().map(lambda t: json.dumps({"event": {"time": t.isoformat() + "Z"}}).encode()),
            st.text(max_size=12).map(lambda t: json.dumps({"event": {"time": t}}, ensure_ascii=False).encode()),
        ),
        max_size=8,
    ).filter(lambda some: all(value is None or b"\\ud" not in value for value in some))
)
def test_a_single_record_has_the_time_that_it_has_in_a_batch(column: list[bytes | None]) -> None:
    """The search over records and the reader of whole ranges must not disagree."""
    together = payload_times(pa.array(column, pa.binary()))

    assert together == [payload_times(pa.array([value], pa.binary()))[0] for value in column]


@pytest.mark.parametrize("path", ["time", "$", "$.a[*]", "$..a", "", "$.a'; drop"])
def test_a_path_that_names_not_one_field_is_refused(path: str) -> None:
    """Checked before anything connects."""
    with pytest.raises(ConfigError, match="is not allowed"):
        TimeOf(path)


def test_a_time_is_valid_from_1970_up_to_its_ceiling() -> None:
    """Null, negative and above the ceiling are invalid; without append times the clock alone is the ceiling."""
    times = pa.array([None, -1, 0, 99, 100, 101], pa.int64())
    tops = ceilings(pa.nulls(6, pa.int64()), pa.array([0, 0, 1, 1, 1, 1], pa.int8()), 100, 10)

    assert valid(times, tops).to_pylist() == [False, False, True, True, True, False]


def test_the_append_time_is_a_ceiling_as_well() -> None:
    """If the broker set it: a producer's own timestamp bounds nothing, and the clock remains a bound."""
    timestamps, types = pa.array([50, 50, 500], pa.int64()), pa.array([1, 2, 2], pa.int8())

    assert ceilings(timestamps, types, 100, 10).to_pylist() == [100, 60, 100]
    assert ceilings(timestamps, types, 100, UNLIMITED_MS).to_pylist() == [100, 100, 100]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.data())
def test_a_typical_time_is_moved_by_no_minority(times: list[int], data: st.DataObject) -> None:
    """Whatever fewer than half of the records say, it stays within the range of the others."""
    count = data.draw(st.integers(0, (len(times) - 1) // 2))
    wrong = data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=count, max_size=count))

    assert min(times[count:]) <= typical(wrong + times[count:]) <= max(times[count:])


def test_a_block_without_records_has_no_typical_time() -> None:
    """The caller has forgotten a case."""
    with pytest.raises(ValueError, match="none are given"):
        typical([])
