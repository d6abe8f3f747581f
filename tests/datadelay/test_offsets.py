"""Where a time begins in each partition: for any history, and the term for every case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from datadelay.offsets import OffsetKind, offsets_at
from joins.spec import JoinSpec, Side
from joins.testing.history import Event, EventKind, TopicHistory
from joins.testing.log import Clock, SimulatedLog
from joins.testing.strategies import BASE_MS, histories, specs
from teacup.kafka.log.topic_log import TimeAnswer, TimeQuery

NOW_MS = BASE_MS + 10_000_000


def log_of(*partitions: list[int], start: dict[int, int] | None = None, exact_index: bool = True) -> SimulatedLog:
    """Returns the log of a topic with these times, all readable."""
    events = tuple(
        tuple(
            Event(partition=p, offset=o, time_ms=at, key=None, value=b"{}", appended_ms=BASE_MS, readable_ms=BASE_MS)
            for o, at in enumerate(times)
        )
        for p, times in enumerate(partitions)
    )
    log = SimulatedLog(TopicHistory("t", events), Clock(NOW_MS), exact_index=exact_index)
    for partition, offset in (start or {}).items():
        log.delete_before(partition, offset)
    return log


def test_each_case_has_its_word_and_its_offset() -> None:
    """Found, at the log's start, past the end, empty: each has its explicit rule."""
    log = log_of(
        [BASE_MS, BASE_MS + 10, BASE_MS + 20],
        [BASE_MS, BASE_MS + 10, BASE_MS + 20],
        [BASE_MS, BASE_MS + 5],
        [],
        [BASE_MS + 50],
        start={1: 2},
    )

    found = offsets_at(log, BASE_MS + 10, now_ms=NOW_MS, disorder_ms=0)

    assert [(answer.offset, answer.kind) for answer in found] == [
        (1, OffsetKind.RECORD),
        (2, OffsetKind.LOG_START),
        (2, OffsetKind.PAST_END),
        (0, OffsetKind.EMPTY),
        (0, OffsetKind.RECORD),
    ]
    assert [(answer.before_ms, answer.at_ms) for answer in found] == [
        (BASE_MS, BASE_MS + 10),
        (None, BASE_MS + 20),
        (BASE_MS + 5, None),
        (None, None),
        (None, BASE_MS + 50),
    ]
    assert all(answer.verified for answer in found)


class Wrong(SimulatedLog):
    """A log whose answers are some offsets too late, or too early."""

    off_by = 0

    def first_at_or_after(
        self, queries: Mapping[int, TimeQuery], ceiling_ms: int, *, sure: bool = False
    ) -> dict[int, TimeAnswer]:
        answers = SimulatedLog.first_at_or_after(self, queries, ceiling_ms)
        return {p: replace(answer, offset=answer.offset + self.off_by) for p, answer in answers.items()}


@pytest.mark.parametrize(("off_by", "verified"), [(0, True), (1, False), (-1, False)])
def test_an_answer_that_its_neighbours_contradict_is_not_verified(off_by: int, verified: bool) -> None:
    """The record before has already reached the time, or the one there has not."""
    right = log_of([BASE_MS, BASE_MS + 10, BASE_MS + 20, BASE_MS + 30])
    wrong = Wrong(right.history, right.clock, outliers=0)
    wrong.off_by = off_by

    found = offsets_at(wrong, BASE_MS + 20, now_ms=NOW_MS, disorder_ms=0)

    assert (found[0].offset, found[0].verified) == (2 + off_by, verified)


def test_an_answer_that_a_block_further_back_contradicts_is_not_verified() -> None:
    """Records are further out of order than stated: a consumer set by it would skip some of the time or later."""
    displaced = [BASE_MS + at for at in (*range(625, 1_000), *range(625))]

    found = offsets_at(log_of(displaced, exact_index=False), BASE_MS + 240, now_ms=NOW_MS, disorder_ms=0)

    assert (found[0].offset, found[0].verified) == (615, False)


def test_offsets_without_a_time_are_not_called_empty() -> None:
    """A wrong path to the time must not look like a partition in which nothing is lost."""
    log = log_of([NOW_MS + 3_600_000] * 3, [])  # from the future: such records do not count

    found = offsets_at(log, BASE_MS, now_ms=NOW_MS)

    assert [(answer.offset, answer.kind) for answer in found] == [(3, OffsetKind.NO_TIME), (0, OffsetKind.EMPTY)]


def test_progress_is_reported() -> None:
    """A search over a large topic takes a while."""
    lines: list[str] = []

    offsets_at(log_of([BASE_MS]), BASE_MS, now_ms=NOW_MS, progress=lines.append)

    assert [line.split(":")[1].split()[0] for line in lines] == ["listing", "looking", "reading"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[JoinSpec, TopicHistory, int, int]:
    spec = draw(specs())
    history = draw(histories(spec)).left
    moments = [record.readable_ms for record in history.events()] or [BASE_MS]
    times = [record.time_ms for record in history.records()] or [BASE_MS]
    return (
        spec,
        history,
        draw(st.sampled_from(moments)),
        draw(st.sampled_from(times)) + draw(st.sampled_from((-1, 0, 1))),
    )


@given(cases())
def test_no_readable_record_of_the_time_lies_before_the_offset(case: tuple[JoinSpec, TopicHistory, int, int]) -> None:
    """Going back to T reads every record from T on and, with an exact index, none before the first of them."""
    spec, history, now_ms, time_ms = case
    side: Side = spec.left
    log = SimulatedLog(history, Clock(now_ms), exact_index=not side.payload_time)
    ceiling_ms = now_ms + spec.max_future_skew_ms

    found = offsets_at(
        log, time_ms, now_ms=now_ms, disorder_ms=side.disorder_ms, max_future_skew_ms=spec.max_future_skew_ms
    )

    for answer in found:
        readable = [
            record
            for record in history.partitions[answer.partition][: answer.ends.stable]
            if record.kind is EventKind.DATA and record.time_ms <= ceiling_ms
        ]
        assert all(record.time_ms < time_ms for record in readable if record.offset < answer.offset)
        assert answer.verified
        if answer.kind in (OffsetKind.PAST_END, OffsetKind.NO_TIME, OffsetKind.EMPTY):
            assert answer.offset == answer.ends.stable
        elif answer.at_ms is not None:
            assert answer.at_ms >= time_ms - side.disorder_ms
        event(answer.kind)
