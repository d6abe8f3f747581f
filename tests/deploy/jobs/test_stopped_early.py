"""A run that is to read all and is stopped before it has: its exit code, its last line and its status say so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.inspection.status.inspect import inspect_all
from deploy.inspection.status.row import State
from deploy.jobs.runner import ended
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.support.jobhere import JobsHere, Running
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN

NOBODY = "http://127.0.0.1:1"
Job = Callable[..., dict[str, Any]]
Content = dict[str, Any]


@pytest.fixture(autouse=True)
def logs_progress(caplog: pytest.LogCaptureFixture) -> None:
    """The line that sums a run up is none of its warnings."""
    caplog.set_level("INFO", "teacup")


def last_line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The JSON that sums the run up."""
    found: list[dict[str, Any]] = []
    for record in caplog.records:
        with suppress(ValueError):
            found += [json.loads(record.getMessage())] if record.getMessage().startswith('{"event": "end"') else []
    return found[-1]


def stopped(here: JobsHere, content: Content, until: Callable[[Running], object]) -> ExitCode | None:
    """The exit code of a job that is stopped as soon as that holds."""
    with here.running(content) as running:
        running.until(lambda: until(running), "the moment at which it is stopped")
        return running.stop()


def has_begun(content: Content) -> Callable[[Running], object]:
    """Whether its batches have begun."""
    metadata = Path(content["checkpoint"]) / "metadata"
    return lambda _: metadata.exists()


@pytest.mark.parametrize("path", ["direct", "shuffled"])
def test_a_join_whose_records_wait_for_the_clock(
    window_job: Job, here: JobsHere, kafka: dict[str, str], caplog: pytest.LogCaptureFixture, tmp_path: Path, path: str
) -> None:
    """One left record goes, two wait for the hour after them. A live job of it ends with 0."""
    content = window_job(1, join={"before": "1s", "after": "1h", "path": path, "buckets": 2}, producer_delay="1s")
    if path == "direct":
        del content["join"]["buckets"]
    now_ms = wall_ms()
    left = [Put(0, b"k", now_ms - 2 * 3_600_000 - 1), Put(0, b"k", now_ms), Put(0, b"k", now_ms)]
    produce(kafka, content["right"]["topic"], [Put(0, b"k", now_ms - 2 * 3_600_000)])
    produce(kafka, content["left"]["topic"], left)

    code = stopped(here, content, lambda job: sum(sum(line["rows"].values()) for line in job.lines) == 1)

    assert code is ExitCode.STOPPED
    end = last_line(caplog)
    assert (end["code"], end["unread"]) == (14, {content["left"]["topic"]: 2, content["right"]["topic"]: 0})
    file = tmp_path / "status.yaml"
    file.write_text(yaml.safe_dump(content))
    (row,) = inspect_all([file])
    assert (row.state, row.exit_code(), row.lag) == (State.STOPPED, ExitCode.NOT_RUNNING, {"left": 2, "right": 0})
    assert "before all was read" in next(row.remarks())

    caplog.clear()
    assert stopped(here, {**content, "trigger": {"every": "0s"}}, lambda _: time.sleep(2) or True) is ExitCode.DONE
    assert "unread" not in last_line(caplog)


def test_a_deduplication_between_two_batches(
    kafka: dict[str, str], topic_factory: TopicFactory, here: JobsHere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on, is done, and says so."""
    source, out = topic_factory(1, prefix="in"), topic_factory(1, prefix="out")
    content = {
        **{"name": out, "kind": "dedup", "kafka": kafka, "id": "key", "trigger": "available_now"},
        **{"source": {"topic": source}, "output": {"topic": out}, "records_per_batch": 10},
        **{"checkpoint": str(tmp_path / "checkpoint"), "spark": {"master": "local[2]"}},
    }
    produce(kafka, source, [Put(0, b"%d" % i, wall_ms()) for i in range(500)])

    assert stopped(here, content, lambda job: job.lines) is ExitCode.STOPPED
    end = last_line(caplog)
    assert end["read"] + end["unread"][source] == 500
    assert 0 < end["read"] < 500
    assert here.run({**content, "records_per_batch": 1_000}).code is ExitCode.DONE


def test_a_lookup_join_and_a_feeder_that_wait_for_their_services(
    kafka: dict[str, str], topic_factory: TopicFactory, here: JobsHere, tmp_path: Path
) -> None:
    """Nothing was planned yet."""
    topics = {name: topic_factory(1, prefix=name) for name in ("left", "right", "out")}
    common = {
        **{"kafka": kafka, "trigger": "available_now", "spark": {"master": "local[2]"}},
        "right": {"topic": topics["right"], "disorder": "0s"},
        "storage": {"url": NOBODY, "namespace": "right", "token": TOKEN},
    }
    lookup = {
        **common,
        **{"name": topics["out"], "kind": "lookup-join", "checkpoint": str(tmp_path / "lookup")},
        "left": {"topic": topics["left"], "disorder": "0s"},
        "join": {"before": "2s"},
        "delay": {"url": NOBODY, "consumer": "feeder"},
        "output": {"topic": topics["out"]},
    }
    feeder = {**common, "name": f"feeds-{topics['right']}", "kind": "feeder", "checkpoint": str(tmp_path / "feeder")}

    for content in (lookup, feeder):
        assert stopped(here, content, has_begun(content)) is ExitCode.STOPPED


def test_while_it_waits_for_brokers(window_job: Job, here: JobsHere) -> None:
    """There is no query yet."""
    content = window_job(1, kafka={"bootstrap.servers": "127.0.0.1:1"}, wait_for_brokers="5m")
    record = Path(content["checkpoint"]) / "teacup.run"

    assert stopped(here, content, lambda _: record.exists()) is ExitCode.STOPPED
    assert stopped(here, {**content, "trigger": {"every": "0s"}}, lambda _: time.sleep(1) or True) is ExitCode.DONE


def test_a_second_signal() -> None:
    """What a job was doing then is not known to be done."""

    def work() -> ExitCode:
        raise KeyboardInterrupt

    assert ended(work, ExitCode.STOPPED) is ExitCode.STOPPED
