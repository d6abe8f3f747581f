"""The numbers of a job as Prometheus gets them, and whether the job lives: over real HTTP."""

from __future__ import annotations

import io
import json
import re
import subprocess
from contextlib import closing

import pytest

from deploy.watch import measures
from deploy.watch.board import BoardListeners
from deploy.watch.concerns import OVER_MS, Concern
from deploy.watch.life.follower import Follower
from deploy.watch.life.moment import TopicLag, WaitingFor
from deploy.watch.lines import Lines
from deploy.watch.listener import JobListeners, Listener, Listeners, Report
from deploy.watch.measures import METRICS, Type
from deploy.watch.metrics import STANDS_STILL_S, Metrics, metrics_routes
from deploy.watch.server import JobServer, Response, Routes
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.watch.reports import ABOUT, Batch, Clock
from tests.deploy.watch.served import asked, one_of_each, served, state
from tests.support.prometheus_server import program


def routes(shown: BoardListeners) -> Routes:
    """Of a process that has one job."""
    return {**metrics_routes(lambda: [shown.metrics]), **shown.routes()}


def test_promtool_accepts_every_metric() -> None:
    """Names, units, types and help, in the text that Prometheus reads."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    metrics.moment(state(lag=TopicLag(0, {"left-topic": 3}), waited_s={"clock": 2.0}, plan_s=0.1))
    metrics.batch(Batch(numbers=one_of_each()))
    with served(routes(metrics)) as server:
        status, text, headers = asked(server, "/metrics")

    command = [program("promtool"), "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True)

    assert (status, checked.returncode, checked.stderr) == (200, 0, ""), checked.stdout
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert {metric.full_name for metric in METRICS} == set(re.findall(r"^# TYPE (teacup_\w+) ", text, re.MULTILINE))


def test_counters_add_up_gauges_are_replaced_and_durations_are_counted_by_size() -> None:
    """Over two batches; that no batch was carried out is known before the first one, too."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    with served(routes(metrics)) as server:
        assert 'teacup_last_batch_timestamp_seconds{teacup_job="clicks"} ' in asked(server, "/metrics")[1]
    for value in (3, 4):
        metrics.batch(
            Batch(
                seconds=0.2,
                numbers=[
                    measures.READ(value, side="left"),
                    measures.WINDOW_RECORDS(value),
                    measures.ROWS(value, outcome="unmatched", reason="no_candidate"),
                ],
            )
        )
    with served(routes(metrics)) as server:
        text = asked(server, "/metrics")[1]

    assert 'teacup_records_read_total{side="left",teacup_job="clicks"} 7.0' in text
    assert 'teacup_window_records{teacup_job="clicks"} 4.0' in text
    assert 'teacup_rows_total{outcome="unmatched",reason="no_candidate",teacup_job="clicks"} 7.0' in text
    assert 'teacup_batch_duration_seconds_bucket{le="0.1",teacup_job="clicks"} 0.0' in text
    assert 'teacup_batch_duration_seconds_bucket{le="0.25",teacup_job="clicks"} 2.0' in text
    assert 'teacup_batch_duration_seconds_count{teacup_job="clicks"} 2.0' in text


def test_who_asks_for_openmetrics_gets_it() -> None:
    """As Prometheus does if it is set to."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    with served(routes(metrics)) as server:
        _, text, headers = asked(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")

    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_waiting_and_lag_are_known_without_a_batch() -> None:
    """They matter most while there are none; the planner counts on, and starts over with the process."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    for waited_s in ({"clock": 2.0}, {"clock": 5.0, "unread": 1.0}):
        metrics.moment(state(lag=TopicLag(0, {"left-topic": 7, "right-topic": 0}), waited_s=waited_s))
    with served(routes(metrics)) as server:
        text = asked(server, "/metrics")[1]

    assert 'teacup_waiting_seconds_total{reason="clock",teacup_job="clicks"} 5.0' in text
    assert 'teacup_waiting_seconds_total{reason="unread",teacup_job="clicks"} 1.0' in text
    assert 'teacup_lag_records{side="left",teacup_job="clicks"} 7.0' in text


def test_a_job_that_starts_lives_and_is_not_ready() -> None:
    """It has not claimed its output yet."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    with served(routes(metrics)) as server:
        answers = [asked(server, path)[:2] for path in ("/livez", "/readyz")]

    assert answers == [
        (200, "starting; Spark starts, or the brokers are asked for the topics\n"),
        (503, "starting; Spark starts, or the brokers are asked for the topics\n"),
    ]


def test_a_job_that_waits_lives_is_ready_and_says_so() -> None:
    """Nothing that an orchestrator does would help."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    metrics.moment(state(waiting=WaitingFor("open_transaction", 1_700_000_000_000, "right-0: an open transaction")))
    with served(routes(metrics)) as server:
        answers = [asked(server, path)[:2] for path in ("/livez", "/readyz")]

    body = "held; waits since 2023-11-14T22:13:20.000Z: right-0: an open transaction\n"
    assert answers == [(200, body), (200, body)]


def test_without_brokers_a_job_lives_and_is_not_ready() -> None:
    """It goes on by itself once they answer."""
    metrics = BoardListeners("clicks")
    metrics.opening(ABOUT)
    metrics.moment(state(unreachable="no broker answered"))
    with served(routes(metrics)) as server:
        answers = [asked(server, path)[:2] for path in ("/livez", "/readyz")]
        text = asked(server, "/metrics")[1]

    body = "held; the brokers do not answer: no broker answered\n"
    assert answers == [(200, body), (503, body)]
    assert 'teacup_brokers_up{teacup_job="clicks"} 0.0' in text


def test_a_loop_that_stands_still_is_not_alive() -> None:
    """An orchestrator starts the job again."""
    clock = Clock()
    metrics = BoardListeners("clicks", clock=clock)
    metrics.opening(ABOUT)
    metrics.moment(state())
    with served(routes(metrics)) as server:
        clock.now_s += STANDS_STILL_S
        assert asked(server, "/livez")[0] == 200
        clock.now_s += 1
        status, body, _ = asked(server, "/livez")

    assert (status, body) == (503, f"the loop has not turned for {STANDS_STILL_S + 1:.0f} s\n")


def test_a_listener_that_fails_harms_neither_the_job_nor_others(caplog: pytest.LogCaptureFixture) -> None:
    """Its first failure is logged, with where it happened."""

    class Failing(Listener):
        def batch(self, report: Report) -> None:
            raise ValueError("broken")

    metrics = BoardListeners("clicks")
    listeners = Listeners(Failing(), metrics)
    listeners.opening(ABOUT)
    for _ in range(3):
        listeners.batch(Batch(numbers=[measures.READ(1, side="left")]))
    listeners.ended(ExitCode.DONE)

    assert dict(metrics.metrics.numbers.simple(measures.READ)) == {("left",): 3.0}
    (line,) = caplog.records
    assert line.getMessage() == "Failing cannot take what the job reports; the job goes on: ValueError: broken"
    assert line.exc_info is not None


def test_a_concern_of_every_batch_is_said_once_to_all(caplog: pytest.LogCaptureFixture) -> None:
    """The log, machines, the metric: when it begins, has grown, and is over."""
    caplog.set_level("INFO", "teacup")
    now_ms, out, metrics = [0], io.StringIO(), Metrics(Follower(ABOUT.name, wall_ms))
    listeners = Listeners(JobListeners(Lines(as_json=True, out=out), metrics, clock_ms=lambda: now_ms[0]), Listener())
    listeners.opening(ABOUT)

    for size in (19, 12, 190, 100):
        now_ms[0] += 1_000
        listeners.batch(Batch(concerns=[Concern("left.disorder", size, f"raise it to {size}")]))
    now_ms[0] += OVER_MS
    listeners.batch(Batch())

    over = "over, last seen at 1970-01-01T00:00:04.000Z: 4 times since 1970-01-01T00:00:01.000Z, the worst: "
    assert caplog.messages == ["raise it to 19", "raise it to 190", f"{over}raise it to 190"]
    said = [json.loads(line)["warnings"] for line in out.getvalue().splitlines()]
    assert said == [["raise it to 19"], [], ["raise it to 190"], [], []]
    assert dict(metrics.numbers.simple(measures.WARNINGS)) == {(): 2.0}


def test_a_page_of_somebody_else_cannot_ask_through_a_browser() -> None:
    """A name of theirs that leads to loopback is not one of ours."""
    with served({"/": lambda asked: Response.text("numbers")}) as server:
        statuses = [
            asked(server, "/", Host=host)[0] for host in ("localhost:9464", "127.0.0.1", "evil.example", "10.1.2.3")
        ]

    assert statuses == [200, 200, 421, 421]


def test_a_route_that_fails_is_an_answer_and_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """The server goes on."""

    def failing(_asked: object) -> Response:
        raise ValueError("broken")

    with served({"/failing": failing, "/": lambda asked: Response.text("numbers")}) as server:
        assert asked(server, "/failing")[:2] == (500, "failed; the job's log says how\n")
        assert asked(server, "/")[0] == 200
        status, body, headers = asked(server, "/elsewhere")

    assert (status, body) == (404, "not found; there is /, /failing\n")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "/failing failed: ValueError: broken" in caplog.text


def test_nothing_but_reading_is_allowed() -> None:
    """HEAD is."""
    with served({"/": lambda asked: Response.text("numbers")}) as server:
        assert asked(server, "/", "HEAD")[:2] == (200, "")
        assert asked(server, "/", "POST")[0] == 501


def test_a_port_that_is_taken_is_tried_until_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    """The job that this one replaces may still hold it."""
    with served({}) as first:
        port = int(first.url.rpartition(":")[2])
        with closing(JobServer("127.0.0.1", port, {}, "clicks")) as second:
            second.start()
            for _ in range(240):  # said with the second try: a job that is refused at once has another error to show
                assert not second.listens.wait(0.25)
                if "cannot listen" in caplog.text:
                    break
            first.close()
            assert second.listens.wait(60)

    assert caplog.text.count("clicks: metrics: cannot listen at 127.0.0.1 port") == 1


def test_every_metric_has_a_unit_and_a_meaning() -> None:
    """Whatever promtool does not know: ours."""
    for metric in METRICS:
        assert (metric.type is Type.COUNTER) == metric.name.endswith("_total"), metric
        assert metric.meaning[0].isupper(), metric
        assert not metric.meaning.endswith("."), metric
