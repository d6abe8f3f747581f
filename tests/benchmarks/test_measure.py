"""What benchmarks read from checkpoints, in the formats of today."""

from __future__ import annotations

from benchmarks.measure import records_until
from joins.batch.state import BatchPlan, Bucket, PartitionRange

PLAN = BatchPlan(
    generation="g",
    number=1,
    listed_ms=0,
    skew_ms=0,
    right_bytes=1,
    identity={},
    topics={},
    buckets={n: Bucket(n, {n: PartitionRange(5, 10 + n)}, {n: PartitionRange(0, 100)}) for n in (0, 1)},
)


def test_the_positions_of_a_join_and_of_a_rival_add_up() -> None:
    """Where the batch ended counts, in both topics."""
    assert records_until(PLAN.to_json()) == 10 + 11 + 200
    assert records_until({"positions": {"left-0": 3, "right-0": 4}}) == 7
