"""What happens to left records if a store keeps too little: never an `unmatched` that may be wrong."""

import polars as pl
import pytest

from joins import DelayApi, JoinSpec, Right, Side, StorageApi, Store
from joins.errors import DataLoss
from joins.lookup.batch import StoredRight, offer
from joins.rows.frames import RECORD
from teacup.base.times import EARLIEST_MS
from tests.support.making import changed

SPEC = JoinSpec(
    name="j",
    left=Side(topic="left"),
    right=Right(
        topic="right",
        before_ms=100,
        after_ms=10,
        source=Store(
            storage=StorageApi(url="http://store", namespace="right"),
            delay=DelayApi(url="http://delay", consumer="feeder"),
        ),
    ),
)


def records(*rows):
    columns = [
        {"partition": 0, "offset": i, "time": time_ms, "key": key, "value": b"v", "headers": None}
        for i, (key, time_ms) in enumerate(rows)
    ]
    return pl.DataFrame(columns, schema=RECORD)


def outcomes(left, stored, **changes):
    late = pl.repeat(False, len(left), dtype=pl.Boolean, eager=True)
    rows = pl.concat(offer(changed(SPEC, **changes), left, late, stored).rows(EARLIEST_MS))
    return list(zip(rows["key"], rows["outcome"], rows["reason"], strict=True))


LEFT = records((b"a", 1_000), (b"b", 1_000), (b"c", 1_000), (None, 1_000))
RIGHT = records((b"a", 1_010), (b"b", 1_011))
"""The first can match; the second cannot, and may have replaced one that could."""


def test_where_only_the_latest_is_kept_a_newer_record_may_hide_the_one_looked_for():
    """The join stops with the remedy, or by choice gives its own reason; without a newer one there is no doubt."""
    latest = StoredRight(RIGHT, 0, latest_only=True)

    with pytest.raises(DataLoss, match=r"1 left records.*left-0 offset 1.*`keep: all`"):
        outcomes(LEFT, latest)
    assert outcomes(LEFT, latest, on_expired="unmatched") == [
        (b"a", "matched", None),
        (b"b", "unmatched", "no_longer_stored"),
        (b"c", "unmatched", "no_candidate"),
        (None, "unmatched", "null_key"),
    ]


def test_where_all_are_kept_a_newer_record_hides_nothing():
    """The same answers from a store that keeps all."""
    assert outcomes(LEFT, StoredRight(RIGHT, 0))[1] == (b"b", "unmatched", "no_candidate")


def test_the_first_time_that_is_kept_is_enough():
    """A window that starts at `retained_from` is complete, one a millisecond earlier is not; null keys need none."""
    assert outcomes(LEFT, StoredRight(RIGHT, 900))[2] == (b"c", "unmatched", "no_candidate")
    with pytest.raises(DataLoss, match=r"3 left records.*left-0 offset 0"):
        outcomes(LEFT, StoredRight(RIGHT, 901))


def test_what_may_be_gone_matches_nothing_even_if_something_is_still_stored():
    """The policy might have preferred what is gone; keys stay in the rows, and the order is left's."""
    late = pl.repeat(False, len(LEFT), dtype=pl.Boolean, eager=True)
    offered = offer(changed(SPEC, on_expired="unmatched"), LEFT, late, StoredRight(RIGHT, 901))
    rows = pl.concat(offered.rows(EARLIEST_MS))

    assert rows["key"].to_list() == [b"a", b"b", b"c", None]
    assert rows["reason"].to_list() == ["no_longer_stored"] * 3 + ["null_key"]
    assert rows["outcome"].to_list() == ["unmatched"] * 4
    assert rows["right_offset"].null_count() == 4
