"""What a stalled join reports."""

from __future__ import annotations

from dataclasses import replace

from datadelay.progress import Idle
from joins.spec import JoinSpec, Side
from joins.window.listing import Listing
from joins.window.source import held_up
from joins.window.state import Admission, Bucket, Reading
from kafkaio.topiclog import Ends

SPEC = JoinSpec(name="join", left=Side(topic="clicks"), right=Side(topic="impressions"), before_ms=1_000, after_ms=0)


def state(left_end: int) -> Admission:
    """One bucket: left read to `left_end`, right to offset 7."""
    bucket = Bucket(number=0, left={0: Reading(0, left_end)}, right={0: Reading(0, 7)})
    return Admission(
        generation="g", number=1, listed_ms=0, skew_ms=0, right_bytes=1, identity={}, topics={}, buckets={0: bucket}
    )


def listing(right: Ends) -> Listing:
    """Left ends at 5."""
    return Listing(0, {0: Ends(0, 5, 5, 0)}, {0: right})


def test_an_open_transaction_is_named() -> None:
    """With the partition and the offset at which it is held."""
    line = held_up(SPEC, state(2), listing(Ends(0, 7, 9, 0)))

    assert line is not None
    assert "3 left records in partitions [0] wait" in line
    assert "impressions-0: an open transaction holds its end at offset 7" in line


def test_a_held_idle_partition_is_named() -> None:
    """And the setting that makes it hold."""
    line = held_up(replace(SPEC, idle=Idle.HOLD), state(2), listing(Ends(0, 7, 7, 0)))

    assert line is not None
    assert "impressions-0: it is read to its end, and by `idle: hold`" in line


def test_left_that_is_read_to_its_end_waits_for_nothing() -> None:
    """A quiet topic is not a problem."""
    assert held_up(SPEC, state(5), listing(Ends(0, 7, 9, 0))) is None
