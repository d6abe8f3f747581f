"""How a job is: the expected answer of every rule."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.watch.life.moment import JobState, Phase, TopicLag, WaitingFor
from deploy.watch.life.rule import (
    SPARK_STARTS,
    STARTS_WITHIN_MS,
    JobFacts,
    Life,
    Progress,
    RecordedRun,
    State,
    all_ready,
    life,
    progress,
    seen_from_outside,
)
from teacup.base.errors import ExitCode

NOW_MS = 1_788_004_800_000
KNOWN = TopicLag(NOW_MS, {"clicks": 0})
SLOW = WaitingFor("data_delay", NOW_MS - 100_000, "is the feeder running?")
SOON = WaitingFor("data_delay", NOW_MS - 60_000, "is the feeder running?")
CLOCK = WaitingFor("clock", NOW_MS - 900_000, "left may go as time passes")
DOWN = "the brokers do not answer: no broker answered"


def facts(phase: Phase | None = Phase.RUNNING, code: int | None = None, **more: Any) -> JobFacts:
    of_job = {key: more.pop(key) for key in ("error", "restart_ms", "ends") if key in more}
    now = None if phase is None else JobState(at_ms=NOW_MS, phase=phase, **{"lag": KNOWN, **more})
    return JobFacts(now_ms=NOW_MS, now=now, unreachable=more.get("unreachable", ""), code=code, **of_job)


@pytest.mark.parametrize(
    ("given", "expected", "ready", "well"),
    [
        (facts(None), Life(State.STARTING, "", SPARK_STARTS), False, True),
        (facts(Phase.STARTING), Life(State.STARTING, "", SPARK_STARTS), False, True),
        (
            facts(Phase.CONNECTING, unreachable="no broker answered"),
            Life(State.STARTING, "brokers", DOWN),
            False,
            False,
        ),
        (facts(Phase.STANDBY, behind="process 17"), Life(State.STANDBY, "", "waits for process 17"), True, True),
        (
            facts(Phase.STANDBY, behind="process 17", no_executor_since_ms=NOW_MS),
            Life(
                State.STANDBY,
                "executors",
                "waits for process 17; no executor since 2026-08-29T12:00:00.000Z: Spark's master gives this job none",
                NOW_MS,
            ),
            False,
            False,
        ),
        (facts(), Life(State.RUNNING), True, True),
        (facts(lag=None), Life(State.RUNNING, "", "how much is left to read is not known"), True, True),
        (facts(waiting=SOON), Life(State.RUNNING, "data_delay", SOON.text, SOON.since_ms), True, True),
        (facts(waiting=CLOCK), Life(State.RUNNING, "clock", CLOCK.text, CLOCK.since_ms), True, True),
        (facts(waiting=SLOW), Life(State.HELD, "data_delay", SLOW.text, SLOW.since_ms), True, True),
        (facts(unreachable="no broker answered"), Life(State.HELD, "brokers", DOWN), False, False),
        (
            facts(no_executor_since_ms=NOW_MS, waiting=SLOW, lag=None),
            Life(
                State.HELD,
                "executors",
                "no executor since 2026-08-29T12:00:00.000Z: Spark's master gives this job none",
                NOW_MS,
            ),
            False,
            False,
        ),
        (facts(unreachable="no broker answered", waiting=SLOW), Life(State.HELD, "brokers", DOWN), False, False),
        (
            facts(Phase.STOPPING, unreachable="no broker answered"),
            Life(State.STOPPING, "", "the batch in progress is finished first"),
            False,
            True,
        ),
        (facts(code=0), Life(State.STOPPED, code=0), False, False),
        (facts(code=0, ends=True), Life(State.DONE, code=0), False, True),
        (
            facts(code=14, ends=True),
            Life(State.STOPPED, text="before all was read: start it again", code=14),
            False,
            False,
        ),
        (facts(code=8, error="not JSON"), Life(State.FAILED, "", "exit code 8: not JSON", code=8), False, False),
        (
            facts(code=3),
            Life(State.FAILED, "", f"exit code 3: {ExitCode.DATA_LOSS.meaning}", code=3),
            False,
            False,
        ),
        (
            facts(code=4, error="no broker answered", restart_ms=NOW_MS + 2_000, unreachable="no broker answered"),
            Life(
                State.RESTARTING,
                "",
                "is started again at 2026-08-29T12:00:02.000Z; exit code 4: no broker answered",
                code=4,
            ),
            False,
            False,
        ),
    ],
)
def test_the_first_rule_that_applies_says_how_it_is(given: JobFacts, expected: Life, ready: bool, well: bool) -> None:
    """Whether it is ready, and well, follows."""
    found = life(given)

    assert (found, found.ready, found.well) == (expected, ready, well)


@pytest.mark.parametrize(
    ("left", "allowed", "quiet_ms", "full", "expected"),
    [
        (0, 1, 0, False, Progress.LIVE),
        (0, 1, 29_999, True, Progress.LIVE),
        (0, 1, 30_000, False, Progress.IDLE),
        (1, 1, 30_000, False, Progress.IDLE),
        (2, 1, 30_000, False, Progress.CATCHING_UP),
        (1, 1, 0, True, Progress.CATCHING_UP),
    ],
)
def test_a_job_that_runs_is_live_idle_or_catches_up(
    left: int, allowed: float, quiet_ms: int, full: bool, expected: Progress
) -> None:
    assert progress(left, allowed, quiet_ms, full=full) is expected


RUNS = Life(State.RUNNING)


@pytest.mark.parametrize(
    ("held", "record", "has_batch", "expected"),
    [
        (False, None, False, State.NEW),
        (False, None, True, State.STOPPED),
        (None, None, True, State.UNKNOWN),
        (True, None, False, State.STARTING),
        (True, RecordedRun(), True, State.STARTING),
        (True, RecordedRun(life=RUNS), True, State.RUNNING),
        (True, RecordedRun(life=RUNS, code=0), True, State.STARTING),
        (True, RecordedRun(life=Life(State.HELD, "brokers")), True, State.HELD),
        (False, RecordedRun(life=RUNS), True, State.FAILED),
        (None, RecordedRun(life=RUNS), True, State.UNKNOWN),
        (False, RecordedRun(life=RUNS, code=0), True, State.STOPPED),
        (None, RecordedRun(life=RUNS, code=0), True, State.STOPPED),
        (False, RecordedRun(life=RUNS, code=3), True, State.FAILED),
        (False, RecordedRun(life=RUNS, code=4, restart_ms=NOW_MS + 1), True, State.RESTARTING),
        (False, RecordedRun(life=RUNS, code=4, restart_ms=NOW_MS - STARTS_WITHIN_MS + 1), True, State.RESTARTING),
        (False, RecordedRun(life=RUNS, code=4, restart_ms=NOW_MS - STARTS_WITHIN_MS), True, State.FAILED),
    ],
)
def test_from_outside_lock_and_record_say_how_a_job_is(
    held: bool | None, record: RecordedRun | None, has_batch: bool, expected: State
) -> None:
    """A start that was announced and has not come is a failure."""
    found = seen_from_outside(record, held=held, has_batch=has_batch, ends=False, now_ms=NOW_MS)

    assert found.state is expected


def test_one_that_ends_by_itself_is_done() -> None:
    found = seen_from_outside(RecordedRun(code=0), held=False, has_batch=True, ends=True, now_ms=NOW_MS)

    assert (found.state, found.well) == (State.DONE, True)


STARTS, LACKS = Life(State.STARTING), Life(State.STARTING, "brokers")
FAILED, HELD = Life(State.FAILED, code=3), Life(State.HELD, "brokers")


@pytest.mark.parametrize(
    ("lives", "was_ready", "expected"),
    [
        ([RUNS, RUNS], False, True),
        ([RUNS, STARTS], False, False),
        ([RUNS, STARTS], True, True),
        ([RUNS, LACKS], False, True),
        ([RUNS, FAILED], False, True),
        ([HELD, FAILED], True, False),
        ([], True, False),
    ],
)
def test_a_process_is_ready_if_it_does_what_it_can(lives: list[Life], was_ready: bool, expected: bool) -> None:
    assert all_ready(lives, was_ready=was_ready) is expected


def test_a_line_says_since_when_once() -> None:
    """Some texts say it."""
    assert Life(State.HELD, "x", "a\n  b", 0).line == "held; waits since 1970-01-01T00:00:00.000Z: a b"
    assert Life(State.HELD, "x", "holds since 1970-01-01T00:00:00.000Z", 0).line.count("1970") == 1
