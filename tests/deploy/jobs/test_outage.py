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
from tests.deploy.jobs.processes import ready, states
from tests.support.jobprocess import JobProcess

pytestmark = pytest.mark.slow

OUTAGE_S, EVERY_S = 60.0, 3.0
FOUND_WITHIN_S = 30.0
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
