"""Whether a partition still holds what a reader needs: what is refused, what is counted, and what the message says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.errors import OffsetOutOfRange
from teacup.kafka.log.losses import Losses, Lost, epochs_of
from teacup.kafka.log.topic_log import Ends, LeaderPosition

offsets = st.integers(0, 30)
STOPS, CONTINUES = (Losses(LookupError, "start over", continues) for continues in (False, True))


def refused(position, ends, needed=None, losses=STOPS):
    with pytest.raises(LookupError) as raised:
        losses.of("right partition clicks-0", position, ends, needed, by="the window")
    return str(raised.value)


@given(position=offsets, back=offsets, start=offsets, length=offsets)
def test_every_deleted_offset_that_is_needed_is_counted_once(position, back, start, length):
    """Those from the position on as unread, those below it as needed again; all or none stop a reader that stops."""
    needed, ends = max(position - back, 0), Ends(start, start + length, start + length)
    if position > ends.high:
        assert "it was truncated" in refused(position, ends, needed, CONTINUES)
        return

    lost = CONTINUES.of("p", position, ends, needed)

    deleted = range(ends.start)
    assert lost.unread == sum(at >= position for at in deleted)
    assert lost.again == sum(needed <= at < position for at in deleted)
    if lost:
        refused(position, ends, needed)
    else:
        assert STOPS.of("p", position, ends, needed) == Lost()


def test_a_message_names_the_partition_the_offsets_and_both_ways_out():
    """Whoever reads."""
    unread, window = refused(4, Ends(7, 9, 9)), refused(8, Ends(7, 9, 9), 5)

    for text in (unread, window):
        assert text.startswith("retention has deleted records of right partition clicks-0 below offset 7: ")
        assert text.endswith("Lengthen retention and start over, or continue with what is left, counted "
                             "(`on_data_loss: continue`)")  # fmt: skip
    assert "3 offsets from 4 on were never" in unread
    assert "needs records from offset 5 on" in window


def test_an_open_transaction_is_not_a_truncation():
    """Positions are compared with the high watermark: after a change of leaders the stable offset may look lower."""
    assert not STOPS.of("p", 40, Ends(0, 30, 40))


@pytest.mark.parametrize("losses", [STOPS, CONTINUES])
def test_a_partition_that_is_truncated_or_gone_is_refused_whatever_is_configured(losses):
    """Offsets that count as read would be those of other records."""
    assert re.search("ends at offset 39, .* up to 40", refused(40, Ends(0, 39, 39), losses=losses))
    assert "offset 4, is gone: start over" in refused(4, None, losses=losses)


class Leaders:
    """What the leaders of a topic say: `cut` is where each partition was cut off when its leader changed."""

    def __init__(self, cut):
        self.cut, self.asked = cut, {}

    def truncated(self, positions):
        self.asked = dict(positions)
        return {p for p, at in positions.items() if at.offset > self.cut.get(p, at.offset)}


@pytest.mark.parametrize("losses", [STOPS, CONTINUES])
def test_a_partition_that_was_truncated_and_has_grown_again_is_refused(losses):
    """Only where the leader has changed is it asked, and only about offsets that the log still covers."""
    ends = {p: Ends(2, 90, 90, epoch) for p, epoch in enumerate([7, 5, 7, 7, None])}
    known, positions = (5, 5, 5, 5, 5), {0: 40, 1: 40, 2: 2, 3: 30, 4: 40, 5: 40}
    same, cut = Leaders({}), Leaders({3: 29})

    losses.check_leaders("right partition clicks", same, positions, known, ends)
    with pytest.raises(LookupError, match=r"clicks-3 was truncated .*30.* start over"):
        losses.check_leaders("right partition clicks", cut, positions, known, ends)

    assert same.asked == {0: LeaderPosition(40, 5, 7), 3: LeaderPosition(30, 5, 7)}


def test_no_leader_is_asked_while_none_has_changed():
    """Which is so nearly always; nor if it was not known who led, as after a move."""
    ends, leaders = {0: Ends(0, 9, 9, 5), 1: Ends(0, 9, 9, 6)}, Leaders({0: 1, 1: 1})

    for known in (epochs_of(ends), (), (None, None)):
        STOPS.check_leaders("p", leaders, {0: 5, 1: 5}, known, ends)

    assert leaders.asked == {}


def test_a_recreated_topic_is_refused():
    """By its id."""
    CONTINUES.check_topic("right topic 'clicks'", "a", "a")
    with pytest.raises(LookupError, match=r"'clicks' was .*recreated \(id a -> b\)"):
        CONTINUES.check_topic("right topic 'clicks'", "a", "b")


@pytest.mark.parametrize(("offset", "advice"), [(5, "Wait."), (25, "Start over")])
def test_a_planned_batch_that_cannot_be_read_says_what_to_do(offset, advice):
    """For deleted records as the reader says; a truncated partition has no way out but its remedy."""
    with pytest.raises(LookupError) as raised, STOPS.of_planned("Wait."):
        raise OffsetOutOfRange("clicks", 3, offset, 8, 20)

    assert str(raised.value).startswith(f"a batch that is planned cannot be carried out: offset {offset} of clicks-3")
    assert str(raised.value).endswith(advice)
