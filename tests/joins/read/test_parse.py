"""Which of the records that were read take part, and why the others do not."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.read.parse import CLOCKS_DIFFER_MS, parse, parse_together
from joins.read.range_gate import lags_of
from joins.rows.frames import RECORD, ROW
from joins.spec import Format, Side
from joins.testing.log import RECORDS
from teacup.base.times import EARLIEST_MS, LATEST_MS

LISTED_MS, SKEW_MS = 9_000, 1_000
CEILING_MS = LISTED_MS + SKEW_MS


def batch(times, values=None):
    """Records of partition 3 from offset 10 on, each with a key and a header."""
    n = len(times)
    columns = [
        [3] * n,
        list(range(10, 10 + n)),
        times,
        [1] * n,
        [b"k"] * n,
        values or [b"v"] * n,
        [[("h", b"1")]] * n,
    ]
    arrays = [pa.array(column, part.type) for column, part in zip(columns, RECORDS, strict=True)]
    return pa.record_batch(arrays, schema=RECORDS)


def taken(times, values=None, *, side=None, name="left", watermark_before_ms=EARLIEST_MS, skew_ms=SKEW_MS):
    side = side or Side(topic="t")
    return parse(name, side, batch(times, values), LISTED_MS, skew_ms, watermark_before_ms)


def reasons(parsed, side="left"):
    return dict(zip(parsed.dead[f"{side}_offset"], parsed.dead["reason"], strict=True))


def test_what_is_well_takes_part_in_order():
    """In the schema of records, with keys, values and headers, and no dead letters."""
    parsed = taken([5, 7], [b"x", None])

    assert parsed.records.schema == RECORD
    assert parsed.records.rows() == [
        (3, 10, 5, b"k", b"x", [{"key": "h", "value": b"1"}]),
        (3, 11, 7, b"k", None, [{"key": "h", "value": b"1"}]),
    ]
    assert len(parsed.dead) == 0
    assert parsed.dead.schema == ROW


@pytest.mark.parametrize("name", ["left", "right"])
def test_times_that_cannot_be(name):
    """None, negative, or further ahead than the skew allows; the bound itself is allowed."""
    parsed = taken([5, -1, CEILING_MS, CEILING_MS + 1], name=name)

    assert parsed.records["time"].to_list() == [5, CEILING_MS]
    assert parsed.dead.schema == ROW
    assert reasons(parsed, name) == {11: "no_time", 13: "future_time"}
    assert parsed.dead["outcome"].to_list() == ["dead_letter"] * 2
    assert parsed.dead[f"{name}_partition"].to_list() == [3, 3]
    assert parsed.dead[f"{name}_value"].to_list() == [b"v", b"v"]
    assert parsed.dead["key"].to_list() == [b"k", b"k"]


def test_times_in_the_payload():
    """Kafka's timestamp does not count then; a payload without a time cannot take part."""
    side = Side(topic="t", time="$.at", format=Format.JSON)
    values = [
        json.dumps(value).encode() for value in ({"at": 50}, {"at": 10_001}, {"on": 5}, {"at": "soon"}, {"at": -3})
    ]

    parsed = taken([1] * 7, [*values, b"{not json", None], side=side)

    assert parsed.records["time"].to_list() == [50]
    assert reasons(parsed) == {
        11: "future_time",
        12: "no_time",
        13: "no_time",
        14: "no_time",
        15: "invalid_json",
        16: "no_time",
    }


def test_a_text_without_a_zone_is_the_reason_unless_its_side_has_one():
    """In a value, and in a header; what cannot be read at all is the reason before it."""
    values = [b'{"at": "1970-01-01T01:00:00.050"}', b'{"at": "1970-01-01T00:00:00.060Z"}', b'{"at": "1970"', b"{}"]
    side = {"topic": "t", "time": "$.at", "format": Format.JSON}

    without, berlin = (taken([1] * 4, values, side=Side(**side, time_zone=zone)) for zone in (None, "Europe/Berlin"))
    in_header = taken([1], side=Side(topic="t", time="header:h"))

    assert (without.records["time"].to_list(), berlin.records["time"].to_list()) == ([60], [50, 60])
    assert reasons(without) == {10: "no_zone", 12: "invalid_json", 13: "no_time"}
    assert reasons(berlin) == {12: "invalid_json", 13: "no_time"}
    assert in_header.records["time"].to_list() == [1]


def test_what_does_not_fit_is_skipped_whatever_else_is_wrong_with_it():
    """Its time, its key; what cannot be read may fit, so it is a dead letter. A number is its digits."""
    side = Side(topic="t", time="$.at", key="$.k", format="json", where={"$.type": ["click", 7]})
    bodies = [{"type": "click", "at": 5}, {"type": 7, "at": 5}, {"type": "7", "at": 5}, {"type": "view", "k": {}}, {}]
    bodies += [{"type": {"a": 1}, "at": 99_999}, {"type": "click", "k": {}}, {"type": None}]

    parsed = taken([1] * 10, [*(json.dumps(body).encode() for body in bodies), b"{torn", None], side=side)

    assert parsed.records["offset"].to_list() == [10, 11, 12]
    assert dict(parsed.dead.select("left_offset", "outcome").iter_rows()) == {
        **dict.fromkeys((13, 14, 15, 17, 19), "skipped"), 16: "dead_letter", 18: "dead_letter",
    }  # fmt: skip
    assert reasons(parsed) == {**dict.fromkeys((13, 14, 15, 17, 19), "where"), 16: "no_time", 18: "invalid_json"}
    assert parsed.dead.filter(parsed.dead["reason"] == "where")["left_value"].null_count() == 5


@pytest.mark.parametrize(
    ("where", "tombstones", "expected"),
    [
        ({"header:h": "1"}, None, {}),
        ({"header:h": "2"}, None, {10: ("skipped", "where"), 11: ("skipped", "where"), 12: ("skipped", "where")}),
        ({"header:h": "2"}, "dead_letter", dict.fromkeys((10, 11, 12), ("skipped", "where"))),
        ({"$.a": "1"}, None, {11: ("skipped", "where"), 12: ("dead_letter", "invalid_json")}),
        ({"$.a": "1"}, "dead_letter", {11: ("dead_letter", "tombstone"), 12: ("dead_letter", "invalid_json")}),
        ({"$.a": "1"}, "skip", {11: ("skipped", "tombstone"), 12: ("dead_letter", "invalid_json")}),
        ({"$.a": "1", "header:h": "2"}, "skip", dict.fromkeys((10, 11, 12), ("skipped", "where"))),
    ],
)
def test_a_header_decides_also_where_the_value_cannot_be_read(where, tombstones, expected):
    """A tombstone of another kind is that kind's."""
    side = Side(topic="t", format="json" if "$.a" in where else "bytes", where=where, tombstones=tombstones)

    parsed = taken([1] * 3, [b'{"a": 1}', None, b"{torn"], side=side)

    assert {
        at: tuple(what) for at, *what in parsed.dead.select("left_offset", "outcome", "reason").iter_rows()
    } == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Format.BYTES, {}),
        (Format.TEXT, {12: "invalid_text"}),
        (Format.JSON, {11: "invalid_json", 12: "invalid_text"}),
    ],
)
def test_values_that_are_not_what_was_declared(form, expected):
    """Null fits every format; bytes are never checked."""
    parsed = taken([1] * 4, [b'{"a": 1}', b"{a", b"\xff\xfe", None], side=Side(topic="t", format=form))

    assert reasons(parsed) == expected
    assert parsed.records["offset"].to_list() == [o for o in range(10, 14) if o not in expected]


def test_a_bad_time_is_reported_before_a_bad_value():
    """One reason per record."""
    parsed = taken([CEILING_MS + 1, 5], [b"{a", b"{a"], side=Side(topic="t", format=Format.JSON))

    assert reasons(parsed) == {10: "future_time", 11: "invalid_json"}


def test_late_is_what_lies_below_the_watermark_before():
    """One flag per record that takes part; a time equal to the watermark is not late."""
    parsed = taken([5, 99_999, 9, 10, 11], watermark_before_ms=10)

    assert parsed.records["time"].to_list() == [5, 9, 10, 11]
    assert parsed.late.to_list() == [True, True, False, False]


@given(st.lists(st.integers(0, 60), max_size=15), st.lists(st.booleans(), max_size=15))
def test_disorder_is_measured_over_batches(times, cuts):
    """The largest distance below the largest time before, in whatever batches the records came."""
    newest, worst, part = None, 0, []
    for i, time_ms in enumerate(times):
        part.append(time_ms)
        if i == len(times) - 1 or (i < len(cuts) and cuts[i]):
            lags_ms, newest = lags_of(np.array(part, dtype=np.int64), newest)
            worst, part = max(worst, int(lags_ms.max())), []

    assert worst == max((max(times[: i + 1]) - t for i, t in enumerate(times)), default=0)
    assert newest == max(times, default=None)


def test_records_from_the_future_do_not_count_as_disorder():
    """One of them would make all others look late: they are not among the records."""
    parsed = taken([5, CEILING_MS + 9_000, 6])

    lags_ms, newest = lags_of(parsed.records["time"].to_numpy(), None)
    assert (lags_ms.tolist(), newest) == ([0, 0], 6)


def test_nothing_read_changes_nothing():
    """A range of gaps and markers."""
    parsed = taken([])

    assert (len(parsed.records), len(parsed.late), len(parsed.proves), len(parsed.dead)) == (0, 0, 0, 0)
    assert parsed.future_ms == LATEST_MS
    lags_ms, newest = lags_of(parsed.records["time"].to_numpy(), 7)
    assert (lags_ms.tolist(), newest) == ([], 7)


def test_a_record_that_is_ahead_of_the_clock_takes_part_but_proves_nothing():
    """Within the skew: it cannot have been appended at its time when first listed. Clocks may differ slightly."""
    latest = LISTED_MS + CLOCKS_DIFFER_MS
    parsed = taken([latest, latest + 1, 5], skew_ms=2 * CLOCKS_DIFFER_MS)

    assert parsed.records["time"].to_list() == [latest, latest + 1, 5]
    assert parsed.proves.tolist() == [True, False, True]


def test_a_payload_time_proves_nothing_beyond_its_append():
    """If the broker's append time is known; a producer's timestamp says nothing about it."""
    side = Side(topic="t", time="$.at", format=Format.JSON)
    latest = 100 + CLOCKS_DIFFER_MS
    records = batch([100, 100], [b'{"at": %d}' % latest, b'{"at": %d}' % (latest + 1)])
    by_broker = records.set_column(3, RECORDS.field("timestamp_type"), pa.array([2, 2], pa.int8()))

    appended, stamped = (
        parse("left", side, batch, latest, 2 * CLOCKS_DIFFER_MS, EARLIEST_MS) for batch in (by_broker, records)
    )

    assert appended.proves.tolist() == [True, False]
    assert stamped.proves.tolist() == [True, True]


def test_what_is_skipped_proves_as_much_as_what_takes_part():
    """If it has a time that it can have been appended at; dead letters prove nothing."""
    side = Side(topic="t", time="$.at", key="$.k", format="json", where={"$.type": "a"})
    bodies = [{"type": "a", "at": 5}, {"type": "b", "at": 6}, {"type": "b"}, {"type": "b", "at": LISTED_MS + 5_000}]
    bodies += [{"type": "a", "at": 9, "k": {}}, {"type": "b", "at": 7, "k": {}}, {"type": "a", "at": 4}]

    parsed = taken([1] * 7, [json.dumps(body).encode() for body in bodies], side=side, skew_ms=10_000)

    assert parsed.records["time"].to_list() == [5, 4]
    assert parsed.proving_ms.tolist() == [5, 6, 7, 4]
    assert [part.proving_ms.tolist() for part in parsed.split(12)] == [[5, 6], [7, 4]]


def test_the_smallest_time_that_the_clock_rejected_is_reported():
    """It is above those of all records that take part, so that they are distinguished when read again."""
    assert taken([5, CEILING_MS + 7, CEILING_MS + 3, CEILING_MS, -1]).future_ms == CEILING_MS + 3
    assert taken([5, CEILING_MS, -1]).future_ms == LATEST_MS


@given(st.lists(st.sampled_from((-1, 3, 9, CEILING_MS + 1, CEILING_MS + 5)), max_size=12), st.integers(8, 24))
def test_a_batch_split_at_an_offset_is_two_batches(times, offset):
    """One below it and one with the rest, as if they had been read in two batches."""
    at = min(max(offset - 10, 0), len(times))
    whole = taken(times, watermark_before_ms=5)

    below, rest = whole.split(offset)

    for part, own in ((below, times[:at]), (rest, times[at:])):
        alone = taken(own, watermark_before_ms=5)
        assert part.records["time"].to_list() == alone.records["time"].to_list()
        assert part.late.to_list() == alone.late.to_list()
        assert part.proves.tolist() == alone.proves.tolist()
        assert part.dead["left_time"].to_list() == alone.dead["left_time"].to_list()
        assert part.future_ms == alone.future_ms
    assert below.records["offset"].to_list() + rest.records["offset"].to_list() == whole.records["offset"].to_list()


def test_a_time_far_above_its_append_is_from_the_future_in_a_replay_too():
    """The clock has long passed it; the broker's append time, if known, has not."""
    side = Side(topic="t", time="$.at", format=Format.JSON)
    records = batch([1_000, 1_000], [b'{"at": 1500}', b'{"at": 1501}'])
    appended = records.set_column(3, RECORDS.field("timestamp_type"), pa.array([2, 2], pa.int8()))

    parsed = parse("left", side, appended, LISTED_MS, 500, EARLIEST_MS)

    assert parsed.records["time"].to_list() == [1_500]
    assert reasons(parsed) == {11: "future_time"}


@pytest.mark.parametrize(("tombstones", "outcome"), [("skip", "skipped"), ("dead_letter", "dead_letter")])
def test_records_without_a_value_are_what_their_side_says(tombstones, outcome):
    """Whatever else is wrong with them; what others are is not changed by it."""
    side = Side(topic="t", format="json", time="$.t", tombstones=tombstones)

    parsed = taken([5] * 4, [b'{"t": 7}', None, b"{}", None], side=side)

    assert parsed.records["offset"].to_list() == [10]
    assert parsed.dead.select("left_offset", "outcome", "reason").rows() == [
        (11, outcome, "tombstone"),
        (12, "dead_letter", "no_time"),
        (13, outcome, "tombstone"),
    ]
    assert parsed.dead.schema == ROW
    assert reasons(taken([5], [None], side=Side(topic="t", format="json", time="$.t"))) == {10: "no_time"}
    assert len(taken([5], [None]).records) == 1


@given(st.data())
def test_batches_of_partitions_parsed_together_are_what_each_is_alone(data):
    """Also dead letters, late records, tombstones that are skipped, and keys and times in JSON."""
    side = data.draw(
        st.sampled_from(
            [
                Side(topic="t", tombstones="skip"),
                Side(topic="t", format=Format.JSON, time="$.at", key="$.id", keep=["$.id"]),
                Side(topic="t", format=Format.JSON, time="$.at", where={"$.id": [0, 2]}),
            ]
        )
    )
    texts = st.sampled_from([None, b"", b"{", b"\xff", *(b'{"at":%d,"id":%d}' % (at, at % 3) for at in (1, 5, 99_999))])
    batches, watermarks = {}, {}
    for p in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)):
        values = data.draw(st.lists(texts, max_size=4))
        times = data.draw(st.lists(st.integers(-1, CEILING_MS + 2), min_size=len(values), max_size=len(values)))
        one = batch(times, values) if values else batch([1], [b"v"]).slice(1)
        kinds = pa.array([data.draw(st.integers(0, 1))] * len(values), pa.int8())
        one = one.set_column(0, RECORDS.field("partition"), pa.array([p] * len(values), pa.int32()))
        batches[p] = one.set_column(3, RECORDS.field("timestamp_type"), kinds)
        watermarks[p] = data.draw(st.integers(0, CEILING_MS))

    together = parse_together("left", side, batches, LISTED_MS, SKEW_MS, watermarks)

    assert together.keys() == batches.keys()
    for p, of in batches.items():
        alone = parse("left", side, of, LISTED_MS, SKEW_MS, watermarks[p])
        assert together[p].records.equals(alone.records)
        assert together[p].dead.equals(alone.dead)
        assert together[p].late.to_list() == alone.late.to_list()
        assert together[p].proving_ms.tolist() == alone.proving_ms.tolist()
        assert together[p].future_ms == alone.future_ms
        assert (together[p].appended, together[p].schemas) == (alone.appended, alone.schemas)
