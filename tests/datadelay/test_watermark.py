"""The watermark of a partition is never beyond what is still unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import UNKNOWN, Idle, partition_watermark, watermark
from joins.testing.log import Clock, SimulatedLog
from joins.testing.strategies import histories, specs


def watermark_of(**facts):
    return partition_watermark(**{"disorder_ms": 10, "producer_delay_ms": 100, **facts})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, UNKNOWN),
        ({"newest_ms": 500}, 490),
        ({"caught_up_listed_ms": 1_000}, 900),
        ({"caught_up_listed_ms": 1_000, "newest_ms": 500}, 900),
        ({"caught_up_listed_ms": 1_000, "newest_ms": 950}, 940),
        ({"caught_up_listed_ms": 1_000, "idle": Idle.HOLD}, UNKNOWN),
        ({"caught_up_listed_ms": 1_000, "newest_ms": 500, "idle": Idle.HOLD}, 490),
        ({"newest_ms": -5}, -15),
    ],
)
def test_the_largest_fact_counts(facts, expected):
    """The newest record read, the clock if nothing is unread (unless on hold)."""
    assert watermark_of(**facts) == expected


def test_the_slowest_partition_is_the_watermark():
    """And it never goes back; for no partitions it is what was known before."""
    assert watermark([30, 10, 20]) == 10
    assert watermark([30, 10, 20], 15) == 15
    assert watermark([30, UNKNOWN]) == UNKNOWN
    assert watermark([UNKNOWN], 7) == 7
    assert watermark([]) == UNKNOWN
    assert watermark(iter([]), 3) == 3


@given(st.data())
def test_it_is_never_beyond_what_is_still_unread(data):
    """At any moment and position of any history: every record still unread has at least that time."""
    spec = data.draw(specs())
    history = data.draw(histories(spec))
    topic, side = history.right, spec.right
    moments = sorted({event.readable_ms for event in topic.events()} | {event.appended_ms for event in topic.events()})
    now_ms = data.draw(st.sampled_from([history.start_ms, *moments])) + data.draw(st.sampled_from((0, 1, 50, 5_000)))
    log = SimulatedLog(topic, Clock(now_ms))
    ceiling_ms = now_ms + spec.max_future_skew_ms

    for partition, ends in log.ends().items():
        position = data.draw(st.integers(0, ends.stable))
        found = partition_watermark(
            disorder_ms=side.disorder_ms,
            newest_ms=log.newest({partition: position}, ceiling_ms)[partition],
            caught_up_listed_ms=now_ms if position >= ends.stable and ends.settled else None,
            producer_delay_ms=spec.producer_delay_ms,
            idle=spec.idle,
        )
        unread = [e.time_ms for e in topic.partitions[partition][position:] if e.kind == "data"]
        assert all(time_ms >= found for time_ms in unread)
