"""A broker that is stopped for a minute under a process with a job, and with another that is started meanwhile."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.base.errors import ExitCode
from tests.deploy.jobs.filling import START_MS, fill
from tests.deploy.jobs.processes import ready, states
from tests.support.jobprocess import JobProcess, records, uncommitted

pytestmark = pytest.mark.slow

OUTAGE_S, EVERY_S = 60.0, 3.0
FOUND_WITHIN_S = 30.0
STOPS_WITHIN_S = 45.0  # on a machine with other work; a call to brokers is repeated for a minute
RUN_FOLDER = 'exec "$0" -m deploy.cli run "$(dirname "$1")"'


def up(process: JobProcess) -> dict[str, float]:
    """What `teacup_brokers_up` says of each job."""
    text = ready(process, "metrics")[1]
    return {job: float(value) for job, value in re.findall(r'teacup_brokers_up{teacup_job="(\w+)"} (\S+)', text)}


def test_brokers_are_down_for_as_long_as_they_are(tmp_path: Path) -> None:
    """No attempt that ends, and none that begins, says that they are up; once they answer they are, for both jobs."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    with Broker(tmp_path / "broker") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(dict(kafka))
        topics = [f"{side}-{name}" for name in ("before", "during") for side in ("left", "right", "out")]
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            made.result(30)

        def job(name: str) -> dict[str, Any]:
            return {
                "name": name,
                "kind": "window-join",
                "kafka": kafka,
                "left": {"topic": f"left-{name}"},
                "right": {"topic": f"right-{name}"},
                "join": {"before": "2s"},
                "output": {"topic": f"out-{name}"},
                "checkpoint": str(tmp_path / name),
                "window_folder": str(tmp_path / "windows"),
                "wait_for_brokers": "5s",
                "spark": {"master": "local[2]"},
                "log": "json",
                "metrics": {"port": 0},
            }

        process = JobProcess(folder, job("before"), ("sh", "-c", RUN_FOLDER, sys.executable))
        process.until(lambda: states(process) == {"before": "running"}, "the job runs")
        process.until(lambda: up(process) == {"before": 1.0}, "brokers have answered")

        broker.stop()
        (folder / "during.yaml").write_text(yaml.safe_dump(job("during")))
        process.process.send_signal(signal.SIGHUP)
        seen, began_s = defaultdict[str, list[tuple[float, float]]](list), time.monotonic()
        while (at_s := time.monotonic() - began_s) < OUTAGE_S:
            for name, value in up(process).items():
                seen[name].append((round(at_s), value))
            time.sleep(EVERY_S)
        code = re.search(r'teacup_last_exit_code{teacup_job="during"} (\S+)', ready(process, "metrics")[1])
        broker.start()
        process.until(lambda: set(up(process).values()) == {1.0}, "brokers answer again")
        process.until(lambda: set(states(process).values()) == {"running"}, "both run")
        process.stop()

    assert code is not None
    assert code[1] == "4.0", "attempts have ended"
    assert all(value == 0.0 for _, value in seen["during"]), seen
    found_s = next(at_s for at_s, value in seen["before"] if value == 0.0)
    assert found_s <= FOUND_WITHIN_S, seen
    assert all(value == 0.0 for at_s, value in seen["before"] if at_s >= found_s), seen


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_stop_does_not_wait_for_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_batch: bool) -> None:
    """Neither the plan nor the batch in progress would end before the brokers are back; nothing is lost."""
    points, checkpoint = tmp_path / "points", tmp_path / "checkpoint"
    points.mkdir()
    monkeypatch.setenv("TEACUP_FAILPOINTS", str(points))
    with Broker(tmp_path / "broker") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        admin, topics = AdminClient(dict(kafka)), {side: {"topic": side} for side in ("left", "right")}
        for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in (*topics, "out")]).values():
            made.result(30)
        content = {
            "name": "stopped",
            "kind": "window-join",
            "kafka": kafka,
            **topics,
            "join": {"before": "2s"},
            "output": {"topic": "out"},
            "trigger": {"every": "0s"},
            "checkpoint": str(checkpoint),
            "window_folder": str(tmp_path / "windows"),
            "spark": {"master": "local[2]"},
        }
        left, _ = fill(kafka, content, 20)
        process = JobProcess(tmp_path, content)
        process.until(lambda: len(records(kafka, "out")) == len(left), "its rows are there")
        if in_a_batch:
            (points / "armed").write_text("before_produce")
            left += fill(kafka, content, 20, START_MS + 3_600_000)[0]
            process.until((points / "reached").exists, "a batch is in progress")
        broker.stop()
        (points / "go").touch()
        began_s = time.monotonic()
        code, took_s = process.stop(), time.monotonic() - began_s
        broker.start()
        cut_off = uncommitted(checkpoint)
        content["trigger"] = "available_now"
        again = JobProcess(tmp_path, content).ended()
        rows = records(kafka, "out")

    assert (code, took_s < STOPS_WITHIN_S, cut_off) == (ExitCode.DONE, True, in_a_batch), (took_s, process.logged())
    assert ("the brokers do not answer: stops at once" in process.logged()) == in_a_batch
    assert (again, len(rows)) == (ExitCode.DONE, len(left))
