"""A job without executors says so, ends after its limit, and stops at the first signal: on a real standalone master."""

from __future__ import annotations

import json
import logging
import re
import time
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from deploy.check.findings import Level
from deploy.check.machine import of_cores
from deploy.jobs.failures import SAID_AFTER_S, Starved
from teacup.base.errors import ExitCode
from teacup.spark.cluster import Executors, Missing
from teacup.spark.errors import NoExecutor
from tests.deploy.jobs.filling import START_MS, fill
from tests.deploy.jobs.processes import ready
from tests.support.jobprocess import JobProcess, uncommitted
from tests.support.standalone import Standalone

STOPS_WITHIN_S = 15.0  # on a machine with other work; without a fix it is for ever


def of_cluster(cluster: Standalone) -> dict[str, str]:
    """Its executors are whole machines of two cores."""
    return {
        "master": cluster.url,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "2",
        "spark.executor.memory": "512m",
    }


def shown(process: JobProcess, what: str) -> str:
    """What its server answers."""
    found = re.search(r"metrics at (http://\S+?)/metrics", process.logged())
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}/{what}", timeout=30) as answer:
        return str(answer.read().decode())


def unexpected(process: JobProcess) -> list[str]:
    """What it has logged beside lines of our own, and what a JVM says of the tests' options."""
    lines = process.logged().splitlines()
    own = ('"logger": "teacup"', '"logger": "teacup.kafka', '"event": "end"')  # that of Spark's JVM is teacup.spark.jvm
    ours = [line for line in lines if any(text in line for text in own)]
    return [line for line in lines if line not in ours and "JDK_JAVA_OPTIONS" not in line]


def lacks(process: JobProcess) -> bool:
    """Whether its probe says that it has no executor."""
    status, said = ready(process)
    return status == HTTPStatus.SERVICE_UNAVAILABLE and "no executor since" in said


def test_a_job_without_free_cores_says_so_and_stops_at_once(
    kafka: dict[str, str], window_job: Any, tmp_path: Path
) -> None:
    """Its executors ask for two cores, and the only worker has one: as if another application had the others."""
    with Standalone(tmp_path, cores=1) as cluster:
        content = window_job(2, spark=of_cluster(cluster), trigger={"every": "0s"}, metrics={"port": 0})
        fill(kafka, content, 10)
        process = JobProcess(tmp_path, content)
        process.until(lambda: lacks(process), "/readyz says that there is no executor")
        page, metrics = shown(process, "v1/job"), shown(process, "metrics")
        began_s = time.monotonic()
        code, took_s = process.stop(), time.monotonic() - began_s

    assert (code, took_s < STOPS_WITHIN_S) == (ExitCode.DONE, True), (took_s, process.logged())
    state = json.loads(page)
    assert (state["state"], "No executor since" in state["says"]) == ("held", True)
    assert re.search(r"^teacup_executors\{.*\} 0.0$", metrics, re.MULTILINE), metrics
    assert re.search(r"^teacup_no_executor_seconds\{.*\} [0-9.]+$", metrics, re.MULTILINE), metrics
    assert unexpected(process) == []


@pytest.mark.slow
def test_a_job_without_free_cores_ends_after_its_limit(kafka: dict[str, str], window_job: Any, tmp_path: Path) -> None:
    """A supervisor starts it again, as a new application."""
    with Standalone(tmp_path, cores=1) as cluster:
        process = JobProcess(tmp_path, window_job(2, spark=of_cluster(cluster), wait_for_executors="1s"))

        assert process.ended() == ExitCode.UNREACHABLE
    assert "no executor since" in process.error()
    assert "wait_for_executors" in process.error()
    assert unexpected(process) == []


@pytest.mark.slow
def test_a_job_that_lost_its_master_in_a_batch_stops_at_the_first_signal(
    kafka: dict[str, str], window_job: Any, tmp_path: Path
) -> None:
    """The batch waits for executors that do not come; it runs again at the next start."""
    with Standalone(tmp_path, cores=2) as cluster:
        content = window_job(2, spark=of_cluster(cluster), trigger={"every": "0s"}, metrics={"port": 0})
        fill(kafka, content, 10)
        process = JobProcess(tmp_path, content)
        process.until(lambda: process.lines, "a batch")
        cluster.restart_master()
        process.until(lambda: lacks(process), "/readyz says that there is no executor")
        fill(kafka, content, 10, START_MS + 3_600_000)
        process.until(lambda: uncommitted(tmp_path / "checkpoint"), "a batch is planned")
        began_s = time.monotonic()
        code, took_s = process.stop(), time.monotonic() - began_s

    assert (code, took_s < STOPS_WITHIN_S) == (ExitCode.DONE, True), (took_s, process.logged())
    assert [line for line in unexpected(process) if '"logger": "org.apache.spark' not in line] == []  # no stack


def test_a_job_that_would_take_all_cores_of_a_cluster_is_warned_of() -> None:
    """The other job is the one that does not start."""
    found = [
        [(finding.level, finding.what) for finding in of_cores(spark)]
        for spark in (
            {"master": "spark://host:7077"},
            {"spark.master": "spark://host:7077", "spark.cores.max": "4"},
            {"master": "local[2]"},
            {"master": "yarn"},
        )
    ]

    assert found == [[(Level.WARNING, "spark.cores.max")], [], [], []]


def test_executors_are_missing_since_the_first_look_that_found_none() -> None:
    """A look that finds one ends that; what needs none misses none."""
    missing = Missing()

    found = [missing.seen(count, at * 1000, at, needed=needed) for count, at, needed in LOOKS]

    assert [(each.missing_ms, each.missing_s) for each in found] == [
        *((None, 0), (12_000, 0), (12_000, 3), (None, 0), (17_000, 0)),
        *((None, 0), (19_000, 0)),
    ]


LOOKS = (
    *((1, 10, True), (0, 12, True), (0, 15, True), (2, 16, True), (0, 17, True)),
    *((0, 18, False), (0, 19, True)),
)


def test_missing_executors_are_said_once_and_end_the_job_after_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Not the seconds in which a cluster starts executors, or replaces a lost one."""
    caplog.set_level(logging.INFO)
    starved = Starved("spark://host:7077", limit_ms=60_000)

    for found in (
        *(Executors(0, 0, 5.0), Executors(2)),
        *(Executors(0, 0, SAID_AFTER_S), Executors(0, 0, 59.0), Executors(2)),
        Executors(0, 0, 30.0),
    ):
        starved.checked(found)

    assert [line.message.partition(":")[0] for line in caplog.records] == [
        "no executor since 1970-01-01T00",
        "2 executors are there again",
        "no executor since 1970-01-01T00",
    ]
    with pytest.raises(NoExecutor, match="wait_for_executors"):
        starved.checked(Executors(0, 0, 60.0))
