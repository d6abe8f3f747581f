"""What the Nexmark benchmark generates, and how rows are compared."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.nexmark import JOB_EXPECTED, JOB_FOUND, TOPICS, WrongRows, check_rows
from benchmarks.nexmark_data import FIRST_ID, Events, as_json, chunks
from benchmarks.nexmark_query import QUERIES, SPAN_MS


def generated(events: int) -> Events:
    found = list(chunks(events))
    return Events(*(pl.concat([getattr(chunk, topic) for chunk in found]) for topic in TOPICS))


def test_proportions_and_references_are_those_of_nexmark() -> None:
    """1 : 3 : 46; half of the bids for a hot auction; few for auctions to come; all within the joins' interval."""
    events = generated(250_000)
    bids = events.bid.join(events.auction.select(auction="id", opened="dateTime"), on="auction", how="left")
    distance = bids["dateTime"] - bids["opened"]

    assert (len(events.person), len(events.auction), len(events.bid)) == (5_000, 15_000, 230_000)
    assert ((events.bid["auction"] - FIRST_ID) % 100 == 0).mean() == pytest.approx(0.5, abs=0.02)
    assert (distance < 0).mean() == pytest.approx(0.04, abs=0.02)
    assert distance.max() < SPAN_MS  # type: ignore[operator]
    assert bids["opened"].null_count() < 100


def test_an_event_is_json_as_nexmark_has_it() -> None:
    """Times as ISO 8601, numbers as numbers."""
    bid = generated(50).bid.head(1)

    parsed = as_json(bid).str.json_decode(infer_schema_length=1).struct.unnest()

    assert parsed["dateTime"].to_list() == ["2025-06-15T15:06:40.000Z"]
    assert parsed["price"].to_list() == bid["price"].to_list()


@pytest.mark.parametrize("change", ["a row less", "a row twice", "another value"])
def test_rows_that_differ_from_the_published_query_are_refused(change: str, tmp_path: Path) -> None:
    """In any column, and as often as they occur."""
    sql = QUERIES["q101"].sql
    events = generated(5_000)
    for topic in TOPICS:
        (tmp_path / "events" / topic).mkdir(parents=True)
        getattr(events, topic).write_parquet(tmp_path / "events" / topic / "0.parquet")
    price = events.bid.group_by("auction").agg(max_price=pl.col("price").max())
    right = events.auction.select("id", "itemName").join(price, left_on="id", right_on="auction", how="left")
    changed = {
        "a row less": right.tail(-1),
        "a row twice": pl.concat([right, right.head(1)]),
        "another value": right.with_columns(pl.col("max_price") + (pl.col("id") == FIRST_ID).cast(pl.Int64)),
    }
    for name, rows in (("right", right), ("changed", changed[change])):
        (tmp_path / name / "0").mkdir(parents=True)
        rows.write_parquet(tmp_path / name / "0" / "part.parquet")

    assert check_rows(tmp_path / "events", tmp_path / "right", sql) == len(right)
    with pytest.raises(WrongRows):
        check_rows(tmp_path / "events", tmp_path / "changed", sql)


def test_the_rows_of_a_job_are_compared_field_by_field(tmp_path: Path) -> None:
    """An envelope whose right record is another auction is refused."""
    events = generated(2_000)
    for topic in TOPICS:
        (tmp_path / "events" / topic).mkdir(parents=True)
        getattr(events, topic).write_parquet(tmp_path / "events" / topic / "0.parquet")
    auctions = events.auction.with_columns(value=as_json(events.auction))
    rows = events.bid.with_columns(bid=as_json(events.bid)).join(auctions, left_on="auction", right_on="id", how="left")
    right = pl.format('{{"time":{},"value":{}}}', "dateTime_right", "value").fill_null("null")
    envelopes = rows.select(value=pl.format('{{"left":{{"time":{},"value":{}}},"right":{}}}', "dateTime", "bid", right))
    changed = envelopes.select(pl.col("value").str.replace(r'"itemName":"\w', '"itemName":"?'))
    for name, written in (("right", envelopes), ("changed", changed)):
        (tmp_path / name / "0").mkdir(parents=True)
        written.write_parquet(tmp_path / name / "0" / "0.parquet")

    assert check_rows(tmp_path / "events", tmp_path / "right", JOB_EXPECTED, JOB_FOUND) == len(rows)
    with pytest.raises(WrongRows):
        check_rows(tmp_path / "events", tmp_path / "changed", JOB_EXPECTED, JOB_FOUND)
