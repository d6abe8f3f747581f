"""One port for several jobs, over real HTTP."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from deploy.jobfile.job import MetricsAt
from deploy.watch.board import Board
from deploy.watch.life.moment import Phase, TopicLag
from teacup.base.errors import ExitCode
from teacup.base.logs import of_job
from tests.deploy.watch.reports import ABOUT, Batch
from tests.deploy.watch.served import asked, one_of_each, state


@pytest.fixture
def board() -> Iterator[Board]:
    """With two jobs that run."""
    with closing(Board(MetricsAt(port=0), "2 jobs", many_jobs=True)) as board:
        assert board.server.listens.wait(60)
        for name in ("one", "two"):
            shown = board.show(name)
            shown.opening(replace(ABOUT, name=name))
            shown.moment(state(lag=TopicLag(0, {"left-topic": 3})))
        yield board


def test_each_series_has_the_name_of_its_job_and_each_metric_one_family(board: Board) -> None:
    """Prometheus takes a family once."""
    for name in ("one", "two"):
        board.show(name).batch(Batch(numbers=one_of_each()))

    text = asked(board.server, "/metrics")[1]

    assert text.count("# TYPE teacup_batches_total counter") == 1
    assert 'teacup_batches_total{teacup_job="one"} 2.5' in text
    assert 'teacup_batches_total{teacup_job="two"} 2.5' in text


def test_one_job_that_has_failed_is_not_the_others_matter(board: Board) -> None:
    """The process is ready, and lists all; the job's own probe says that it is not."""
    assert asked(board.server, "/readyz")[:2] == (200, "one: running\ntwo: running\n")

    board.show("two").ended(ExitCode.DATA_LOSS)

    status, says, _ = asked(board.server, "/readyz")
    assert (status, says.splitlines()[0]) == (200, "one: running")
    assert says.splitlines()[1].startswith("two: failed; exit code 3: records that the job still needs are gone")
    assert asked(board.server, "/livez")[0] == 200
    assert [asked(board.server, f"/jobs/{name}/readyz")[0] for name in ("one", "two")] == [200, 503]
    assert asked(board.server, "/jobs/two/livez")[0] == 200

    board.show("one").ended(ExitCode.DATA_LOSS)

    assert asked(board.server, "/readyz")[0] == 503


def test_a_process_is_ready_once_each_job_had_its_chance_and_stays_so(board: Board) -> None:
    """One without brokers does not keep the others; nor does one that comes later, by SIGHUP."""
    board.show("two").opening(replace(ABOUT, name="two"))
    assert asked(board.server, "/readyz")[0] == 503

    board.show("two").moment(state(phase=Phase.CONNECTING, unreachable="no broker answered"))
    assert asked(board.server, "/readyz")[:2] == (
        200,
        "one: running\ntwo: starting; the brokers do not answer: no broker answered\n",
    )

    board.show("three").opening(replace(ABOUT, name="three"))
    assert asked(board.server, "/readyz")[0] == 200
    assert asked(board.server, "/jobs/three/readyz")[0] == 503


def test_why_a_job_has_ended_is_said_everywhere(board: Board) -> None:
    """Its error, exit code, restarts and state: in the list, the probe and the metrics; another's error is not its."""
    shown, log = board.show("two"), logging.getLogger("teacup")
    with of_job("one"):
        log.error("not two's")
    with of_job("two"):
        log.error("left-topic is gone")
    shown.ended(ExitCode.FAILED)
    shown.follower.restarts(1_700_000_000_000)

    (row,) = [row for row in json.loads(asked(board.server, "/v1/jobs")[1])["jobs"] if row["name"] == "two"]
    assert (row["state"], row["exit_code"], row["ready"], row["well"]) == ("restarting", 1, False, False)
    says = "is started again at 2023-11-14T22:13:20.000Z; exit code 1: left-topic is gone"
    assert row["says"] == f"I{says[1:]}"
    assert f"two: restarting; {says}\n" in asked(board.server, "/readyz")[1]

    shown.opening(replace(ABOUT, name="two"))
    text = asked(board.server, "/metrics")[1]
    assert 'teacup_last_exit_code{teacup_job="two"} 1.0' in text
    assert 'teacup_restarts_total{teacup_job="two"} 1.0' in text
    assert 'teacup_restarts_total{teacup_job="one"} 0.0' in text
    assert 'teacup_state{state="starting",teacup_job="two"} 1.0' in text
    assert 'teacup_state{state="restarting",teacup_job="two"} 0.0' in text


def test_brokers_are_down_until_they_have_answered(board: Board) -> None:
    """Not up again because a run has ended, and not before anybody has asked; what is left to read is not known."""

    def up() -> str:
        (line,) = re.findall(r'teacup_brokers_up{teacup_job="two"} (\S+)', asked(board.server, "/metrics")[1])
        return line

    shown = board.show("two")
    assert up() == "0.0"
    shown.moment(state(answered=True, lag=TopicLag(0, {"left-topic": 3})))
    assert up() == "1.0"
    assert 'teacup_lag_records{side="left",teacup_job="two"} 3.0' in asked(board.server, "/metrics")[1]
    shown.moment(state(unreachable="no broker answered"))
    shown.ended(ExitCode.UNREACHABLE)
    assert up() == "0.0"
    assert 'teacup_lag_records{side="left",teacup_job="two"}' not in asked(board.server, "/metrics")[1]
    shown.opening(replace(ABOUT, name="two"))
    shown.moment(state(phase=Phase.CONNECTING))
    assert up() == "0.0"
    assert "do not answer: no broker answered" in asked(board.server, "/jobs/two/readyz")[1]
    shown.moment(state(phase=Phase.STARTING, answered=True))
    assert up() == "1.0"


def test_the_page_lists_them_and_each_has_its_own(board: Board) -> None:
    """One that is down says how it ended; one that is gone is gone."""
    board.show("two").ended(ExitCode.DATA_LOSS)
    rows = json.loads(asked(board.server, "/v1/jobs")[1])["jobs"]

    assert [(row["name"], row["lag"]) for row in rows] == [("one", 3), ("two", None)]
    assert rows[1]["state"] == "failed"
    assert "Exit code 3" in rows[1]["says"]
    assert 'src="jobs.js"' in asked(board.server, "/")[1]
    assert 'src="job.js"' in asked(board.server, f"/{rows[0]['page']}")[1]
    assert json.loads(asked(board.server, f"/{rows[1]['page']}v1/job")[1])["job"]["name"] == "two"

    board.forget("two")

    status, body, *_ = asked(board.server, f"/{rows[1]['page']}")
    assert (status, "/jobs/NAME/" in body) == (404, True)
    assert asked(board.server, "/readyz")[:2] == (200, "one: running\n")


def test_a_job_that_starts_again_goes_on_counting(board: Board) -> None:
    """Waiting is counted from the run's own beginning, and it is no longer ended."""
    shown = board.show("one")
    shown.moment(state(waited_s={"clock": 5.0}))
    shown.ended(ExitCode.FAILED)
    shown.opening(replace(ABOUT, name="one"))
    assert shown.hour.now()["state"] == "starting"
    shown.moment(state(waited_s={"clock": 1.0}))

    assert 'teacup_waiting_seconds_total{reason="clock",teacup_job="one"} 6.0' in asked(board.server, "/metrics")[1]
