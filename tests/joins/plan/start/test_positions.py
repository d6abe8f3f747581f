"""Where a new checkpoint starts, and when it refuses to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import Idle
from joins.batch.ticket import Ticket
from joins.errors import DataLoss, NotCoPartitioned
from joins.plan.readable import list_ends
from joins.plan.start.positions import begin
from joins.read.summary import BucketSummary
from joins.spec import Format, JoinPath, Side
from joins.testing.log import Clock, SimulatedLog
from joins.testing.simulation import through_json
from joins.testing.strategies import histories, specs
from teacup.kafka.log import time_search
from tests.support.making import join_spec, topic


def logs(left, right, now_ms=10_000):
    clock = Clock(now_ms)
    return SimulatedLog(left, clock, identity="l"), SimulatedLog(right, clock, identity="r")


def starts(spec, left, right):
    """(left's, right's) first offsets by partition."""
    state = begin(spec, list_ends(left, right, left.clock.now_ms), left, right)
    return tuple(
        {p: r.start for b in state.buckets.values() for p, r in b.side(side).items()} for side in ("left", "right")
    )


def steps(*times):
    return [(t, b"a") for t in times]


@pytest.mark.parametrize(
    ("start", "left_from", "right_from"),
    [
        ("earliest", 0, 3),  # from 100 - 10 on
        (200, 1, 5),  # 190
        (201, 2, 7),  # 290
        (5_000, 3, 9),
        ("latest", 3, 9),
        ({0: 1}, 1, 5),
        ({0: 3}, 3, 9),
    ],
)
def test_right_starts_where_the_first_left_record_needs_it(start, left_from, right_from):
    """`before` earlier than the smallest left time, both ends included."""
    left, right = logs(
        topic("left", steps(100, 200, 300)), topic("right", steps(10, 50, 89, 90, 150, 190, 220, 290, 300))
    )

    assert starts(join_spec(start=start), left, right) == ({0: left_from}, {0: right_from})


def test_disorder_moves_the_start_of_right_back():
    """Left's first record may be followed by one that much earlier."""
    left, right = logs(topic("left", steps(100, 95)), topic("right", steps(80, 84, 85, 90)))
    spec = join_spec(left=Side(topic="left", disorder_ms=5))

    assert starts(spec, left, right) == ({0: 0}, {0: 2})


def test_partitions_start_each_for_itself():
    """One with old records does not hold the other's right back."""
    left, right = logs(topic("left", steps(100), steps(900)), topic("right", steps(50, 95), steps(50, 895)))

    assert starts(join_spec(), left, right) == ({0: 0, 1: 0}, {0: 1, 1: 1})


@pytest.mark.parametrize(
    ("idle", "left", "right_from"),
    [
        (Idle.ADVANCE, steps(), 1),  # nothing can arrive below the clock: 10,000 - 10
        (Idle.HOLD, steps(), 0),
        (Idle.HOLD, steps(9_000), 0),  # started behind it: what follows may be as early
    ],
)
def test_without_a_left_record_the_clock_or_the_last_one_decides(idle, left, right_from):
    """Nothing that a later left record may match is left out."""
    left, right = logs(topic("left", left), topic("right", steps(8_995, 9_995)))

    assert starts(join_spec(idle=idle, start="latest"), left, right)[1] == {0: right_from}


@pytest.mark.parametrize(
    ("idle", "left", "right_from"),
    [
        (Idle.ADVANCE, (10_900,), 1),  # it alone may be ahead: nothing can arrive below the clock, from 9,990 on
        (Idle.HOLD, (10_900,), 0),
        (Idle.ADVANCE, (10_900, 9_000), 0),
        (Idle.HOLD, (10_900, 10_900), 2),  # one of two is correct
    ],
)
def test_the_first_left_records_may_all_be_ahead_of_what_follows(idle, left, right_from):
    """As long as they are no more than may be wrong, those that are still to come count as well."""
    ahead = topic("left", steps(*left))
    events = tuple(replace(event, appended_ms=9_000, readable_ms=9_000) for event in ahead.partitions[0])
    logs_ = logs(replace(ahead, partitions=(events,)), topic("right", steps(8_995, 9_995)))

    assert starts(join_spec(idle=idle, outliers=1), *logs_) == ({0: 0}, {0: right_from})


def test_an_open_transaction_on_left_holds_right_back():
    """It hides records of unknown time, whatever the clock says."""
    left, right = logs(topic("left", [(100, b"a", 90_000)]), topic("right", steps(50, 9_995)))

    assert starts(join_spec(), left, right) == ({0: 0}, {0: 0})


DISPLACED = [*range(625, 1_000), *range(625)]
"""As producers leave them that retry without idempotence: the later records first."""


def said(spec, left_times, right_times=()):
    """The first state, and what is said of it, where times are in the payload."""
    clock, texts = Clock(10_000), []
    left, right = (
        SimulatedLog(topic(name, steps(*times)), clock, identity=name, exact_index=False, outliers=spec.outliers)
        for name, times in (("left", left_times), ("right", right_times))
    )
    state = begin(spec, list_ends(left, right, 10_000), left, right, texts.append)
    return state, texts


def test_records_of_the_time_or_later_before_the_start_are_reported():
    """A search by blocks relies on the disorder: 375 records at or after the time lie before what it finds."""
    state, texts = said(join_spec(start=240, outliers=16), DISPLACED)

    assert state.buckets[0].left[0].start == 615
    (text,) = texts
    assert all(named in text for named in ("left-0", "offset 615", "offset 0", "left.disorder"))


def test_right_records_that_left_needs_and_that_lie_before_rights_start_are_reported():
    """They would be missing in the window, and left unmatched."""
    state, texts = said(join_spec(start=240, outliers=16), list(range(1_000)), DISPLACED)

    assert state.buckets[0].right[0].start == 375 + 240 - 10
    (text,) = texts
    assert all(named in text for named in ("right-0", "right.disorder"))


@pytest.mark.parametrize("start", [240, "earliest", "latest", {0: 240}])
def test_a_start_with_nothing_of_its_time_before_it_is_not_remarked_on(start):
    """Nor is one that does not come from a time."""
    left = DISPLACED if start != 240 else range(1_000)

    assert said(join_spec(start=start, outliers=16, idle=Idle.HOLD), list(left))[1] == []


def test_canary_without_the_look_back_they_are_lost_without_a_word(monkeypatch):
    """The search itself finds nothing wrong."""
    monkeypatch.setattr(time_search, "look_back", lambda *_: {})

    assert said(join_spec(start=240, outliers=16), DISPLACED)[1] == []


def test_the_state_before_the_first_batch():
    """Number 0, nothing read, of this join and these topics; generations differ."""
    left, right = logs(topic("left", steps(100)), topic("right", steps(95)))
    end_offsets = list_ends(left, right, 10_000)

    state, other = begin(join_spec(), end_offsets, left, right), begin(join_spec(), end_offsets, left, right)

    assert (state.number, state.listed_ms, state.skipped) == (0, 10_000, {})
    assert state.topics == {"left": ("l", 1), "right": ("r", 1)}
    assert not state.buckets[0].reads
    assert state.buckets[0].advanced_ms == 10_000
    state.check_belongs_to(join_spec())
    assert state.generation != other.generation


@pytest.mark.parametrize(
    ("path", "start", "before"),
    [
        (
            None,
            "earliest",
            [{"right": 3}, {"right": 2}],
        ),  # no left in the second: near now
        (JoinPath.SHUFFLED, "earliest", [{"right": 3}]),
        (None, 200, [{"left": 1, "right": 5}, {"right": 2}]),
        (None, {0: 1, 1: 0}, [{}, {}]),  # another checkpoint has accounted for what lies before
    ],
)
def test_what_lies_before_the_start_is_counted(path, start, before):
    """For each bucket; on the direct path each right partition begins by its own left one."""
    right_times = steps(10, 50, 89, 90, 150, 190, 220, 290, 300)
    left, right = logs(
        topic("left", steps(100, 200, 300), []), topic("right", right_times, steps(9_000, 9_100)), now_ms=100_000
    )
    spec = join_spec(start=start, path=path)

    state = begin(spec, list_ends(left, right, 100_000), left, right)

    assert [bucket.before_start for bucket in state.buckets.values()] == before
    for ticket in Ticket.all_of(state):
        first, *others = (BucketSummary.of(part).before_start for part in ticket.divided())
        assert first == ticket.bucket.before_start == through_json(ticket.bucket).before_start
        assert not any(others)


def test_other_numbers_of_partitions_are_refused():
    """Both are in the message."""
    left, right = logs(topic("left", steps(1), steps(1)), topic("right", steps(1)))

    with pytest.raises(NotCoPartitioned, match=r"'left' has 2 .*'right' has 1"):
        starts(join_spec(), left, right)


def cut_short():
    """Right's retention has left only what is from 200 on; left begins at 100."""
    left, right = logs(topic("left", steps(100, 150, 205, 300)), topic("right", steps(90, 140, 199, 200, 290)))
    right.delete_before(0, 3)
    return left, right


def test_retention_that_is_too_short_is_refused():
    """With the number of left records that may lack a match: those at most `before` above what is left of right."""
    left, right = cut_short()

    with pytest.raises(DataLoss) as raised:
        starts(join_spec(), left, right)

    text = str(raised.value)
    assert "right topic 'right'" in text
    assert "partitions [0]" in text
    assert "1970-01-01T00:00:00.200Z" in text
    assert "about 3 left records" in text
    assert "start: TIME" in text
    assert "on_data_loss: continue" in text


def test_retention_that_is_too_short_is_counted_if_configured_to_continue():
    """In the batch plan, beside what was skipped."""
    left, right = cut_short()

    state = begin(join_spec(on_data_loss="continue"), list_ends(left, right, 10_000), left, right)

    assert state.skipped == {"left_without_right": 3}
    assert state.buckets[0].right[0].start == 3


@pytest.mark.parametrize("start", [300, "latest"])
def test_a_later_start_needs_no_more_than_retention_has_left(start):
    """What was deleted belongs to earlier left records."""
    left, right = cut_short()

    assert starts(join_spec(start=start), left, right)[1][0] >= 3


def test_an_empty_right_topic_whose_records_were_deleted_is_refused_too():
    """It is unknown what was there."""
    left, right = cut_short()
    right.delete_before(0, 5)

    with pytest.raises(DataLoss, match="about 4 left records"):
        starts(join_spec(), left, right)


@given(st.data())
def test_nothing_that_may_match_lies_before_the_start(data):
    """Any history, start and kind of time: no left record at or after `start: TIME`, and no partner, is left out."""
    spec = data.draw(specs())
    history = data.draw(histories(spec, co_partitioned=True))
    clock = Clock(history.start_ms + data.draw(st.sampled_from((0, 50, 5_000, 10_000_000))))
    times = [e.time_ms for e in history.left.records() if not e.is_future(spec.max_future_skew_ms)]
    start = data.draw(st.sampled_from(["earliest", "latest", *times]))
    spec = join_spec(
        **{name: getattr(spec, name) for name in ("left", "right", "idle")},
        producer_delay_ms=spec.producer_delay_ms,
        max_future_skew_ms=spec.max_future_skew_ms,
        start=start,
    )
    left = SimulatedLog(history.left, clock, exact_index=not spec.left.payload_time)
    right = SimulatedLog(history.right, clock, exact_index=not spec.right.payload_time)

    left_from, right_from = starts(spec, left, right)

    lefts = [e for e in history.left.records() if not e.is_future(spec.max_future_skew_ms)]
    rights = [e for e in history.right.records() if not e.is_future(spec.max_future_skew_ms)]
    if isinstance(start, int):
        assert not [e for e in lefts if e.time_ms >= start and e.offset < left_from[e.partition]]
    needed = {  # whatever their keys, which a start does not look at
        (r.partition, r.offset)
        for e in lefts
        if e.offset >= left_from[e.partition]
        for r in rights
        if r.partition == e.partition
        and e.time_ms - spec.right.before_ms <= r.time_ms <= e.time_ms + spec.right.after_ms
    }
    assert not [(p, o) for p, o in needed if o < right_from[p]]


def test_a_start_in_payload_times_leaves_out_no_record_from_then_on():
    """Found by single, unsorted records: disorder moves the start back, never forward."""
    side = Side(topic="left", time="$.t", format=Format.JSON, disorder_ms=10)
    left, right = logs(topic("left", steps(100, 109, 99, 108, 120)), topic("right", steps(1)))
    left.exact_index = False

    for start in range(95, 125):
        (from_,), times = starts(join_spec(left=side, start=start), left, right)[0].values(), [100, 109, 99, 108, 120]
        assert not [o for o, t in enumerate(times) if t >= start and o < from_]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({0: 4}, "left-0 ends at offset 3, before 4"),
        ({1: 0}, r"has 1 partitions, and an offset is given for \[1\]"),
    ],
)
def test_offsets_that_the_topic_does_not_have_are_refused(start, message):
    """They are another topic's, or of this one before it was recreated."""
    left, right = logs(topic("left", steps(100, 200, 300)), topic("right", steps(90)))

    with pytest.raises(DataLoss, match=message):
        starts(join_spec(start=start), left, right)


def test_records_before_given_offsets_that_retention_has_deleted_are_lost():
    """Refused, unless what is left of the log is enough."""
    left, right = logs(topic("left", steps(100, 200, 300)), topic("right", steps(90, 190)))
    left.delete_before(0, 2)

    with pytest.raises(DataLoss, match=r"1 offsets .*left-0, from 1 "):
        starts(join_spec(start={0: 1}), left, right)
    spec = join_spec(start={0: 1}, on_data_loss="continue")
    assert starts(spec, left, right)[0] == {0: 2}
    assert begin(spec, list_ends(left, right, left.clock.now_ms), left, right).skipped["left"] == 1
