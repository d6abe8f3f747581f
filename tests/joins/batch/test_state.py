"""Batch plans as JSON, and the state between two batches."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from datadelay.watermark import UNKNOWN
from joins.batch.facts import Bound, BucketFacts, RangeFacts, low_end
from joins.batch.state import FORMAT, BatchPlan, Bucket, PartitionRange, rebuild_from
from joins.batch.ticket import Ticket
from joins.errors import SpecChanged
from joins.plan.reader import SMALL_BATCH, TICKETS_OF_TASK, JoinControl
from joins.plan.source import TicketReader
from joins.spec import Policy, Side
from joins.spec_base import Wording
from teacup.base.times import LATEST_MS
from tests.support.making import bounds, join_spec

TIMES = st.integers(0, 400)


@st.composite
def ranges(draw: st.DrawFn):
    start = draw(st.integers(0, 100))
    times = sorted(draw(st.lists(st.integers(UNKNOWN, 2**50), min_size=2, max_size=2)))
    return PartitionRange(
        start,
        start + draw(st.integers(0, 50)),
        claim_ms=times[1],
        watermark_ms=times[0],
        tail=tuple(draw(st.lists(st.integers(0, 2**50), max_size=4))),
        held_ms=draw(st.none() | TIMES),
        bounds=draw(bounds()),
    )


@st.composite
def batch_plans(draw: st.DrawFn):
    def bucket(number: int) -> Bucket:
        times = sorted(draw(st.lists(st.integers(UNKNOWN, 2**50), min_size=2, max_size=2)))
        partitions = draw(st.permutations([number, number + 10]))
        return Bucket(
            number=number,
            left={p: draw(ranges()) for p in partitions},
            right={p: draw(ranges()) for p in partitions},
            watermark_ms=times[1],
            expiry_ms=times[0],
            oldest_ms=draw(st.none() | TIMES),
            advanced_ms=draw(TIMES),
            stored_ms=draw(st.none() | TIMES),
            give_up_ms=draw(st.none() | TIMES),
            before_start=draw(st.sampled_from([{}, {"right": 3, "left": 1}])),
        )

    numbers = draw(st.permutations(range(draw(st.integers(1, 3)))))
    return BatchPlan(
        generation="a1",
        number=draw(st.integers(0, 9)),
        listed_ms=draw(TIMES),
        skew_ms=draw(TIMES),
        right_bytes=draw(st.integers(1, 9)),
        identity=join_spec().identity(),
        topics={"right": ("r", 3), "left": ("l", 3)},
        buckets={number: bucket(number) for number in numbers},
        skipped=draw(st.sampled_from([{}, {"right": 3, "left": 1}])),
        epochs=draw(st.sampled_from([{}, {"right": (), "left": (3, None)}])),
    )


@given(batch_plans())
def test_a_batch_plan_survives_json(batch_plan):
    """The text of what was read is the text that was written: Spark would take another one for a new batch."""
    text = json.dumps(batch_plan.to_json())

    back = BatchPlan.from_json(json.loads(text))

    assert back == batch_plan
    assert json.dumps(back.to_json()) == text


@given(batch_plans(), st.randoms())
def test_equal_batch_plans_are_equal_texts(batch_plan, chance):
    """Whatever order buckets, partitions and counts came in."""

    def shuffled(mapping):
        items = list(mapping.items())
        chance.shuffle(items)
        return dict(items)

    other = replace(
        batch_plan,
        buckets=shuffled(
            {
                n: structs.replace(b, left=shuffled(b.left), right=shuffled(b.right))
                for n, b in batch_plan.buckets.items()
            }
        ),
        topics=shuffled(batch_plan.topics),
        identity=shuffled(batch_plan.identity),
        skipped=shuffled(batch_plan.skipped),
    )

    assert other == batch_plan
    assert json.dumps(other.to_json()) == json.dumps(batch_plan.to_json())


@given(batch_plans())
def test_any_difference_shows_in_the_text(batch_plan):
    """A batch plan that reads on is another offset; so is one that starts from other facts."""
    number = max(batch_plan.buckets)
    bucket = batch_plan.buckets[number]
    partition = max(bucket.left)
    planned = bucket.left[partition]

    def partition_range(**changes):
        return with_bucket(left={**bucket.left, partition: structs.replace(planned, **changes)})

    def with_bucket(**changes):
        return replace(batch_plan, buckets={**batch_plan.buckets, number: structs.replace(bucket, **changes)})

    others = [
        replace(batch_plan, number=batch_plan.number + 1),
        replace(batch_plan, skew_ms=batch_plan.skew_ms + 1),
        replace(batch_plan, right_bytes=batch_plan.right_bytes + 1),
        with_bucket(expiry_ms=bucket.expiry_ms + 1),
        with_bucket(oldest_ms=401),
        with_bucket(stored_ms=401),
        with_bucket(give_up_ms=401),
        partition_range(end=planned.end + 1),
        partition_range(watermark_ms=planned.watermark_ms + 1),
        partition_range(claim_ms=planned.claim_ms + 1),
        partition_range(tail=(*planned.tail, 5)),
        partition_range(held_ms=401),
        partition_range(bounds=(*planned.bounds, Bound(planned.bounds[-1].offset + 1))),
    ]

    for other in others:
        assert other.to_json() != batch_plan.to_json()


def empty(**changes):
    plain = BatchPlan("g", 1, 0, 5, 1, json.loads(json.dumps(join_spec().identity())), {})
    return replace(plain, **changes)


def test_a_batch_plan_of_another_format_is_refused():
    """It says which format, and how to continue."""
    data = empty().to_json() | {"format": FORMAT + 1}

    with pytest.raises(SpecChanged, match=rf"format {FORMAT + 1}, this version reads {FORMAT}.*start: TIME"):
        BatchPlan.from_json(data)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"before_ms": 11}, "before_ms: 10 -> 11"),
        ({"after_ms": 6}, "after_ms: 5 -> 6"),
        ({"policy": Policy.ALL}, "policy: 'nearest' -> 'all'"),
        ({"left": Side(topic="other", disorder_ms=0)}, "left.topic: 'left' -> 'other'"),
        ({"right": Side(topic="right", disorder_ms=7)}, "right.disorder_ms: 0 -> 7"),
        ({"outliers": 3}, "outliers: 0 -> 3"),
    ],
)
def test_a_checkpoint_of_another_join_is_refused(change, named):
    """Every value that differs is named; limits and delays may change."""
    batch_plan = empty()

    batch_plan.check_belongs_to(join_spec(max_records=5, producer_delay_ms=7, max_wait_ms=9, start="latest"))
    with pytest.raises(SpecChanged, match=named):
        batch_plan.check_belongs_to(join_spec(**change))


def test_a_message_about_another_join_has_the_words_of_whoever_described_it():
    """A program has no job file, which `teacup move` needs."""
    in_file = Wording(lambda name, value: (f"file's {name}", f"<{value}>"), "move it")

    with pytest.raises(SpecChanged, match=r"than 'table' \(before_ms: 10 -> 11.*`start`"):
        empty().check_belongs_to(join_spec(before_ms=11))
    with pytest.raises(SpecChanged, match=r"file's before_ms: <10> -> <11>.*move it$"):
        empty().check_belongs_to(join_spec(before_ms=11), in_file)
    with pytest.raises(SpecChanged, match=r"`path` is shuffled: .*checkpoint"):
        empty().check_belongs_to(join_spec(path="shuffled"))
    with pytest.raises(SpecChanged, match=r"`file's path` is shuffled: .*move it$"):
        empty().check_belongs_to(join_spec(path="shuffled"), in_file)


def test_a_window_is_rebuilt_from_further_back_than_it_reaches():
    """Its records are marked by left records from `after` before it on, which chose among right `before` earlier."""
    assert rebuild_from(join_spec().right, 100) == (95, 85)
    assert rebuild_from(join_spec().right, UNKNOWN) == (UNKNOWN, UNKNOWN)


# What a batch has left

BEFORE = Bucket(
    number=3,
    left={3: PartitionRange(10, 20, claim_ms=90, watermark_ms=50, tail=(7,), held_ms=55, bounds=(Bound(10),))},
    right={3: PartitionRange(30, 40, claim_ms=95, watermark_ms=60, bounds=(Bound(30),))},
    watermark_ms=60,
    expiry_ms=40,
    oldest_ms=41,
    advanced_ms=1_000,
    give_up_ms=800,
)
FACTS = BucketFacts(
    left={3: RangeFacts(end=14, watermark_ms=70, tail=(8, 9), below_ms=72, future_ms=5_000, held_ms=75)},
    right={3: RangeFacts(end=40, watermark_ms=80, tail=(81,), below_ms=83)},
    watermark_ms=80,
    expiry_ms=60,
    oldest_ms=61,
)


def test_the_next_batch_plan_begins_from_the_facts():
    """At left's first held record, with the watermark that is proved; claims and `give_up` no longer apply."""
    after = BEFORE.after(FACTS, 2_000, join_spec())

    assert after == Bucket(
        number=3,
        left={3: PartitionRange(14, 14, UNKNOWN, 70, (8, 9), 75, (Bound(10), Bound(14, 72, 5_000)))},
        right={3: PartitionRange(40, 40, UNKNOWN, 80, (81,), None, (Bound(30), Bound(40, 83, LATEST_MS)))},
        watermark_ms=80,
        expiry_ms=60,
        oldest_ms=61,
        advanced_ms=2_000,
    )
    assert not after.reads
    assert BEFORE.reads


def test_a_watermark_that_stays_has_not_moved():
    """What `max_wait` counts from stays."""
    assert BEFORE.after(replace(FACTS, watermark_ms=60), 2_000, join_spec()).advanced_ms == 1_000


def test_a_range_of_which_everything_was_held_back_adds_no_bound():
    """No offset was passed."""
    facts = replace(FACTS, left={3: RangeFacts(end=10, watermark_ms=70, held_ms=75)})

    assert BEFORE.after(facts, 2_000, join_spec()).left[3].bounds == (Bound(10),)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=30, max_size=80))
def test_a_batch_plan_stays_small_however_many_batches_there_were(batches):
    """Bounds that no window can need are dropped, the others are a quarter of the join's span apart."""
    spec = join_spec(before_ms=200, after_ms=100)
    bucket = Bucket(0, {0: PartitionRange.starting_at(0)}, {0: PartitionRange.starting_at(0)})
    at_ms = 1_000
    for records, step_ms in batches:
        at_ms += step_ms
        sides = {}
        for side in ("left", "right"):
            end = bucket.side(side)[0].end + records
            sides[side] = {0: RangeFacts(end=end, watermark_ms=at_ms, below_ms=at_ms + 1)}
        facts = BucketFacts(**sides, watermark_ms=at_ms, expiry_ms=at_ms - spec.right.before_ms)
        bucket = bucket.after(facts, 0, spec)

    assert len(bucket.right[0].bounds) <= 2 + 2 * 4 * 2
    assert low_end(bucket.right[0].bounds, bucket.expiry_ms) <= bucket.right[0].end


@given(batch_plans(), st.sampled_from([0, SMALL_BATCH]), st.booleans())
def test_the_tickets_of_a_small_batch_share_tasks_where_they_may(batch_plan, more, share):
    """A batch of fewer than `SMALL_BATCH` records has fewer tasks; every ticket is in one, whatever the size."""
    number, bucket = min(batch_plan.buckets.items())
    left = {
        p: structs.replace(partition_range, end=partition_range.end + more)
        for p, partition_range in bucket.left.items()
    }
    batch_plan = replace(batch_plan, buckets={**batch_plan.buckets, number: structs.replace(bucket, left=left)})
    reader = TicketReader(join_spec(), JoinControl(share_tasks=share))
    end, every = (
        batch_plan.to_json(),
        [msgspec.json.encode(ticket).decode() for ticket in Ticket.all_of(BatchPlan.from_json(batch_plan.to_json()))],
    )

    partitions = reader.tasks(end)

    assert [ticket for partition in partitions for ticket in partition.items] == every
    size = TICKETS_OF_TASK if share and batch_plan.records < SMALL_BATCH else 1
    assert len(partitions) == math.ceil(len(every) / size)
