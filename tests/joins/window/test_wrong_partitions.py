"""Keys that a wrong partitioner put into several partitions: on the direct path they match within their bucket only.

There bucket n is partition n of both topics. On the shuffled path a bucket has its keys from all partitions, wherever
they are (`test_join_properties`).
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.spec import JoinPath
from joins.testing import oracle
from joins.testing.history import EventKind, History, TopicHistory
from joins.testing.simulation import Simulation
from joins.testing.strategies import cuts, histories
from tests.support.canary import searched
from tests.support.joinhistories import advancing


@st.composite
def joins_with_misplaced_keys(draw):
    """Topics with as many partitions, whose keys are anywhere."""
    spec = draw(advancing)
    history = draw(histories(spec))
    count = min(len(history.left.partitions), len(history.right.partitions))

    def cut(topic):
        return TopicHistory(topic.topic, topic.partitions[:count])

    return spec, History(cut(history.left), cut(history.right), history.start_ms)


def buckets_of(history):
    """The same history, once for each partition: the other partitions have no records."""

    def only(topic, number):
        return TopicHistory(
            topic.topic,
            tuple(
                tuple(event if event.partition == number else replace(event, kind=EventKind.GAP) for event in events)
                for events in topic.partitions
            ),
        )

    for number in range(len(history.left.partitions)):
        yield History(only(history.left, number), only(history.right, number), history.start_ms)


def check(spec, history, steps):
    simulation = Simulation(history, spec).play(steps)
    run = simulation.drain()

    start = simulation.started_at["right"]
    of = list(buckets_of(History(simulation.left.history, simulation.right.history, history.start_ms)))
    rows = [row for bucket in of for row in oracle.join(bucket, spec)]
    alone = [right for bucket in of for right in oracle.unjoined(bucket, spec, oracle.made(bucket, spec))]
    assert run.sorted_results() == sorted(rows, key=lambda row: row.order)
    assert sorted(run.unjoined) == sorted((p, offset) for p, offset in alone if offset >= start[p])


@given(joins_with_misplaced_keys(), cuts())
def test_keys_match_within_their_bucket_only(join, steps):
    """The rows are those of each partition alone, whichever buckets one process has."""
    check(*join, steps)


@pytest.mark.canary
def test_were_all_partitions_one_bucket_they_would_match_across():
    """The property sees it."""

    @searched(seed=1)
    @given(joins_with_misplaced_keys(), cuts())
    def found(join, steps):
        spec, history = join
        check(replace(spec, path=JoinPath.SHUFFLED, buckets=1), history, steps)

    with pytest.raises(AssertionError):
        found()
