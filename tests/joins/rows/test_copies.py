"""Copies of records for side topics."""

from __future__ import annotations

import polars as pl

from joins.rows.frames import OWN_KEY, RECORD, rows_about
from joins.rows.outgoing import and_more, copies_of, position_of
from teacup.kafka.delivery.provenance import BatchTag

OWN = [{"key": "trace", "value": b"1"}]
RECORDS = pl.DataFrame(
    [
        {"partition": 3, "offset": 7, "time": 1_000, "key": b"k", "value": b"v", "headers": OWN},
        {"partition": 3, "offset": 9, "time": None, "key": None, "value": b"", "headers": None},
    ],
    schema=RECORD,
)


def test_a_copy_is_the_record_as_it_was_read_and_says_where_it_was_and_why_it_is_here() -> None:
    """Its own headers come first; a flag that does not hold is left out."""
    rows = rows_about("right", RECORDS, "dead_letter", pl.Series(["rejected: too old", "no_time"]), late=False)

    copies = copies_of("bids", "right", rows)

    columns = copies.keys, copies.values, copies.times
    assert [column.to_list() for column in columns] == [[b"k", None], [b"v", b""], [1_000, None]]
    assert copies.headers.to_list() == [
        [
            ("trace", b"1"),
            ("teacup.topic", "bids"),
            ("teacup", "1 - 3:7 -"),
            ("teacup.outcome", "dead_letter"),
            ("teacup.reason", "rejected: too old"),
        ],
        [
            ("teacup.topic", "bids"),
            ("teacup", "1 - 3:9 -"),
            ("teacup.outcome", "dead_letter"),
            ("teacup.reason", "no_time"),
        ],
    ]


def test_a_copy_has_the_records_own_key_and_what_is_added_for_it_comes_last() -> None:
    """The join key may be a field of the value."""
    keyed = RECORDS.with_columns(pl.Series(OWN_KEY, [b"own", None]))
    rows = rows_about("left", keyed, "late", None, late=True)

    copies = copies_of("clicks", "left", rows, batch=BatchTag("origin", 3), more=[[("teacup.size", "9")], []])

    assert copies.keys.to_list() == [b"own", None]
    first, second = copies.headers.to_list()
    assert first[-2:] == [("teacup.late", "true"), ("teacup.size", b"9")]
    assert second == [
        ("teacup.topic", "clicks"),
        ("teacup", "1 3:9 - origin:3"),
        ("teacup.outcome", "late"),
        ("teacup.late", "true"),
    ]


def test_a_message_names_the_first_record_and_how_many_follow() -> None:
    """A side without a record has no name."""
    rows = rows_about("left", RECORDS, "dead_letter", "no_time", late=False)

    assert position_of("clicks", "left", rows, 0) + and_more(rows) == "clicks-3 offset 7 (and 1 more)"
    assert position_of("bids", "right", rows, 0) + and_more(rows[:1]) == ""
