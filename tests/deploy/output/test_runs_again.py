"""A batch that runs again: what is in the output already must be what it gives now."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pytest

from datadelay.watermark import UNKNOWN
from deploy.jobfile.job import Output
from deploy.output import stage
from deploy.output.deliveries import Writing
from joins.batch.facts import BucketFacts, RangeFacts
from joins.items import Begin
from joins.read.summary import BucketSummary
from joins.rows.frames import ROW
from joins.rows.outgoing import Outgoing
from joins.spec import JoinSpec, Right, Side
from teacup.kafka.delivery.receipt import WrittenSoFar
from teacup.kafka.errors import ReceiptRefused

SPEC = JoinSpec(name="j", left=Side(topic="left"), right=Right(topic="right", before_ms=1))


class Noted(Writing):
    """Writes nothing: of the batch is in what `found` says."""

    def __init__(self, found: WrittenSoFar) -> None:
        self.found, self.written, self.reached = found, 0, ""

    def write(self, topic: str, out: Outgoing) -> int:
        self.written += out.size
        return out.size

    def written_so_far(self) -> WrittenSoFar:
        return self.found

    def part_is_full(self) -> bool:
        return False

    def part_is_due(self, *, gap: bool) -> bool:
        return False

    def commit(self, rows: int, *, done: bool, reached: str) -> Mapping[str, int]:
        self.reached = reached
        return self.found.sent


def delivered(monkeypatch: pytest.MonkeyPatch, found: WrittenSoFar, count: int) -> tuple[Noted, Mapping[str, int]]:
    """What a sink does with `count` rows of left offsets 0, 1, ..., of which `found` is in."""
    monkeypatch.setattr(stage, "output_limits", lambda *_: {})
    writing = Noted(found)
    bucket = stage.BucketSink(SPEC, Output(topic="out"), Begin(0, 5, "g", "d"), writing)
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
    summary.facts = BucketFacts(left={0: RangeFacts(count, UNKNOWN)})
    return writing, bucket.close(summary).sent


def test_a_batch_that_is_in_completely_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same left records."""
    writing, sent = delivered(monkeypatch, WrittenSoFar(37, True, {"out": 37}, "left up to 0:37"), 37)

    assert (writing.written, sent) == (0, {"out": 37})
    assert writing.reached == "left up to 0:37"


@pytest.mark.parametrize("count", [97, 36])
def test_a_batch_that_is_in_completely_and_ends_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The next one begins where it ends: records would be missing, or come twice."""
    with pytest.raises(ReceiptRefused, match=rf" 0:37; .* 0:{count}\."):
        delivered(monkeypatch, WrittenSoFar(37, True, {"out": 37}, "left up to 0:37"), count)


def test_the_ends_of_many_partitions_are_noted_as_a_digest() -> None:
    """A receipt is stored as the metadata of an offset, of a few kilobytes."""
    summaries = [BucketSummary(bucket=0, number=5, buckets=1) for _ in range(3)]
    for summary, at in zip(summaries, (0, 0, 1), strict=True):
        summary.facts = BucketFacts(left={p: RangeFacts(at + p, UNKNOWN) for p in range(1_000)})

    first, same, other = (summary.ended for summary in summaries)

    assert first == same != other
    assert len(first) < 100
