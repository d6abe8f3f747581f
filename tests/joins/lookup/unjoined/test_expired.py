"""Verdicts on right records over a simulated lookup join: each once, and correct, however it is cut and crashed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.model import DelayState
from datadelay.watermark import Idle
from joins import DataLoss
from joins.errors import SpecChanged
from joins.lookup.unjoined.expired import SNAPSHOTS, RightSlice, SliceRange, Verdicts, slice_is_whole
from joins.spec import Format, JoinType, Side
from joins.testing import oracle
from joins.testing.history import Event, History, TopicHistory
from joins.testing.strategies import histories, specs
from teacup.kafka.log.topic_log import Ends
from tests.support.judging import Judging, late, with_a_last_left_record
from tests.support.making import join_spec, topic
from tests.support.simulatedlookup import Simulated, lookup_spec

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.sampled_from((1, 10, 60, 400, 20_000))),
        st.tuples(st.just("feed"), st.sampled_from((1, 3, 100))),
        st.tuples(
            st.just("publish"), st.sampled_from((DelayState.OK, DelayState.OK, DelayState.OK, DelayState.UNKNOWN))
        ),
        st.tuples(st.just("admit"), st.sampled_from((1, 3, 100))),
        st.tuples(
            st.just("judge"),
            st.sampled_from((100, 2, 1)),
            st.sampled_from((None, None, "planned", "delivered")),
        ),
        st.tuples(st.just("round"), st.sampled_from((1, 20, 200, 5_000)), st.sampled_from((1, 2, 5))),
        st.sampled_from((("rewind",), ("restart",), ("look",))),
    ),
    max_size=40,
)


@st.composite
def joins_with_history(draw):
    refused = (JoinType.ANTI, JoinType.FULL)
    spec = draw(specs().filter(lambda spec: spec.idle is Idle.ADVANCE and spec.right.type not in refused))
    spec = lookup_spec(spec, right_is_judged=True)
    history = with_a_last_left_record(draw(histories(spec)), spec)
    return draw(st.sampled_from((spec, late(spec)))), history


@given(joins_with_history(), STEPS)
def test_every_right_record_gets_one_true_verdict(join, steps):
    """However the join lags, with any slices, crashes and outdated looks, and although left records come late."""
    spec, history = join
    run = Simulated(history, spec)
    judging = Judging(run)

    for name, *values in steps:
        if name == "advance":
            run.clock.advance(*values)
        elif name == "round":  # all that there is in the course of things
            run.clock.advance(values[0])
            run.feed()
            run.publish()
            run.admit(values[1])
            judging.judge()
        else:
            getattr(judging if name in ("judge", "look") else run, name)(*values)
    results = run.drain()

    assert judging.drain() == sorted(oracle.unjoined(history, spec, results))


def judged(left, right, start=None, start_at=None, right_is_judged=True, right_side=None, **changes):
    """A join that has read all of left, and the job that judges its right records."""
    changes |= {} if start_at is None else {"start": start_at}
    changes |= {} if right_side is None else {"right": right_side}
    spec = lookup_spec(join_spec(**changes), right_is_judged=right_is_judged)
    left, right = (
        given if isinstance(given, TopicHistory) else topic(name, given)
        for name, given in (("left", left), ("right", right))
    )
    run = Simulated(History(left, right, start_ms=100_000), spec)
    run.feed()
    run.publish()
    run.admit()
    return run, Judging(run, start)


LEFT_GOES_ON = (70, b"c", 200_000)
"""In a transaction that is open: left's partition watermark is that of the record before it."""


def test_what_may_still_be_joined_has_no_verdict_yet():
    """The slice ends before the first such record; everything after it waits too."""
    run, judging = judged(
        [(50, b"a"), (60, b"b"), LEFT_GOES_ON],
        [(45, b"a"), (46, b"x"), (50, b"x"), (45, b"y")],
    )

    first = judging.drain()
    waits_at = judging.saved["positions"]["0"]
    run.clock.advance(200_000)
    run.drain()

    assert (first, waits_at) == ([(0, 1)], 2)
    assert judging.drain() == [(0, 1), (0, 2), (0, 3)]


def test_the_slowest_left_partition_decides():
    """A right record matches left ones of any partition."""
    left = topic("left", [(50, b"a"), (60, b"b"), LEFT_GOES_ON], [(15, b"c"), (20, b"x", 200_000)])
    run, judging = judged(left, [(4, b"n"), (18, b"x")])

    first = judging.drain()
    run.clock.advance(200_000)
    run.drain()

    assert (first, judging.drain()) == ([(0, 0)], [(0, 0)])


@pytest.mark.parametrize(("judged_too", "outcome"), [(True, "unmatched"), (False, "matched")])
def test_a_late_left_record_makes_no_verdict_false(judged_too, outcome):
    """If right is judged it finds only records that have not expired, as in the in-memory join."""
    run, judging = judged([(50, b"a"), (60, b"b"), (30, b"x", 200_000)], [(25, b"x")], right_is_judged=judged_too)

    reported = judging.drain()
    run.clock.advance(200_000)
    results = run.drain()

    assert reported == [(0, 0)]
    assert (results[2].outcome, results[2].left_offset) == (outcome, 2)


def test_a_slice_ends_before_a_record_that_is_not_over_whatever_the_search_said():
    """Times in the payload are searched for on the promise of a disorder, which late right records break."""
    times = [10, 50, 20, 30, 70]  # those below 50 can no longer match
    events = tuple(event(i, time_ms, b'{"time": %d}' % time_ms) for i, time_ms in enumerate(times))
    side = Side(topic="right", disorder_ms=0, time="$.time", format=Format.JSON)
    left = [(50, b"a"), (60, b"b"), LEFT_GOES_ON]
    _, judging = judged(left, TopicHistory("right", (events,)), right_side=side)

    assert judging.drain() == [(0, 0)]


def test_a_slice_had_room_unless_it_ended_at_its_limit_in_some_partition():
    """Then there may be more to judge behind it."""
    slice_ = RightSlice(100, 1_000, {0: SliceRange(10, 14, 1), 1: SliceRange(0, 4, 1)}, {})

    assert slice_.had_room({0: 13, 1: 0}, 4)
    assert not slice_.had_room({0: 14, 1: 0}, 4)
    assert slice_.had_room({0: 14, 1: 4}, 5)


def test_null_keys_are_unjoined_and_dead_letters_are_counted():
    """A record without a key appears in no row; the feeder sent one from the future to the dead-letter topic."""
    run, judging = judged([(50, b"a"), (90, b"b")], [(45, b"a"), (46, None)], max_future_skew_ms=0)
    run.right.history = TopicHistory("right", ((*run.right.history.partitions[0], event(2, 2**40)),))

    assert judging.drain() == [(0, 1)]
    assert judging.saved["positions"]["0"] == 3


def event(offset, time_ms, value=b"v"):
    return Event(partition=0, offset=offset, time_ms=time_ms, key=b"k", value=value, appended_ms=90, readable_ms=90)


@pytest.mark.parametrize(("start", "expected"), [(None, [0, 1, 3]), (47, [3]), ("earliest", [0, 1, 3]), ("latest", [])])
def test_verdicts_start_where_they_are_asked_to(start, expected):
    """At a time: records below it have none. `latest`: records that can still match."""
    left, right = [(60, b"a"), (90, b"b")], [(40, b"x"), (45, b"x"), (55, b"a"), (56, b"x")]
    _, judging = judged(left, right, start)

    assert judging.drain() == [(0, offset) for offset in expected]


def test_a_join_that_starts_at_a_time_judges_what_its_left_records_reach():
    """As the in-memory join reads right from there on."""
    _, judging = judged([(40, b"a"), (60, b"a")], [(20, b"x"), (40, b"x"), (55, b"a")], start_at=50)

    assert judging.drain() == [(0, 1)]


def test_rows_that_retention_has_deleted_are_never_taken_for_missing():
    """Neither at the start nor later; a start at a time asks the index for what is left."""
    _, judging = judged([(50, b"a"), (52, b"a"), (90, b"b"), (91, b"b")], [(45, b"a"), (46, b"a")])
    judging.output.start[0] = 1

    with pytest.raises(DataLoss, match=r"'out'.*offset 1.*--start"):
        judging.judge()
    judging.start = 3_000_000
    assert not judging.judge()
    assert judging.saved["begin_ms"] == 3_000_000


def test_rows_deleted_between_two_runs_stop_it():
    """They may have been those of the next slice."""
    run, judging = judged([(50, b"a"), (60, b"b"), LEFT_GOES_ON], [(45, b"a"), (50, b"a"), (51, b"b")])
    judging.drain()
    run.clock.advance(200_000)
    run.drain()
    judging.output.start[0] = 1

    with pytest.raises(DataLoss, match=r"offsets 1 to 2.* from 0"):
        judging.judge()


@pytest.mark.parametrize("choice", ["stop", "continue"])
def test_right_records_that_retention_has_deleted_stop_it_or_are_counted(choice):
    """They have no verdict."""
    run, judging = judged([(50, b"a"), (90, b"b")], [(45, b"a"), (46, b"x"), (47, b"x")], on_data_loss=choice)
    judging.judge(1)
    run.right.delete_before(0, 2)

    if choice == "stop":
        with pytest.raises(DataLoss, match=r"right-0 .* 2: 1 offsets from 1 "):
            judging.judge()
    else:
        assert judging.drain() == [(0, 2)]
        assert judging.saved["skipped"] == 1


@pytest.mark.parametrize("end", [0, 1])
def test_a_right_partition_that_was_truncated_and_has_grown_again_stops_it(end):
    """Other records would be at offsets that have a verdict; a leader that had all of those changes nothing."""
    run, judging = judged([(50, b"a"), (90, b"b")], [(45, b"a"), (46, b"x"), (47, b"x")])
    judging.judge(1)
    run.right.lead_anew(0, end)

    if end == 1:
        judging.drain()
        return
    with pytest.raises(DataLoss, match=r"right-0 .*truncated.* 1"):
        judging.judge()


def test_another_checkpoint_of_the_join_and_another_topic_are_refused():
    """What they have written, or will write, differs from what was examined."""
    run, judging = judged([(50, b"a"), (90, b"b")], [(45, b"a"), (46, b"x")])
    judging.judge(1)
    saved = judging.saved

    judging.saved = {**saved, "topics": {**saved["topics"], "output": "another"}}
    with pytest.raises(DataLoss, match=r"the output topic .*recreated"):
        judging.judge()
    judging.saved = saved
    run.state = replace(run.state, generation="another")
    with pytest.raises(SpecChanged, match="generation another"):
        judging.judge()


def test_snapshots_stay_few_and_old_ones_go():
    """A run every minute over a window of hours leaves many."""
    run, judging = judged([(50, b"a"), LEFT_GOES_ON], [(45, b"a"), (50, b"x")])
    for _ in range(500):
        judging.judge()
    many = len(judging.saved["snapshots"])
    run.clock.advance(200_000)
    run.drain()
    judging.drain()
    judging.judge()

    assert many <= SNAPSHOTS
    assert len(judging.saved["snapshots"]) <= 2
    assert judging.reported == [(0, 1)]


@pytest.mark.parametrize("choice", ["stop", "continue"])
@pytest.mark.parametrize(("start", "whole"), [(3, True), (4, False)])
def test_a_slice_is_whole_while_the_log_holds_its_right_records(choice, start, whole):
    """Whether losses stop it makes no difference; where right was truncated, it stops."""
    spec = join_spec(on_data_loss=choice)
    under_way = RightSlice(expiry_ms=1, ceiling_ms=1, right={0: SliceRange(3, 8, 2)}, output={})
    state = Verdicts("g", "j", {}, 0, {0: 3}, {0: 1}, (), under_way)

    assert slice_is_whole(spec, state, {0: Ends(start, 9, 9)}) == whole
    with pytest.raises(DataLoss, match=r"right-0 .*offset 7.* 8"):
        slice_is_whole(spec, state, {0: Ends(start, 7, 7)})
