"""Items as rows of a DataFrame, and back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.batch.facts import BucketFacts, RangeFacts
from joins.errors import NO_RETRY_HELPS, DataLoss, RightRowUnreadable
from joins.items import Begin, End, Item, Rows, item_rows, items_in, result_rows
from joins.read.summary import BucketSummary
from joins.rows.frames import ROW
from teacup.base.errors import ExitCode
from teacup.spark.jvm_errors import TaskEnded

LEFT, RIGHT = RangeFacts(7, 1_000, (1, 2), held_ms=5), RangeFacts(9, 2_000, late=True)
FACTS = BucketFacts({3: LEFT}, {4: RIGHT}, 8, 9, 10)


def rows(*offsets: int) -> Rows:
    """Rows about left records at these offsets."""
    given = {"left_offset": offsets, "outcome": ["matched"] * len(offsets), "key": [b"\xff"] * len(offsets)}
    frame = pl.DataFrame(given, schema={name: ROW[name] for name in given})
    headers = pl.lit([{"key": "h", "value": b"\x00"}], ROW["left_headers"])
    missing = {name: pl.lit(None, dtype) for name, dtype in ROW.items() if name not in given}
    return Rows(frame.with_columns(**{**missing, "left_headers": headers}).select(*ROW))


def ticket(bucket: int, *chunks: Rows) -> list[Item[BucketSummary]]:
    """Its items."""
    summary = BucketSummary(bucket, 7, 2, "g", rows={"matched": 1}, held_by="feeder", facts=FACTS)
    return [Begin(bucket, 7, "g", "digest", 5 if bucket else None), *chunks, End(summary)]


ITEMS = [*ticket(0, rows(1, 2), rows(3)), *ticket(1), *ticket(2, rows(4))]


def flat(items: Iterator[Item[BucketSummary]]) -> list[object]:
    """The same, however the rows are cut into frames."""
    return [
        element
        for item in items
        for element in ([tuple(row.values()) for row in item.frame.to_dicts()] if isinstance(item, Rows) else [item])
    ]


@given(st.lists(st.integers(0, 10), max_size=4))
def test_items_arrive_as_they_were(cuts: list[int]) -> None:
    """However Spark cuts the rows into batches."""
    whole = pa.Table.from_batches(item_rows(ITEMS))
    edges = sorted({0, *(min(cut, len(whole)) for cut in cuts), len(whole)})
    batches = [
        batch
        for start, end in pairwise(edges)
        for batch in whole.slice(start, end - start).combine_chunks().to_batches()
    ]

    assert flat(items_in(batches)) == flat(iter(ITEMS))


def test_columns_that_spark_has_added_stay() -> None:
    """Those of a `select`."""
    (batch,) = item_rows([rows(1)])

    (item,) = items_in([batch.append_column("out_key", pa.array([b"k"]))])

    assert isinstance(item, Rows)
    assert item.frame["out_key"].to_list() == [b"k"]


def test_a_program_that_wants_rows_gets_nothing_else() -> None:
    """Neither tickets nor summaries."""
    found = pa.Table.from_batches(result_rows(ITEMS))

    assert found["left_offset"].to_pylist() == [1, 2, 3, 4]
    assert found.column_names == [*ROW]


def test_why_the_job_must_end_reaches_the_next_stage() -> None:
    """Behind the rows that came before; any other error is raised where it happens."""

    def failing(error: Exception) -> Iterator[Item[BucketSummary]]:
        yield from ITEMS[:2]
        raise error

    crossed = items_in(item_rows(failing(DataLoss("it is gone")), *NO_RETRY_HELPS))

    assert flat(islice(crossed, 2)) == flat(iter(ITEMS[:2]))
    with pytest.raises(TaskEnded, match="DataLoss: it is gone") as raised:
        next(crossed)
    assert raised.value.failure.exit_code is ExitCode.DATA_LOSS
    with pytest.raises(RightRowUnreadable):
        list(item_rows(failing(RightRowUnreadable("no right record")), *NO_RETRY_HELPS))


def test_an_item_that_cannot_be_read_is_an_error() -> None:
    """It would be taken for another one, or be lost."""
    (batch,) = item_rows([Begin(0, 1, "g", "d")])
    broken = batch.set_column(batch.num_columns - 1, "item", pa.array(['{"bucket": 0}']))

    with pytest.raises(ValueError, match="unknown field `bucket`"):
        list(items_in([broken]))
