"""Parts of a ticket: what a part with nothing to join keeps, and partitions that a plan made ahead has seen first."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.errors import DataLoss
from joins.plan.source import PrefetchedPlan
from joins.plan.sync_bolt import Planned
from joins.rows.buckets import buckets_of
from joins.spec import JoinSpec, Right, Side
from joins.testing.history import Event, History, TopicHistory
from joins.testing.simulation import Simulation
from joins.window.shuffle.pieces import Content, Piece, failure_pieces, parts_of
from teacup.spark.jvm_errors import TaskEnded

BASE_MS = 1_000_000_000


def key_of(part: int) -> bytes:
    """A key that belongs to this one of two parts."""
    keys = [b"%d" % n for n in range(99)]
    places = buckets_of(pl.DataFrame({"key": keys, "partition": [0] * len(keys)}), 2).tolist()
    return keys[places.index(part)]


def event(partition: int, offset: int, after_ms: int, key: bytes) -> Event:
    at_ms = BASE_MS + after_ms
    return Event(
        partition=partition, offset=offset, time_ms=at_ms, key=key, value=b"v", appended_ms=at_ms, readable_ms=at_ms
    )


def test_a_partition_that_cannot_be_fetched_ends_every_part() -> None:
    """Also those that have its first records: no part may join only some."""
    others = [Piece(part, Content.FACTS, "left", 0, 0, b"[0, 0]") for part in range(3)]
    failures = list(failure_pieces(DataLoss("it is gone"), 3))

    for part in range(3):
        pieces = [piece for piece in (*failures, *others) if piece.part == part]
        with pytest.raises(TaskEnded, match="DataLoss: it is gone"):
            next(parts_of(pieces))
    assert len(failures) == 3


@pytest.mark.parametrize("key", ["kafka", "header:who"])
def test_a_part_that_got_no_record_of_a_batch_is_restored(key: str) -> None:
    """Its slice without records may have fewer columns than others."""
    here, there = key_of(1), key_of(0)
    right = (event(0, 0, 20, here),), (event(1, 0, 10, there), event(1, 1, 20, here), event(1, 2, 60, there))
    history = History(TopicHistory("left", ((event(0, 0, 40, here),),)), TopicHistory("right", right), start_ms=BASE_MS)
    spec = JoinSpec(
        name="parts",
        left=Side(topic="left", disorder_ms=0),
        right=Right(topic="right", disorder_ms=0, key=key, before_ms=50),
        producer_delay_ms=10,
        outliers=0,
        path="shuffled",
        buckets=2,
    )
    simulation = Simulation(history, spec)

    for ms in (15, 10, 10, 20, 5, 5):
        simulation.clock.advance(ms)
        simulation.admit()
        simulation.restart()

    assert [result.outcome for result in simulation.drain().results] == ["matched"]


def test_a_plan_made_ahead_that_knows_more_partitions_is_discarded() -> None:
    """Its ranges are applied to the state, which would lose the new partition and keep the new count."""
    partition_range = {0: PartitionRange.starting_at(0)}
    topics = {"left": ("l", 1), "right": ("r", 1)}
    state = BatchPlan("g", 1, 0, 0, 1, {}, topics, {0: Bucket(0, partition_range, partition_range)}, parts=1)
    grown = replace(
        state,
        number=2,
        topics={**topics, "left": ("l", 2)},
        buckets={0: Bucket(0, {0: partition_range[0].to(5), 1: partition_range[0].to(5)}, partition_range)},
    )
    ahead = PrefetchedPlan()

    ahead.begin(1, lambda: Planned(grown, {}))
    assert ahead.take(state) is None

    ahead.begin(1, lambda: Planned(replace(grown, topics=topics), {}))
    assert ahead.take(state) is not None
