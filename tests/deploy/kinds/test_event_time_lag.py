"""How far a job is, and what holds it, from its last batch and where its topics end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.kinds.event_time_lag import EventTimeLag, HeldBy, of_feeder, of_join
from joins.batch.facts import BucketFacts, RangeFacts
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.lookup.feed.spec import FedRange, FeedBatch
from joins.plan.readable import EndOffsets
from joins.right_source import DelayApi, StorageApi, Store
from joins.spec import JoinSpec, Right, Side
from teacup.kafka.log.topic_log import Ends

NOW = 1_000_000
SPEC = JoinSpec(
    name="j", left=Side(topic="l"), right=Right(topic="r", before_ms=100, after_ms=50), producer_delay_ms=10
)
LOOKUP = JoinSpec(
    name="j",
    left=Side(topic="l"),
    right=Right(
        topic="r",
        before_ms=100,
        source=Store(
            storage=StorageApi(url="http://s:1", namespace="n"), delay=DelayApi(url="http://d:1", consumer="feeder")
        ),
    ),
)


def planned(*buckets: Bucket) -> BatchPlan:
    return BatchPlan("g", 7, NOW - 500, 0, 0, {}, {}, {bucket.number: bucket for bucket in buckets})


def bucket(number: int, right: bool = True, **values: int) -> Bucket:
    ranges = {number: PartitionRange.starting_at(0).to(10)}
    return Bucket(number, ranges, ranges if right else {}, **values)


def facts(left_ms: int, right_ms: int, number: int = 0) -> BucketFacts:
    return BucketFacts({number: RangeFacts(10, left_ms)}, {number: RangeFacts(10, right_ms)}, right_ms, left_ms - 100)


def end_offsets(left: int = 10, right: int = 10, high: int | None = None) -> EndOffsets:
    return EndOffsets(NOW, {0: Ends(0, left, left)}, {0: Ends(0, right, right if high is None else high)})


def lag_of(spec: JoinSpec, seen: EndOffsets, next_ms: int | None = None, **known: int) -> EventTimeLag:
    found = facts(**{"left_ms": 500, "right_ms": 600, **known})
    return of_join(spec, planned(bucket(0)), {0: found}, seen, {} if next_ms is None else {0: next_ms})


@pytest.mark.parametrize(
    ("spec", "seen", "next_ms", "behind_ms", "cause"),
    [
        (SPEC, end_offsets(), None, 0, None),
        (SPEC, end_offsets(left=12, right=20), 549, NOW - 549, None),
        (SPEC, end_offsets(left=12, right=20), 550, NOW - 550, "unread"),
        (SPEC, end_offsets(left=12, high=11), 550, NOW - 550, "open transaction"),
        (replace(SPEC, idle="hold"), end_offsets(left=12), 550, NOW - 550, "idle hold"),
        (SPEC, end_offsets(left=12), NOW - 61, 61, None),
        (SPEC, end_offsets(left=12), NOW - 60, 60, "clock"),
    ],
)
def test_left_waits_for_right_or_for_nothing(
    spec: JoinSpec, seen: EndOffsets, next_ms: int | None, behind_ms: int, cause: str | None
) -> None:
    """By the first unread left record: it may go once right is complete beyond its time and `after`."""
    found = lag_of(spec, seen, next_ms)

    assert (found.behind_ms, found.exact) == (behind_ms, True)
    assert [(held.cause, held.partition) for held in found.held] == ([(cause, "r-0")] if cause else [])


@pytest.mark.parametrize(("other_ms", "shown"), [(600, "all alike (unread)"), (-9_000, "r-1 (unread) and 1 more")])
def test_a_partition_is_named_only_if_it_is_slower_than_the_others(other_ms: int, shown: str) -> None:
    """All buckets' left waits; which comes first says nothing."""
    seen = EndOffsets(NOW, {p: Ends(0, 12, 12) for p in range(3)}, {p: Ends(0, 20, 20) for p in range(3)})
    known = {0: facts(500, 600), 1: facts(500, other_ms, 1), 2: facts(500, 600, 2)}

    found = of_join(SPEC, planned(*map(bucket, known)), known, seen, {0: 900, 1: 900})

    assert found.held_by == shown


def test_a_lookup_join_waits_for_what_is_stored() -> None:
    """As the last batch knew it."""
    plan = planned(bucket(0, right=False))
    known = {0: BucketFacts({0: RangeFacts(10, 500)}, {}, 600, 400)}
    seen = EndOffsets(NOW, {0: Ends(0, 12, 12)}, {})

    held = of_join(LOOKUP, plan, known, seen, {0: 700}).held
    goes = of_join(LOOKUP, plan, known, seen, {0: 599}).held

    (wait,) = held
    assert isinstance(wait, HeldBy)
    assert (wait.cause, wait.partition, wait.short, goes) == ("data delay", None, "data delay", ())
    assert "'feeder' has stored 'r' only up to" in wait.text


def test_without_its_facts_a_batch_counts_from_where_it_began() -> None:
    """And says so; a topic that was recreated with fewer partitions says nothing."""
    assert not of_join(SPEC, planned(bucket(0)), {}, end_offsets(), {0: 5}).exact
    assert of_join(SPEC, planned(bucket(0)), {}, EndOffsets(NOW, {}, {}), {}) == EventTimeLag(exact=False)


def test_a_feeder_is_behind_by_its_first_unread_record() -> None:
    """Unknown if its time is."""
    fed = FeedBatch(3, NOW, {}, "id", "s", {0: FedRange(0, 10), 1: FedRange(0, 10)})
    ends = {0: Ends(0, 10, 10), 1: Ends(0, 11, 11)}

    assert of_feeder(fed, {p: Ends(0, 10, 10) for p in (0, 1)}, {}, NOW).behind_ms == 0
    assert of_feeder(fed, ends, {1: NOW - 30}, NOW).behind_ms == 30
    assert of_feeder(fed, ends, {}, NOW).behind_ms is None
