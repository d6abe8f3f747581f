"""The last hour of a job: sums that add up, bounded memory, and what state a job is in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.jobs.dedup import DedupReport
from deploy.watch.board import BoardListeners
from deploy.watch.hour.history import FIGURES, KEPT_MS, STEP_MS, Together, latencies
from deploy.watch.hour.wait_curve import BatchWaits
from deploy.watch.life.moment import JobState, Phase, TopicLag
from deploy.watch.listener import Listeners
from joins.read.waits import WaitSample
from teacup.base.errors import ExitCode
from tests.deploy.watch.hours import ABOUT, NOON_MS, MadeUp


def report(number: int = 1, read: int = 0, seconds: float = 0.1, known: int = 0) -> DedupReport:
    counts = {
        "read": read,
        "written": read,
        "dropped": 0,
        "without_id": 0,
        "known": known,
        "forgotten": 0,
        "skipped": 0,
    }
    return DedupReport(number, seconds, counts)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 700_000), st.integers(0, 1_000), st.integers(1, 100)), max_size=40))
def test_figures_of_a_bin_are_those_of_its_batches(batches: list[tuple[int, int, int]]) -> None:
    """Against a brute force over all batches: sums, last values, largest values; older than an hour is gone."""
    made = MadeUp(ABOUT)
    told = []
    for number, (passed_ms, read, known) in enumerate(batches):
        made.now_ms += passed_ms
        made.hour.batch(report(number, read, seconds=known / 8, known=known))
        told.append((made.now_ms // STEP_MS * STEP_MS, read, known))

    document = made.hour.document()

    points = document["points"]
    wanted = sorted({at for at, *_ in told if at >= document["from_ms"] - STEP_MS})
    assert points["at_ms"] == wanted
    for i, at_ms in enumerate(wanted):
        inside = [each for each in told if each[0] == at_ms]
        assert points["records"][i] == sum(read for _, read, _ in inside)
        assert points["known"][i] == inside[-1][2]
        assert points["longest"][i] == max(known for *_, known in inside) / 8
    assert document["totals"].get("records", 0) == sum(read for _, read, _ in told)
    json.loads(made.hour.json())


def test_memory_is_bounded_however_long_a_job_runs() -> None:
    """Two hours, each batch with another partition that holds it."""
    made = MadeUp()
    for n in range(720):
        made.now_ms += 10_000
        made.hour.batch(report(n, 10))
        for bucket in range(3):
            made.shown.moment(JobState(at_ms=made.now_ms, phase=Phase.RUNNING, unreachable=f"{n} {bucket}"))

    document = made.hour.document()

    assert len(document["points"]["at_ms"]) <= KEPT_MS // STEP_MS + 1
    assert all(len(column) == len(document["points"]["at_ms"]) for column in document["points"].values())
    assert document["held"][0][0] >= made.now_ms - KEPT_MS - STEP_MS
    assert len(made.hour.json()) < 100_000


def test_who_holds_the_join_is_whoever_did_most_often() -> None:
    """In ten seconds; equal neighbours are one stretch."""
    made = MadeUp()
    made.lives(60)

    held = made.hour.document()["held"]

    assert held[0][0] == NOON_MS
    assert all(begin < end for begin, end, _ in held)
    assert all(before[1] <= after[0] for before, after in pairwise(held))
    assert {who for *_, who in held} <= {"all alike", *(f"impressions-{p}" for p in range(4))}


def test_a_warning_that_comes_again_is_one() -> None:
    """With the worst that was seen, and whether it is over."""
    made = MadeUp()
    made.lives(6, warning="give another `id`")
    began = {"text": "give another `id`", "first_ms": NOON_MS + 2_000, "last_ms": NOON_MS + 6_000, "times": 3}

    assert made.hour.document()["warnings"] == [{**began, "over": False}]
    made.now_ms += 600_000
    made.lives(2)
    assert made.hour.document()["warnings"] == [{**began, "over": True}]


def test_the_largest_disorder_of_the_hour_is_known() -> None:
    """Not that of the last batch, which a warning need not be about."""
    made = MadeUp()
    made.lives(600)

    points = made.hour.document()["points"]

    assert 3_900 < max(ms for ms in points["disorder_right"] if ms is not None) < 4_000


@pytest.mark.parametrize(
    ("left", "passed_ms", "state"),
    [(0, 0, "live"), (0, 29_999, "live"), (0, 30_000, "idle"), (100, 0, "live"), (101, 0, "catching up")],
)
def test_a_job_is_idle_without_records_and_catches_up_with_many(left: int, passed_ms: int, state: str) -> None:
    """It has read 100 records in the last ten seconds, and is no join."""
    made = MadeUp(replace(ABOUT, settings={}))
    made.hour.batch(report(read=100))
    made.now_ms += passed_ms
    made.moment(lag=TopicLag(made.now_ms, {"clicks": left}))

    assert made.hour.document()["progress"] == state


def test_a_join_catches_up_while_its_batches_are_full() -> None:
    """Left that waits for right is unread, too: 5,000 records are what comes in a minute."""
    made = MadeUp()
    made.hour.batch(report(read=100))
    made.moment(lag=TopicLag(made.now_ms, {"clicks": 5_000}))
    assert made.hour.document()["progress"] == "live"
    made.moment(lag=TopicLag(made.now_ms, {"clicks": 6_001}))
    assert made.hour.document()["progress"] == "catching up"
    made.moment(lag=TopicLag(made.now_ms, {"clicks": 1}))
    made.hour.batch(report(read=500_000))
    assert made.hour.document()["progress"] == "catching up"
    made.hour.batch(report(read=499_999))
    assert made.hour.document()["progress"] == "live"


def test_left_that_waits_for_the_clock_is_no_held_job() -> None:
    """It may go by itself, after the producer delay; and a short wait is usual."""
    made = MadeUp()
    made.lives(10)
    made.waits("clock", "left may go as time passes")
    assert made.hour.document()["progress"] == "live"
    made.waits("data_delay", "is the feeder running?", passed_ms=60_000)
    assert made.hour.document()["progress"] == "live", "a collector runs once a minute"
    made.waits("wrong_clock", "the clock is wrong", passed_ms=0)
    assert made.hour.document()["state"] == "held"
    made.waits("data_delay", "is the feeder running?")
    assert (made.hour.document()["state"], made.hour.document()["says"]) == ("held", "is the feeder running?")


def test_since_when_it_is_so_is_when_that_changed() -> None:
    """Not when somebody asked first, which is a minute later here."""
    made = MadeUp()
    changes: list[tuple[str, Callable[[], None]]] = [
        ("running", made.moment),
        ("failed", lambda: made.shown.ended(ExitCode.FAILED)),
        ("restarting", lambda: made.shown.restarts(made.now_ms + 3_600_000)),
        ("starting", lambda: made.shown.opening(ABOUT)),
        ("failed", lambda: made.shown.cannot_start(ExitCode.BAD_JOB_FILE, "typo: unknown key")),
    ]
    for state, change in changes:
        change()
        changed_ms = made.now_ms
        made.now_ms += 60_000
        now = made.hour.now()
        assert (now["state"], now["since_ms"]) == (state, changed_ms)


def test_it_is_told_like_any_listener() -> None:
    """And fails for no report that a job gives."""
    shown = BoardListeners(ABOUT.name)
    hour, listeners = shown.hour, Listeners(shown)
    assert hour.document()["job"] is None

    listeners.opening(ABOUT)
    listeners.moment(JobState(at_ms=NOON_MS, phase=Phase.RUNNING))
    listeners.batch(report(read=5))
    listeners.ended(ExitCode.DONE)

    document = hour.document()
    assert document["job"]["name"] == ABOUT.name
    assert (document["state"], document["totals"]["records"]) == ("stopped", 5)
    assert set(FIGURES.values()) == set(Together)


def test_latency_is_of_half_and_of_nearly_all_rows() -> None:
    """Of the sampled rows, each as often as it stands for; unknown while a backlog is read."""
    pairs = [(10_000 - 10 * n, 0, 0, n, 1) for n in range(100)]
    waits = BatchWaits(0, 0, [WaitSample(0, pairs=pairs)], {}, 100, 100, follows=True)

    found = latencies(waits, 11_000)
    heavy = latencies(replace(waits, samples=[WaitSample(0, pairs=[*pairs, (5_000, 0, 0, 100, 900)])]), 11_000)

    assert 1_480 <= found["latency_ms"] <= 1_500
    assert 1_970 <= found["latency_p99_ms"] <= 1_990
    assert heavy == {"latency_ms": 6_000, "latency_p99_ms": 6_000}
    assert latencies(replace(waits, follows=False), 11_000) == {}
