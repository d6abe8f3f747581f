"""The drawn histories keep to the description that they are drawn for, and reach the corners that matter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from datadelay.watermark import Idle
from joins.spec import JoinSpec, Right, Side
from joins.testing.history import Event, EventKind, History, TopicHistory
from joins.testing.oracle import join, unjoined
from joins.testing.play import Admit, Advance, Restart, Retry, WrongClock
from joins.testing.strategies import FUTURE_MS, cuts, histories, specs

DRAWN = specs().flatmap(lambda spec: st.tuples(st.just(spec), histories(spec)))
CO_PARTITIONED = specs().flatmap(lambda spec: st.tuples(st.just(spec), histories(spec, co_partitioned=True)))
SEARCH = settings(max_examples=5_000, database=None, phases=[Phase.generate], deadline=None, derandomize=True)

SPEC = JoinSpec(
    name="fixed",
    left=Side(topic="left", disorder_ms=7),
    right=Right(topic="right", disorder_ms=5, before_ms=20, after_ms=10),
    producer_delay_ms=100,
)


def ceiling_ms(history: History) -> int:
    return history.end_ms + FUTURE_MS // 2


def records(history: History) -> list[Event]:
    return [*history.left.records(), *history.right.records()]


@given(DRAWN)
def test_histories_keep_to_disorder_and_producer_delay(drawn: tuple[JoinSpec, History]) -> None:
    """Per partition, records from the future left out; a held topic may have any producer delay."""
    spec, history = drawn

    for topic, side in ((history.left, spec.left), (history.right, spec.right)):
        delay_ms = None if spec.idle is Idle.HOLD else spec.producer_delay_ms
        kept = topic.within(disorder_ms=side.disorder_ms, producer_delay_ms=delay_ms, ceiling_ms=ceiling_ms(history))
        assert all(kept)


@given(DRAWN)
def test_a_record_is_either_far_in_the_future_or_plausible(drawn: tuple[JoinSpec, History]) -> None:
    """No clock of a run decides which: nothing lies between the skew and ten times the skew."""
    spec, history = drawn

    for event in records(history):
        ahead_ms = event.time_ms - event.appended_ms
        assert ahead_ms <= max(spec.left.disorder_ms, spec.right.disorder_ms) or (
            event.time_ms > ceiling_ms(history) + 10 * spec.max_future_skew_ms
        )


@given(CO_PARTITIONED)
def test_a_key_is_in_one_partition_of_co_partitioned_topics(drawn: tuple[JoinSpec, History]) -> None:
    """The same one on both sides, of equally many."""
    _, history = drawn

    homes: dict[bytes, set[int]] = {}
    for event in records(history):
        if event.key is not None:
            homes.setdefault(event.key, set()).add(event.partition)

    assert len(history.left.partitions) == len(history.right.partitions)
    assert all(len(partitions) == 1 for partitions in homes.values())


@given(DRAWN)
def test_values_carry_the_time_where_the_side_says_so(drawn: tuple[JoinSpec, History]) -> None:
    """As JSON under `time`, in every record."""
    spec, history = drawn

    for topic, side in ((history.left, spec.left), (history.right, spec.right)):
        if side.payload_time:
            for event in topic.records():
                assert event.value is not None
                assert json.loads(event.value)["time"] == event.time_ms


CORNERS = {
    "a matched row": lambda h: any(row.outcome == "matched" for row in join(h, SPEC)),
    "a row without a candidate": lambda h: any(row.reason == "no_candidate" for row in join(h, SPEC)),
    "a left null key": lambda h: any(row.reason == "null_key" for row in join(h, SPEC)),
    "an unjoined right record": lambda h: bool(unjoined(h, SPEC, join(h, SPEC))),
    "the whole disorder used": lambda h: SPEC.left.disorder_ms in h.left.disorder_ms(ceiling_ms(h)),
    "the whole producer delay used": lambda h: 100 in h.right.producer_delay_ms(ceiling_ms(h)),
    "a null value": lambda h: any(event.value is None for event in records(h)),
    "a record from the future": lambda h: any(event.time_ms > ceiling_ms(h) for event in records(h)),
    "an aborted record": lambda h: any(event.kind is EventKind.ABORTED for event in h.right.events()),
    "a compaction gap": lambda h: any(event.kind is EventKind.GAP for event in h.left.events()),
    "a record hidden by an open transaction": lambda h: any(e.readable_ms > e.appended_ms for e in records(h)),
    "an empty partition beside a full one": lambda h: () in h.left.partitions and max(map(len, h.left.partitions)) > 5,
    "an empty topic beside a full one": lambda h: not any(h.right.partitions) and any(h.left.partitions),
    "a tie in time": lambda h: (
        len({(e.key, e.time_ms) for e in h.right.records() if e.key}) < sum(1 for e in h.right.records() if e.key) - 2
    ),
    "a pause": lambda h: any(b.appended_ms - a.appended_ms >= 300 for p in h.right.partitions for a, b in pairwise(p)),
    "left far ahead": lambda h: (
        any(h.left.partitions)
        and any(h.right.partitions)
        and min(e.time_ms for e in h.left.events()) > max(e.time_ms for e in h.right.events()) + 10_000
    ),
    "a backlog": lambda h: bool(records(h)) and h.start_ms > h.end_ms + 1_000,
    "a live run": lambda h: bool(records(h)) and h.start_ms < h.end_ms,
}


def test_histories_reach_every_corner() -> None:
    """Each situation that a join must survive is really drawn, not only allowed."""
    assert not never_drawn(histories(SPEC), CORNERS)


def test_cuts_hold_every_kind_of_step() -> None:
    """A run is cut by batches, by time, and by what goes wrong."""
    kinds = (Admit, Advance, Restart, Retry, WrongClock)

    def with_a(kind: type) -> Callable[[list[object]], bool]:
        return lambda steps: any(isinstance(step, kind) for step in steps)

    assert not never_drawn(cuts(), {kind.__name__: with_a(kind) for kind in kinds})


def never_drawn(strategy: st.SearchStrategy[Any], corners: Mapping[str, Callable[[Any], bool]]) -> set[str]:
    """Those that no example reaches."""
    missing = {*corners}

    def all_reached(drawn: Any) -> bool:
        missing.difference_update({corner for corner in missing if corners[corner](drawn)})
        return not missing

    with suppress(NoSuchExample):
        find(strategy, all_reached, settings=SEARCH)
    return missing


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.data())
def test_max_steps_bounds_a_partition(data: st.DataObject) -> None:
    """Two offsets per step at most: the record, and a marker that closes its transaction."""
    history = data.draw(histories(SPEC, max_steps=3))

    assert all(len(events) <= 6 for events in (*history.left.partitions, *history.right.partitions))


def test_a_counter_example_shrinks_to_what_matters() -> None:
    """A match needs two records and nothing else."""
    found = find(
        histories(SPEC),
        CORNERS["a matched row"],
        settings=settings(max_examples=5_000, database=None, deadline=None, derandomize=True),
    )

    assert len([*found.left.events(), *found.right.events()]) == 2


def _event(offset: int, appended_ms: int, readable_ms: int) -> Event:
    return Event(
        partition=0,
        offset=offset,
        time_ms=0,
        key=None,
        value=None,
        appended_ms=appended_ms,
        readable_ms=readable_ms,
    )


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((_event(1, 0, 0),), "number partitions and offsets from 0"),
        ((_event(0, 5, 4),), "readable_ms 4 is below appended_ms 5"),
        ((_event(0, 5, 9), _event(1, 6, 8)), "last stable offset never goes back"),
        ((_event(0, 5, 9), _event(1, 4, 9)), "a log only grows"),
    ],
)
def test_a_history_that_no_log_can_have_is_refused(events: tuple[Event, ...], message: str) -> None:
    """Holes in the numbers, or clocks that go back, would make the simulated log wrong."""
    with pytest.raises(ValueError, match=message):
        TopicHistory("broken", (events,))
