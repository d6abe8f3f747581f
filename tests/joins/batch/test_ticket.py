"""A bucket's share of a batch plan."""

from __future__ import annotations

import pytest

from datadelay.watermark import UNKNOWN
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.batch.ticket import Ticket
from joins.testing.simulation import through_json
from tests.support.making import join_spec


def batch_plan(*watermark_before_ms: int) -> BatchPlan:
    """With a bucket for each left partition's report before the batch."""
    reports = [PartitionRange(0, 5, claim_ms=900, watermark_ms=before_ms) for before_ms in watermark_before_ms]
    buckets = {n: Bucket(n, left={n: left}, right={n: PartitionRange(0, 5)}) for n, left in enumerate(reports)}
    return BatchPlan("a1", 1, 1_000, 70, 1, join_spec().identity(), {}, buckets)


@pytest.mark.parametrize(
    ("before_ms", "since_ms"), [((500, 300), 300), ((500, UNKNOWN), None), ((UNKNOWN, UNKNOWN), None), ((0,), 0)]
)
def test_each_ticket_says_below_which_time_no_left_record_of_the_batch_lies(before_ms, since_ms):
    """That of all buckets, as one worker carries out several; unknown where one of them is."""
    tickets = Ticket.all_of(batch_plan(*before_ms))

    assert [ticket.left_since_ms for ticket in tickets] == [since_ms] * len(before_ms)
    assert {(ticket.number, ticket.buckets, ticket.listed_ms, ticket.skew_ms) for ticket in tickets} == {
        (1, len(before_ms), 1_000, 70)
    }
    assert list(map(through_json, tickets)) == tickets
