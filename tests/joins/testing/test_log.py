"""The simulated log: what its answers promise, against the history behind it, and the traps of the broker's index."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.spec import JoinSpec, Side
from joins.testing.history import Event, EventKind, TopicHistory
from joins.testing.log import RECORDS, Clock, SimulatedLog
from joins.testing.strategies import FUTURE_MS, histories, specs
from teacup.kafka.errors import KafkaUnavailable, OffsetOutOfRange
from teacup.kafka.log.topic_log import Ends, TimeAnswer, TimeQuery, TopicLog
from teacup.kafka.records.record import OUTLIERS

CEILING_MS = 1_000_000


def event(
    offset: int, time_ms: int, kind: EventKind = EventKind.DATA, at_ms: int = 0, readable_ms: int | None = None
) -> Event:
    return Event(
        partition=0,
        offset=offset,
        time_ms=time_ms,
        key=b"k",
        value=json.dumps({"time": time_ms}).encode(),
        appended_ms=at_ms,
        readable_ms=at_ms if readable_ms is None else readable_ms,
        kind=kind,
    )


def log_of(*events: Event, now_ms: int = 0, exact_index: bool = True, outliers: int = 0) -> SimulatedLog:
    return SimulatedLog(TopicHistory("t", (events,)), Clock(now_ms), exact_index=exact_index, outliers=outliers)


@st.composite
def logs(draw: st.DrawFn) -> tuple[JoinSpec, Side, SimulatedLog]:
    """A log at any moment of its history, part of it perhaps deleted by retention."""
    spec = draw(specs())
    history = draw(histories(spec))
    first_ms = min((e.appended_ms for e in history.left.events()), default=0)
    now_ms = draw(st.integers(first_ms - 1, max(history.end_ms, first_ms)) | st.just(history.end_ms))
    outliers = draw(st.sampled_from((0, 1, 2, OUTLIERS)))
    log = SimulatedLog(history.left, Clock(now_ms), exact_index=not spec.left.payload_time, outliers=outliers)
    if draw(st.booleans()):
        log.delete_before(0, draw(st.integers(0, log.ends()[0].stable)))
    return spec, spec.left, log


def ceiling_ms(log: SimulatedLog) -> int:
    return log.clock.now_ms + FUTURE_MS // 2


def readable(log: SimulatedLog, partition: int) -> list[Event]:
    """By the definition, without the log's own arithmetic: seen by a read_committed reader, not from the future."""
    start = log.ends()[partition].start
    return [
        e
        for e in log.history.partitions[partition]
        if e.offset >= start
        and e.kind is EventKind.DATA
        and e.readable_ms <= log.clock.now_ms
        and e.time_ms <= ceiling_ms(log)
    ]


def queries(draw: st.DataObject, log: SimulatedLog, margin_ms: int) -> dict[int, TimeQuery]:
    asked = {}
    for partition, ends in log.ends().items():
        times = [e.time_ms for e in log.history.partitions[partition]] or [0]
        time_ms = draw.draw(st.sampled_from(times)) + draw.draw(st.integers(-2, 2))
        lo = draw.draw(st.integers(ends.start, ends.stable))
        asked[partition] = TimeQuery(time_ms, lo, ends.stable, margin_ms)
    return asked


@given(logs(), st.data())
def test_everything_before_an_answer_is_below_the_time(
    drawn: tuple[JoinSpec, Side, SimulatedLog], data: st.DataObject
) -> None:
    """In either join kind, poisoned or not, with the side's disorder as the margin."""
    _, side, log = drawn
    asked = queries(data, log, side.disorder_ms)

    answers = log.first_at_or_after(asked, ceiling_ms(log))

    for partition, query in asked.items():
        answer = answers[partition]
        assert query.lo <= answer.offset <= query.hi
        before = [e for e in readable(log, partition) if query.lo <= e.offset < answer.offset]
        assert all(e.time_ms < query.time_ms for e in before)


@given(logs(), st.data())
def test_a_time_is_reached_where_a_readable_record_has_it(
    drawn: tuple[JoinSpec, Side, SimulatedLog], data: st.DataObject
) -> None:
    """Otherwise the answer is the end; the time is the one that was looked for in the end."""
    _, side, log = drawn
    asked = queries(data, log, side.disorder_ms)

    answers = log.first_at_or_after(asked, ceiling_ms(log))

    for partition, query in asked.items():
        answer = answers[partition]
        below_hi = [e.time_ms for e in readable(log, partition) if e.offset < query.hi]
        assert answer.time_ms in (query.time_ms, query.time_ms - query.margin_ms)
        if answer.reached:
            assert max(below_hi) >= answer.time_ms
        else:
            assert answer.offset == query.hi


@given(logs(), st.data())
def test_an_exact_answer_is_the_first_record_of_all(
    drawn: tuple[JoinSpec, Side, SimulatedLog], data: st.DataObject
) -> None:
    """If the index is exact, the log holds only data, and the found record is in the range."""
    _, side, log = drawn
    plain = TopicHistory(
        "t",
        tuple(
            tuple(replace(e, kind=EventKind.DATA, time_ms=min(e.time_ms, ceiling_ms(log))) for e in events)
            for events in log.history.partitions
        ),
    )
    log = SimulatedLog(plain, log.clock, outliers=0)
    asked = queries(data, log, side.disorder_ms)

    answers = log.first_at_or_after(asked, ceiling_ms(log))

    for partition, query in asked.items():
        hits = [e.offset for e in readable(log, partition) if e.time_ms >= query.time_ms]
        expected = hits[0] if hits else query.hi
        if log.ends()[partition].settled and expected >= query.lo:
            assert answers[partition] == TimeAnswer(expected, query.time_ms, bool(hits))


@given(logs(), st.data())
def test_newest_is_the_time_of_a_readable_record(
    drawn: tuple[JoinSpec, Side, SimulatedLog], data: st.DataObject
) -> None:
    """Below the end, not from the future, and None only where there is none."""
    _, _, log = drawn
    below = {p: data.draw(st.integers(ends.start, ends.stable)) for p, ends in log.ends().items()}

    newest = log.newest(below, ceiling_ms(log))

    for partition, end in below.items():
        times = [e.time_ms for e in readable(log, partition) if e.offset < end]
        assert newest[partition] in times if times else newest[partition] is None


@given(logs())
def test_the_ends_are_those_of_the_moment(drawn: tuple[JoinSpec, Side, SimulatedLog]) -> None:
    """The high watermark is above what was appended, the last stable offset above what is readable."""
    _, _, log = drawn

    for partition, ends in log.ends().items():
        events = log.history.partitions[partition]
        assert ends.high == sum(e.appended_ms <= log.clock.now_ms for e in events)
        assert ends.stable == max(ends.start, sum(e.readable_ms <= log.clock.now_ms for e in events))
        assert ends.start <= ends.stable <= ends.high


@given(logs())
def test_fetch_gives_every_readable_record(drawn: tuple[JoinSpec, Side, SimulatedLog]) -> None:
    """Those from the future as well; the timestamp is the event time or that of the append."""
    _, side, log = drawn

    for partition, ends in log.ends().items():
        batch = log.fetch(partition, ends.start, ends.stable)

        events = [e for e in log.history.partitions[partition][ends.start : ends.stable] if e.kind is EventKind.DATA]
        assert batch.schema == RECORDS
        assert batch["offset"].to_pylist() == [e.offset for e in events]
        assert batch["key"].to_pylist() == [e.key for e in events]
        assert batch["value"].to_pylist() == [e.value for e in events]
        assert batch["timestamp"].to_pylist() == [e.appended_ms if side.payload_time else e.time_ms for e in events]


def test_an_answer_of_the_index_below_the_range_does_not_count() -> None:
    """The index searches from the start of the log; what was read there says nothing of what is unread."""
    log = log_of(event(0, 10), event(1, 50), event(2, 30), event(3, 40))

    assert log.estimate({0: 45}) == {0: 1}
    assert log.first_at_or_after({0: TimeQuery(45, lo=2, hi=4)}, CEILING_MS) == {0: TimeAnswer(4, 45, False)}


def test_the_index_does_not_look_below_what_retention_has_left() -> None:
    """The record that reached the time is gone."""
    log = log_of(event(0, 10), event(1, 50), event(2, 30), event(3, 40))
    log.delete_before(0, 2)

    assert log.ends()[0].start == 2
    assert log.first_at_or_after({0: TimeQuery(45, lo=2, hi=4)}, CEILING_MS) == {0: TimeAnswer(4, 45, False)}


@pytest.mark.parametrize(
    "poison",
    [
        event(1, CEILING_MS + 1),
        event(1, 500, EventKind.MARKER),
        event(1, 500, EventKind.ABORTED),
    ],
    ids=["future", "marker", "aborted"],
)
def test_a_poisoned_index_answers_wrongly_and_is_not_believed(poison: Event) -> None:
    """The estimate is the poisoned offset for every later time; the checked answer comes from a search."""
    log = log_of(event(0, 10), poison, event(2, 20), event(3, 30), event(4, 40))

    assert log.estimate({0: 35}) == {0: 1}
    assert log.first_at_or_after({0: TimeQuery(35, lo=0, hi=5, margin_ms=5)}, CEILING_MS) == {
        0: TimeAnswer(3, 30, True)
    }
    assert log.newest({0: 5}, CEILING_MS) == {0: 40}


def test_a_gap_does_not_answer() -> None:
    """Compaction removed the offset, from the index as well."""
    log = log_of(event(0, 10), event(1, 30, EventKind.GAP), event(2, 30))

    assert log.estimate({0: 20}) == {0: 2}


def test_the_estimate_is_the_high_watermark_where_no_record_reaches_the_time() -> None:
    """As `offsets_for_times` gives the end."""
    assert log_of(event(0, 10), event(1, 20)).estimate({0: 21}) == {0: 2}


def test_payload_times_are_unknown_to_the_index() -> None:
    """It knows appends; the answer is found among single records, with the margin taken off."""
    log = log_of(*(event(i, 10 * i, at_ms=100 + i) for i in range(5)), now_ms=200, exact_index=False)

    assert log.estimate({0: 20}) == {0: 0}
    assert log.estimate({0: 103}) == {0: 3}
    assert log.first_at_or_after({0: TimeQuery(35, lo=1, hi=5, margin_ms=5)}, CEILING_MS) == {
        0: TimeAnswer(3, 30, True)
    }


def test_the_search_finds_some_crossing_not_the_first() -> None:
    """With a margin below the disorder even a wrong one: that is what the margin is for."""
    times = (0, 90, 10, 20, 30, 95, 96)
    log = log_of(*(event(i, t) for i, t in enumerate(times)), exact_index=False)

    without = log.first_at_or_after({0: TimeQuery(90, lo=0, hi=7)}, CEILING_MS)[0]
    with_margin = log.first_at_or_after({0: TimeQuery(90, lo=0, hi=7, margin_ms=80)}, CEILING_MS)[0]

    assert without == TimeAnswer(5, 90, True)
    assert with_margin.offset <= 2


def test_an_open_transaction_hides_what_follows_until_its_marker() -> None:
    """The last stable offset stays below the high watermark, and the index knows what cannot be read yet."""
    log = log_of(
        event(0, 10),
        event(1, 20, at_ms=1, readable_ms=9),
        event(2, 30, at_ms=2, readable_ms=9),
        event(3, 9, EventKind.MARKER, at_ms=9),
        now_ms=2,
    )

    assert log.ends() == {0: Ends(start=0, stable=1, high=3, epoch=0)}
    assert log.estimate({0: 25}) == {0: 2}
    for hi in (1, 3):
        query = TimeQuery(15, lo=0, hi=hi)
        assert log.first_at_or_after({0: query}, CEILING_MS) == {0: TimeAnswer(hi, 15, False)}
    assert log.newest({0: 3}, CEILING_MS) == {0: 10}
    with pytest.raises(ValueError, match=r"end: 2 .* 1 of t-0"):
        log.fetch(0, 0, 2)

    log.clock.advance(7)

    assert log.ends() == {0: Ends(start=0, stable=4, high=4, epoch=0)}
    assert log.fetch(0, 0, 4)["offset"].to_pylist() == [0, 1, 2]


def test_a_range_below_the_start_is_refused() -> None:
    """Nothing that retention took is skipped silently."""
    log = log_of(event(0, 10), event(1, 20))
    log.delete_before(0, 1)

    with pytest.raises(OffsetOutOfRange, match="retention has deleted it"):
        log.fetch(0, 0, 2)


def test_an_empty_range_is_an_empty_batch() -> None:
    """With the schema of a full one."""
    batch: pa.RecordBatch = log_of().fetch(0, 0, 0)

    assert (batch.num_rows, batch.schema) == (0, RECORDS)


def test_calls_fail_on_demand_and_then_no_more() -> None:
    """Any call of the Protocol, as with a broker that is unreachable for a while."""
    log: SimulatedLog = log_of(event(0, 10))
    protocol: TopicLog = log

    log.fail_next(3)

    for call in (protocol.ends, protocol.topic_id, lambda: log.fetch(0, 0, 1)):
        with pytest.raises(KafkaUnavailable):
            call()
    assert protocol.partition_count() == 1


def test_a_clock_never_goes_back() -> None:
    """It only advances, never by a negative amount."""
    clock = Clock(5)

    assert clock.advance(3) == clock.now_ms == 8
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)
