"""A batch that runs again: what is in the output already must be what it gives now."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from deploy.jobs.job import Output
from deploy.output import sink
from deploy.output.delivered import DeliveredBatch
from deploy.output.writing import Writing
from joins.items import Begin
from joins.rows.outgoing import Outgoing
from joins.rows.records import ROW
from joins.spec import JoinSpec, Side
from joins.summary import BucketSummary
from kafkaio.delivery.receipt import Standing
from kafkaio.errors import ReceiptRefused

SPEC = JoinSpec(name="j", left=Side(topic="left"), right=Side(topic="right"), before_ms=1)


class Noted(Writing):
    """Writes nothing: of the batch is in what `found` says."""

    def __init__(self, found: Standing) -> None:
        self.found, self.written, self.committed = found, 0, False

    def write(self, topic: str, out: Outgoing) -> int:
        self.written += out.size
        return out.size

    def standing(self) -> Standing:
        return self.found

    def part_is_full(self, *, gap: bool) -> bool:
        return False

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        self.committed = True
        return self.found.sent


def delivered(
    monkeypatch: pytest.MonkeyPatch, found: Standing, count: int
) -> tuple[Noted, DeliveredBatch[BucketSummary]]:
    """What a sink does with `count` rows of left offsets 0, 1, ..., of which `found` is in."""
    monkeypatch.setattr(sink, "output_limits", lambda *_: {})
    writing = Noted(found)
    bucket = sink.BucketSink(SPEC, Output(topic="out"), Begin(0, 5, "g", "d"), writing)
    rows = pl.DataFrame(
        {
            "key": [b"k"] * count,
            "left_time": range(count),
            "left_partition": [0] * count,
            "left_offset": range(count),
            "outcome": ["unmatched"] * count,
            "late": [False] * count,
        }
    )
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in ROW.items() if name not in rows.columns]
    bucket.take(rows.with_columns(missing).select(*ROW).cast(ROW))
    summary = BucketSummary(bucket=0, number=5, buckets=1, rows={"unmatched": count})
    summary.read["left"] = count
    return writing, bucket.close(summary)


def test_a_batch_that_is_in_completely_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same rows."""
    writing, done = delivered(monkeypatch, Standing(37, True, {"out": 37}, "left 0:36"), 37)

    assert (writing.written, done.sent) == (0, {"out": 37})


@pytest.mark.parametrize("count", [97, 36])
def test_a_batch_that_is_in_completely_and_gives_another_number_of_rows_is_refused(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Its facts say how far left went: rows would be missing, or come twice."""
    with pytest.raises(ReceiptRefused, match=rf"all 37 rows of this batch are in .* now the batch gives {count}"):
        delivered(monkeypatch, Standing(37, True, {"out": 37}, "left 0:36"), count)


def test_a_batch_that_is_in_completely_and_ends_with_another_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if their number is the same."""
    with pytest.raises(ReceiptRefused, match="the last about left 0:40; now it is about left 0:36"):
        delivered(monkeypatch, Standing(37, True, {"out": 37}, "left 0:40"), 37)
