"""A real Prometheus scrapes a running join: every query of the dashboard has an answer, every alert rule is valid."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.jobs.join_report import gather, zeros
from deploy.output.accounts import DeliveredBatch
from deploy.watch import measures
from deploy.watch.board import BoardListeners
from deploy.watch.life.moment import JobState, Phase, TopicLag
from deploy.watch.manifests import ALERTS, FOLDER, RULES, RUNBOOK, expressions, texts
from deploy.watch.metrics import metrics_routes
from deploy.watch.server import JobServer
from joins.batch.facts import BucketFacts, RangeFacts
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec, Right, Side
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.jobs.conftest import job, window_job
from tests.deploy.jobs.filling import fill
from tests.deploy.watch.reports import ABOUT
from tests.support.jobhere import Running, here
from tests.support.packages import ROOT
from tests.support.prometheus_server import WITHIN_S, asked, chosen, program, prometheus
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

__all__ = ["here", "job", "window_job"]


def all_answered(server: str, batch: Callable[[], None]) -> None:
    """Checks every query and every rule, once Prometheus has scraped before and after a batch."""
    wait_until(lambda: bool(asked(server, "teacup_job_info")), lambda: "nothing is scraped", WITHIN_S)
    batch()
    counted = (
        'sum(rate(teacup_rows_total{outcome="matched"}[1m])) > 0 and sum(teacup_lag_records) >= 0 '
        "and sum(rate(teacup_batch_stage_duration_seconds_count[1m])) >= 0"
    )
    wait_until(lambda: bool(asked(server, counted)), lambda: "no match is counted, or no lag known", WITHIN_S)
    silent = set(expressions())

    def all_are_answered() -> bool:
        """Each is asked until it has had an answer: what a batch counts appears with a scrape of its own."""
        silent.difference_update([expression for expression in silent if asked(server, chosen(expression))])
        return not silent

    wait_until(all_are_answered, lambda: f"without an answer: {sorted(silent)}", WITHIN_S)
    for alert in ALERTS:
        asked(server, alert.expression)
    health = {rule["name"]: rule["health"] for rule in evaluated(server)}

    assert health == {alert.name: "ok" for alert in ALERTS}


def test_every_query_of_the_dashboard_has_an_answer(tmp_path: Path) -> None:
    """From the numbers of a batch, without a job."""
    spec = window_spec()
    metrics = BoardListeners("clicks")
    metrics.opening(replace(ABOUT, zeros=tuple(zeros(spec))))
    metrics.moment(
        JobState(at_ms=0, phase=Phase.RUNNING, executors=1, lag=TopicLag(0, {"left-topic": 7, "right-topic": 0}))
    )
    summary = BucketSummary(0, 7, 1, read={"left": 100, "right": 50}, rows={"matched": 90, "unmatched": 10})
    summary.watermark_ms = summary.newest_ms = {"left": 1_000, "right": 2_000}
    summary.facts = BucketFacts({0: RangeFacts(10, 1_000)}, {0: RangeFacts(10, 2_000)})
    summary.restored = "memory"
    summary.seconds = {"match": 0.1}
    report = gather(spec, [DeliveredBatch(summary, {"out": 100}, (), 0)], 0.5, 3_000)
    with closing(JobServer("127.0.0.1", 0, metrics_routes(lambda: [metrics.metrics]))) as job_server:
        job_server.start()
        assert job_server.listens.wait(60)
        with prometheus(tmp_path, job_server.url) as server:

            def batch() -> None:
                metrics.batch(report)
                metrics.metrics.numbers.take([measures.RIGHT_LAG(1.5)])

            all_answered(server, batch)


@pytest.mark.slow
def test_every_query_has_an_answer_from_a_job_that_runs(kafka, job, here, tmp_path, caplog):
    """A window join of a few records, on a real broker."""
    caplog.set_level("INFO", "teacup")
    content = job(trigger={"every": "0s"}, metrics={"port": 0})
    with here.running(content) as running:
        running.until(lambda: "metrics at http://" in caplog.text, "metrics are served")
        (url,) = re.findall(r"metrics at (http://\S+)/metrics", caplog.text)

        def batches() -> None:
            """The wait curve knows when right became readable from the second live batch on."""
            fill(kafka, content)
            for _ in range(3):
                before = matched(running)
                now = [Put(i % 2, b"%d" % i, wall_ms(), b'{"n": 1}') for i in range(20)]
                for side in ("right", "left"):
                    produce(kafka, content[side]["topic"], now)
                running.until(lambda before=before: matched(running) > before, "left records have matches")

        with prometheus(tmp_path, url) as server:
            all_answered(server, batches)
            with urllib.request.urlopen(f"{url}/readyz", timeout=60) as answer:
                assert answer.status == 200
        assert running.stop() == ExitCode.DONE


def matched(running: Running) -> int:
    """How many rows of a join have a right record."""
    return sum(line["rows"].get("matched", 0) for line in running.lines if line["event"] == "batch")


def window_spec() -> JoinSpec:
    """Of any window join."""
    kafka = {"bootstrap.servers": "one:9092"}
    return JoinSpec(
        name="clicks", kafka=kafka, left=Side(topic="left-topic"), right=Right(topic="right-topic", before_ms=1_000)
    )


def evaluated(server: str) -> list[dict[str, Any]]:
    """The alert rules as Prometheus has them, once each was evaluated."""
    rules: list[dict[str, Any]] = []

    def are_evaluated() -> bool:
        with urllib.request.urlopen(f"{server}/api/v1/rules", timeout=60) as answer:
            rules[:] = [rule for group in json.load(answer)["data"]["groups"] for rule in group["rules"]]
        return len(rules) == len(ALERTS) and all(rule["health"] != "unknown" for rule in rules)

    wait_until(are_evaluated, lambda: f"rules are not evaluated: {rules}", WITHIN_S)
    return rules


def test_promtool_accepts_the_alert_rules() -> None:
    """All of them."""
    checked = subprocess.run([program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(ALERTS)} rules found" in checked.stdout


@pytest.mark.parametrize("path", sorted(texts()), ids=lambda path: path.name)
def test_the_files_are_those_that_the_metrics_give(path: Path) -> None:
    """Otherwise: `python -m deploy.watch.manifests`."""
    assert path.parent == FOLDER
    assert path.read_text(encoding="utf-8") == texts()[path]


def test_each_alert_has_a_row_in_the_page_for_operators() -> None:
    """The rule names their table; none is left of an alert that is gone."""
    page, _, anchor = RUNBOOK.partition("#")
    table = (ROOT / page).read_text(encoding="utf-8").split(f"## {anchor.capitalize()}\n")[1]
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]

    assert re.findall(r"^\| (Teacup\w+) \|", table, re.MULTILINE) == [alert.name for alert in ALERTS]
    assert {rule["annotations"]["runbook"] for rule in rules} == {RUNBOOK}
