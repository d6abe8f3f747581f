"""Nothing is skipped silently: what stops a join, what its message says, what is counted when it continues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from datadelay.watermark import UNKNOWN
from joins.batch.facts import Bound, low_end
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.errors import DataLoss, planned_records
from joins.plan.log_checks import (
    check_ends,
    check_leaders,
    check_topics,
    is_whole,
    with_new_partitions,
)
from joins.plan.readable import EndOffsets
from joins.plan.source import PrefetchedPlan
from joins.plan.sync_bolt import Planned
from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.topic_log import Ends
from tests.support.making import join_spec

SPEC = join_spec()
GOES_ON = join_spec(on_data_loss="continue")

LEFT = PartitionRange(40, 40, held_ms=405, bounds=(Bound(0), Bound(40, 400)))
RIGHT = PartitionRange(50, 50, bounds=(Bound(0), Bound(20, 200), Bound(30, 300), Bound(50, 500)))
STATE = BatchPlan(
    "g",
    7,
    0,
    0,
    1,
    SPEC.identity(),
    {"left": ("l", 1), "right": ("r", 1)},
    {0: Bucket(0, {0: LEFT}, {0: RIGHT}, expiry_ms=250)},
    epochs={"left": (None,), "right": (None,)},
)
"""Left is read up to 40, right up to 50; the window needs right from time 250 on, which is from offset 20 on."""


def end_offsets(left=(0, 40), right=(0, 50)):
    return EndOffsets(1_000, {0: Ends(left[0], left[1], left[1])}, {0: Ends(right[0], right[1], right[1])})


def message(**ends):
    with pytest.raises(DataLoss) as raised:
        check_ends(SPEC, STATE, end_offsets(**ends))
    return str(raised.value)


@pytest.mark.parametrize("start", [21, 50])
def test_a_window_that_is_copied_need_not_be_in_the_log(start: int):
    """Whoever lacks a slice finds out; what was never read is needed as ever, and `continue` goes on without."""
    listed = end_offsets(left=(40, 90), right=(start, 90))

    assert check_ends(SPEC, STATE, listed, copied=True) == STATE
    assert is_whole(SPEC, STATE, listed, copied=True)
    assert not is_whole(SPEC, STATE, listed)
    with pytest.raises(DataLoss):
        check_ends(SPEC, STATE, listed)
    with pytest.raises(DataLoss):
        check_ends(SPEC, STATE, end_offsets(left=(40, 90), right=(51, 90)), copied=True)
    assert check_ends(GOES_ON, STATE, listed, copied=True) == check_ends(GOES_ON, STATE, listed)


def test_all_is_there():
    """Retention may delete what has been joined on the left, and what the window no longer needs on the right."""
    assert check_ends(SPEC, STATE, end_offsets(left=(40, 90), right=(20, 90))) == STATE


def test_unread_left_records_are_gone():
    """How many, of which partition, from which offset on, and what can be done."""
    text = message(left=(43, 90))

    assert "left-0 below offset 43" in text
    assert "3 offsets from 40 " in text
    assert "start: TIME" in text
    assert "on_data_loss: continue" in text


def test_unread_right_records_are_gone():
    """The same on the other side."""
    text = message(right=(51, 90))

    assert "right-0 below offset 51" in text
    assert "1 offsets from 50 " in text


def test_right_records_of_the_window_are_gone():
    """They were read, but a lost window could not be read again."""
    text = message(right=(21, 90))

    assert "right-0 below offset 21" in text
    assert "window still needs records from offset 20" in text
    assert "start: TIME" in text
    assert "on_data_loss: continue" in text


def test_a_window_that_holds_nothing_needs_nothing():
    """All of right is below the expiry."""
    state = replace(STATE, buckets={0: structs.replace(STATE.buckets[0], expiry_ms=500)})

    assert check_ends(SPEC, state, end_offsets(left=(40, 90), right=(50, 90))) == state


@pytest.mark.parametrize(("side", "position"), [("left", 40), ("right", 50)])
def test_a_truncated_partition_stops_even_a_join_that_continues(side, position):
    """New records would be at offsets that count as read."""
    with pytest.raises(DataLoss) as raised:
        check_ends(GOES_ON, STATE, end_offsets(**{side: (0, 39)}))

    assert f"{side} partition {side}-0 ends at offset 39" in str(raised.value)
    assert f"read up to {position}" in str(raised.value)
    assert "start: TIME" in str(raised.value)


class CutOff:
    """A log that another leader has cut off at an offset."""

    def __init__(self, end):
        self.end = end

    def truncated(self, positions):
        return {p for p, position in positions.items() if position.offset > self.end}


@pytest.mark.parametrize(("side", "position"), [("left", 40), ("right", 50)])
def test_a_partition_that_was_truncated_and_has_grown_again_stops_even_a_join_that_continues(side, position):
    """The leader epochs of the last listing are in the state."""
    state = replace(STATE, epochs={"left": (5,), "right": (5,)})
    listed = EndOffsets(1_000, {0: Ends(0, 90, 90, 6)}, {0: Ends(0, 90, 90, 6)})
    logs = {"left": CutOff(40), "right": CutOff(50)}

    check_leaders(GOES_ON, state, listed, logs)
    with pytest.raises(DataLoss, match=f"{side} partition {side}-0 was truncated below offset {position}"):
        check_leaders(GOES_ON, state, listed, {**logs, side: CutOff(position - 1)})
    assert check_ends(GOES_ON, state, listed).epochs == {"left": (6,), "right": (6,)}


def test_an_open_transaction_is_not_a_truncation():
    """Positions are compared with the high watermark: after a change of leaders the stable offset may look lower."""
    ends = replace(end_offsets(), left={0: Ends(0, 30, 40)})

    assert check_ends(SPEC, STATE, ends) == STATE


def test_a_join_that_continues_counts_what_it_skips():
    """By side, in addition to what was skipped before; the positions are where the log starts."""
    state = replace(STATE, skipped={"left": 2})

    after = check_ends(GOES_ON, state, end_offsets(left=(43, 90), right=(55, 90)))

    assert after.skipped == {"left": 5, "right": 5, "window": 30}
    left, right = after.buckets[0].left[0], after.buckets[0].right[0]
    assert (left.start, left.end, left.held_ms) == (43, 43, None)  # the record that was held back is gone
    assert (right.start, right.end) == (55, 55)
    assert check_ends(GOES_ON, after, end_offsets(left=(43, 90), right=(55, 90))) == after


def test_a_join_that_continues_reads_no_window_again_that_is_gone():
    """For any time, the low end is within the log, and still distinguishes times where it did."""
    after = check_ends(GOES_ON, STATE, end_offsets(left=(40, 90), right=(25, 90)))

    bounds = after.buckets[0].right[0].bounds
    assert [low_end(bounds, t) for t in (UNKNOWN, 0, 250, 300, 499, 500)] == [25, 25, 25, 30, 30, 50]
    assert after.buckets[0].right[0].end == 50
    assert after.skipped == {"window": 5}


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_recreated_topic_is_noticed(side):
    """By its id, whatever its offsets look like. Both steps are named: the output's receipts are of the old one."""
    topics = {**STATE.topics, side: ("new", 1)}

    with pytest.raises(DataLoss, match=rf"{side} topic '{side}' .*\(id {side[0]} -> new\): .*checkpoint.*--take-over"):
        check_topics(GOES_ON, STATE, topics)


@pytest.mark.parametrize("side", ["left", "right"])
def test_another_number_of_partitions_is_noticed(side):
    """Both numbers are in the message."""
    topics = {**STATE.topics, side: (side[0], 4)}

    with pytest.raises(DataLoss, match=rf"'{side}' had 1 partitions, now 4.*`teacup move`"):
        check_topics(GOES_ON, STATE, topics)


def test_the_same_topics_are_the_same():
    """No error."""
    check_topics(SPEC, STATE, STATE.topics)


def test_more_partitions_are_read_on_the_shuffled_path():
    """Each from its start; fewer, or a recreated topic, still stop the join."""
    spec, state = replace(SPEC, path="shuffled"), replace(STATE, parts=2)
    grown = {"left": ("l", 2), "right": ("r", 3)}

    check_topics(spec, state, grown)
    after = with_new_partitions(spec, state, grown)

    new = PartitionRange.starting_at(0)
    assert after.buckets[0].left == {0: LEFT, 1: structs.replace(new, watermark_ms=250 + SPEC.right.before_ms)}
    assert after.buckets[0].right == {0: RIGHT, 1: new, 2: new}
    assert with_new_partitions(spec, replace(state, topics=grown), grown).buckets == after.buckets
    assert with_new_partitions(spec, after, grown) is after
    with pytest.raises(DataLoss):
        check_topics(spec, after, STATE.topics)


def test_a_plan_made_ahead_that_skips_what_is_gone_is_discarded():
    """Applied to the state, its ranges would begin at offsets that are gone: such a batch could never run."""
    ahead, state = PrefetchedPlan(), replace(STATE, number=7)

    def following(spec, ends):
        checked = check_ends(spec, state, ends)
        bucket = checked.buckets[0]
        read = structs.replace(bucket, left={0: bucket.left[0].to(90)})
        return Planned(replace(checked, number=8, buckets={0: read}), {})

    ahead.begin(7, lambda: following(GOES_ON, end_offsets(left=(43, 90))))
    assert ahead.take(state) is None

    ahead.begin(7, lambda: following(GOES_ON, end_offsets(left=(40, 90))))
    taken = ahead.take(state)
    assert taken is not None
    assert (taken.batch_plan.buckets[0].left[0].start, taken.batch_plan.buckets[0].left[0].end) == (40, 90)


@pytest.mark.parametrize(
    ("ends", "whole"),
    [
        ({}, True),
        ({"left": (40, 90), "right": (20, 90)}, True),
        ({"left": (41, 90)}, False),
        ({"right": (51, 90)}, False),
        ({"right": (21, 90)}, False),  # a window that is lost could not be read again
    ],
)
def test_a_planned_batch_is_whole_while_the_log_holds_its_ranges_and_its_window(ends, whole):
    """It begins where the batch before it ended; whether losses stop the join makes no difference."""
    bucket = STATE.buckets[0]
    read = structs.replace(bucket, left={0: LEFT.to(80)}, right={0: RIGHT.to(85)})
    listed = end_offsets(**{"left": (0, 90), "right": (0, 90), **ends})

    for spec in (SPEC, GOES_ON):
        assert is_whole(spec, replace(STATE, buckets={0: read}), listed) == whole


def test_a_planned_batch_whose_records_are_gone_says_what_to_do():
    """It would fail in the same way at each start."""
    with pytest.raises(DataLoss) as raised, planned_records(SPEC.on_data_loss):
        raise OffsetOutOfRange("clicks", 3, 5, 8, 20)

    for said in ("offset 5 of clicks-3", "retention", "`on_data_loss: continue`", "`start: TIME`", "--take-over"):
        assert said in str(raised.value)
