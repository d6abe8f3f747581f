"""Right records as items of a store, and back."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.errors import RightRowUnreadable
from joins.lookup.right_items import RIGHT_ROW, from_items, to_items
from joins.rows.frames import OWN_KEY, RECORD

HEADER = st.fixed_dictionaries({"key": st.text(max_size=4), "value": st.none() | st.binary(max_size=5)})
RIGHT = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 2**31 - 1),
        "offset": st.integers(0, 2**63 - 1),
        "time": st.integers(0, 2**45),
        "key": st.binary(max_size=6),
        "value": st.none() | st.binary(max_size=9),
        "headers": st.none() | st.lists(HEADER, max_size=3),
        "late": st.booleans(),
    }
)


def read(items: pa.Table) -> pl.DataFrame:
    columns = pl.DataFrame(pl.from_arrow(items))
    return from_items(columns["key"], columns["version"], columns["tag"], columns["value"])


def items_of(rows: pl.DataFrame, retention_ms: int = 1_000) -> pa.Table:
    return to_items(rows.select(RECORD.names()), rows["late"], retention_ms)


@given(st.lists(RIGHT, max_size=8), st.integers(0, 3))
def test_what_goes_in_comes_out(rows: list[dict[str, object]], skipped: int) -> None:
    """Every record, null or empty value, null, empty or many headers; whole frames and parts of them."""
    frame = pl.DataFrame(rows, schema=RIGHT_ROW)[skipped:]

    items = items_of(frame)

    assert read(items).equals(frame, null_equal=True)
    assert read(items.slice(1)).equals(frame[1:], null_equal=True)
    assert items["expires_at_ms"].to_pylist() == [time + 1_000 for time in frame["time"]]


@given(st.lists(RIGHT, min_size=2, max_size=8))
def test_items_are_in_the_order_of_time_partition_and_offset(rows: list[dict[str, object]]) -> None:
    """What a store sorts by is what policies break ties by."""
    frame = pl.DataFrame(rows, schema=RIGHT_ROW)

    items = pl.DataFrame(pl.from_arrow(items_of(frame)))

    by_item = frame.with_columns(items["version"], items["tag"]).sort("version", "tag", maintain_order=True)
    assert by_item.select(RIGHT_ROW.names()).equals(
        frame.sort("time", "partition", "offset", maintain_order=True), null_equal=True
    )


def one_record(**changed: object) -> pl.DataFrame:
    row = {"partition": 1, "offset": 2, "time": 3, "key": b"k", "value": b"v", "headers": None, "late": False}
    return pl.DataFrame([row | changed], schema=RIGHT_ROW)


def test_the_bytes_of_an_item_are_as_the_module_says() -> None:
    """A store outlives programs: these bytes must not change without a new format."""
    items = items_of(
        one_record(headers=[{"key": "h", "value": b"xy"}, {"key": "", "value": None}], late=True)
    ).to_pylist()[0]

    assert items["tag"] == bytes.fromhex("000000010000000000000002")
    entries = b"\x01\0\0\0h\x02\0\0\0xy" + b"\0\0\0\0\xff\xff\xff\xff"
    assert items["value"] == b"\x01\x06" + len(entries).to_bytes(4, "little") + entries + b"v"


def test_an_unknown_format_is_refused_by_its_number() -> None:
    """Not guessed at."""
    with pytest.raises(RightRowUnreadable, match="format 9"):
        from_items(pl.Series([b"k"]), pl.Series([1]), pl.Series([bytes(12)]), pl.Series([b"\x09\x00v"]))


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02", b"\x01\x02\xff\0\0\0", b"\x01\x02\x04\0\0\0\xff\0\0\0", b"\x01\x02\x01\0\0\0a"]
)
def test_a_torn_value_is_refused(value: bytes) -> None:
    """Lengths that point beyond the value are detected."""
    with pytest.raises(RightRowUnreadable, match="shorter than it says"):
        from_items(pl.Series([b"k"]), pl.Series([1]), pl.Series([bytes(12)]), pl.Series([value]))


def test_a_foreign_tag_is_refused() -> None:
    """Anything else that writes to the namespace is detected."""
    with pytest.raises(RightRowUnreadable, match="a tag of 3 bytes"):
        from_items(pl.Series([b"k"]), pl.Series([1]), pl.Series([b"abc"]), pl.Series([b"\x01\x00v"]))


@pytest.mark.parametrize("name", ["key", "time"])
def test_a_record_without_key_or_time_has_no_item(name: str) -> None:
    """They are filtered out first."""
    with pytest.raises(ValueError, match=f"no {name}"):
        items_of(one_record(**{name: None}))


@given(st.lists(st.tuples(RIGHT, st.none() | st.binary(max_size=6)), min_size=1, max_size=8))
def test_an_own_key_goes_with_a_record_that_is_stored_by_another(rows: list[tuple[dict[str, object], object]]) -> None:
    """Null, empty or any bytes, beside values and headers of any kind."""
    frame = pl.DataFrame([row for row, _ in rows], schema=RIGHT_ROW)
    own = pl.Series(OWN_KEY, [key for _, key in rows], dtype=pl.Binary)

    items = pl.DataFrame(pl.from_arrow(to_items(frame.select(RECORD.names()).with_columns(own), frame["late"], 1_000)))
    found = from_items(items["key"], items["version"], items["tag"], items["value"], keyed=True)

    assert found.select(RIGHT_ROW.names()).equals(frame, null_equal=True)
    assert found[OWN_KEY].to_list() == own.to_list()


@pytest.mark.parametrize("keyed", [True, False])
def test_items_of_a_feeder_with_another_kind_of_key_are_refused(keyed: bool) -> None:
    """Left would look for keys that nobody stored, and find nothing."""
    row = {"partition": 0, "offset": 1, "time": 2, "key": b"k", "value": b"v", "headers": None, "late": False}
    frame = pl.DataFrame([row], schema=RIGHT_ROW)
    records = frame.select(RECORD.names())
    records = records if keyed else records.with_columns(pl.Series(OWN_KEY, [b"own"], dtype=pl.Binary))

    items = pl.DataFrame(pl.from_arrow(to_items(records, frame["late"], 1_000)))

    with pytest.raises(RightRowUnreadable, match=r"`right\.key`"):
        from_items(items["key"], items["version"], items["tag"], items["value"], keyed=keyed)
