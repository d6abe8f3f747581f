"""The parts of the runner that need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from deploy.checkpoint.run_record import RunRecord, last_run
from deploy.jobs import runner
from deploy.jobs.runner import connect, state_of, with_lock
from deploy.watch.backlog import Backlog
from deploy.watch.life.moment import JobState, Phase, WaitingFor
from teacup.base.errors import ExitCode
from teacup.spark.cluster import Executors
from teacup.spark.planner_notes import BROKERS, PlannerNote


def test_who_listens_knows_that_no_broker_answers_until_one_does() -> None:
    """From the second attempt on: the first one may succeed."""
    told: list[JobState] = []

    def wait(stopped: Callable[[], bool]) -> None:
        assert not any(stopped() for _ in range(3))

    connect(wait, Mock(moment=told.append), lambda: False)

    assert [(state.phase, bool(state.unreachable)) for state in told] == [
        (Phase.CONNECTING, False),
        (Phase.CONNECTING, True),
        (Phase.CONNECTING, True),
        (Phase.STARTING, False),
    ]


def test_brokers_that_hold_the_planner_are_unreachable() -> None:
    """As it notes; any other reason is only waited for."""
    backlog = Backlog([], dict, {})  # that has not looked
    answers = PlannerNote(0.1, BROKERS, 5, "no broker answered")
    unread = PlannerNote(0.1, "unread", 5, "right is late", {"unread": 3.0})
    away, late = (state_of(Phase.RUNNING, backlog, note, Executors(2)) for note in (answers, unread))

    assert (away.stuck, late.stuck) == ("the brokers do not answer", "")
    assert (away.unreachable, away.waiting) == ("no broker answered", WaitingFor(BROKERS, 5, "no broker answered"))
    assert (late.unreachable, late.waited_s, late.plan_s) == ("", {"unread": 3.0}, 0.1)


def test_a_second_signal_while_the_run_record_is_written_changes_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that hangs makes people press Ctrl-C again."""

    def interrupted(record: RunRecord, code: ExitCode, restart_ms: int | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RunRecord, "end", interrupted)

    assert with_lock(str(tmp_path), lambda _: ExitCode.DATA_LOSS, ExitCode.DONE) is ExitCode.DATA_LOSS
    assert with_lock(str(tmp_path), lambda _: ExitCode.DONE, ExitCode.DONE) is ExitCode.DONE


def test_a_second_signal_while_the_lock_is_released_changes_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is written by then."""

    @contextmanager
    def slow(checkpoint: str) -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "checkpoint_lock", slow)

    assert with_lock(str(tmp_path), lambda _: ExitCode.DATA_LOSS, ExitCode.DONE) is ExitCode.DATA_LOSS
    run = last_run(str(tmp_path))
    assert run is not None
    assert run.code == ExitCode.DATA_LOSS
