"""One port for several jobs, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from deploy.job import MetricsAt
from deploy.watch.board import Board
from deploy.watch.listener import Phase, TopicLag
from teacup.base.errors import ExitCode
from tests.deploy.watch.reports import ABOUT, Batch
from tests.deploy.watch.served import asked, one_of_each, state


@pytest.fixture
def board() -> Iterator[Board]:
    """With two jobs that run."""
    with closing(Board(MetricsAt(port=0), "2 jobs", several=True)) as board:
        assert board.server.listens.wait(60)
        for name in ("one", "two"):
            shown = board.show(name)
            for listener in (shown.metrics, shown.hour):
                listener.opening(replace(ABOUT, name=name))
                listener.moment(state(lag=TopicLag(0, {"left-topic": 3})))
        yield board


def test_each_series_has_the_name_of_its_job_and_each_metric_one_family(board: Board) -> None:
    """Prometheus takes a family once."""
    for name in ("one", "two"):
        board.show(name).metrics.batch(Batch(numbers=one_of_each()))

    text = asked(board.server, "/metrics")[1]

    assert text.count("# TYPE teacup_batches_total counter") == 1
    assert 'teacup_batches_total{teacup_job="one"} 2.5' in text
    assert 'teacup_batches_total{teacup_job="two"} 2.5' in text


def test_they_are_ready_once_all_are(board: Board) -> None:
    """Each has a line; one that has ended is not."""
    assert asked(board.server, "/readyz")[:2] == (200, "one: running\ntwo: running\n")

    board.show("two").metrics.moment(state(phase=Phase.ENDED))

    assert asked(board.server, "/readyz")[:2] == (503, "one: running\ntwo: ended\n")
    assert asked(board.server, "/livez")[0] == 200


def test_the_page_lists_them_and_each_has_its_own(board: Board) -> None:
    """One that is down says how it ended; one that is gone is gone."""
    board.show("two").hour.ended(ExitCode.DATA_LOSS)
    rows = json.loads(asked(board.server, "/v1/jobs")[1])["jobs"]

    assert [(row["name"], row["lag"]) for row in rows] == [("one", 3), ("two", 3)]
    assert rows[1]["state"] == "ended"
    assert "Exit code 3" in rows[1]["says"]
    assert 'src="jobs.js"' in asked(board.server, "/")[1]
    assert 'src="job.js"' in asked(board.server, f"/{rows[0]['page']}")[1]
    assert json.loads(asked(board.server, f"/{rows[1]['page']}v1/job")[1])["job"]["name"] == "two"

    board.forget("two")

    assert asked(board.server, f"/{rows[1]['page']}")[0] == 404
    assert asked(board.server, "/readyz")[:2] == (200, "running\n")


def test_a_job_that_starts_again_goes_on_counting(board: Board) -> None:
    """Waiting is counted from the run's own beginning, and it is no longer ended."""
    shown = board.show("one")
    shown.metrics.moment(state(waited_s={"clock": 5.0}))
    shown.hour.ended(ExitCode.FAILED)
    for listener in (shown.metrics, shown.hour):
        listener.opening(replace(ABOUT, name="one"))
    shown.metrics.moment(state(waited_s={"clock": 1.0}))

    assert 'teacup_waiting_seconds_total{reason="clock",teacup_job="one"} 6.0' in asked(board.server, "/metrics")[1]
    assert shown.hour.now()[0] == "starting"
