"""A job on a cluster of three brokers of which two are lost, and an output that needs two replicas in sync."""

from __future__ import annotations

import urllib.request
from collections import Counter

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from deploy.broker.lifeline import free_port
from deploy.cli.app import app
from teacup.base.errors import ExitCode
from tests.support.cluster import Cluster
from tests.support.jobprocess import JobProcess, records
from tests.support.provenance import left_of
from tests.support.sparkjoin import Put, produce

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000
ROWS = 40


def checked(path):
    ended = CliRunner().invoke(app, ["check", str(path), "--connect"])
    return ended.exit_code, [line for line in ended.output.splitlines() if "replicas" in line]


def test_a_job_whose_output_lacks_replicas_says_so_and_goes_on_once_they_are_back(tmp_path):
    """In the check before it, in a warning with the reason while Spark tries again, and in a metric."""
    with Cluster(tmp_path / "cluster", 3, {"offsets.topic.num.partitions": "1"}) as cluster:
        kafka = {"bootstrap.servers": cluster.kafka["bootstrap.servers"]}
        admin = AdminClient(cluster.kafka)
        new = [NewTopic(name, 2, 3) for name in ("left", "right")]
        new.append(NewTopic("out", 2, 3, config={"min.insync.replicas": "2"}))
        for made in admin.create_topics(new, operation_timeout=60).values():
            made.result(60)
        for side, lag_ms in (("right", 500), ("left", 0)):
            puts = [Put(i % 2, b"%d" % i, START_MS + i * 1_000 - lag_ms, b"%d" % i) for i in range(ROWS)]
            produce(kafka, side, puts)
        port = free_port()
        job = {
            "name": "replicated",
            "kind": "window-join",
            "kafka": {**kafka, "transaction.timeout.ms": "6000"},
            "left": {"topic": "left", "disorder": "0s"},
            "right": {"topic": "right", "disorder": "0s"},
            "join": {"before": "2s"},
            "output": {"topic": "out"},
            "trigger": "available_now",
            "checkpoint": str(tmp_path / "checkpoint"),
            "window_folder": str(tmp_path / "windows"),
            "spark": {"master": "local[2]"},
            "metrics": {"port": port},
        }
        (tmp_path / "checked.yaml").write_text(yaml.safe_dump(job))
        code, found = checked(tmp_path / "checked.yaml")
        assert code == ExitCode.DONE, found
        assert [line.split()[0] for line in found] == ["ok", "ok", "ok"], found

        for broker in cluster.brokers[1:]:
            broker.kill()
        cluster.await_in_sync("out", 1)
        code, found = checked(tmp_path / "checked.yaml")
        assert code == ExitCode.UNREACHABLE
        (error,) = [line for line in found if line.startswith("error")]
        assert "output.replicas" in error
        assert "NOT_ENOUGH_REPLICAS: partition 0 of topic 'out' has 1 of its 3 replicas in sync" in error
        assert len([line for line in found if line.startswith("warning")]) == 2  # the coordinators' topics

        running = JobProcess(tmp_path, job)
        said = "failed, Spark tries again: NotEnoughReplicas: NOT_ENOUGH_REPLICAS: partition"
        running.until(lambda: said in running.logged(), "the job says what is missing")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        for name in ("failed_attempts", "warnings"):
            (line,) = [line for line in metrics.splitlines() if line.startswith(f"teacup_{name}_total{{")]
            assert float(line.split()[-1]) >= 1
        cluster.brokers[1].start()

        assert running.ended() == ExitCode.DONE, running.logged()
        written = Counter(left_of(row["headers"]) for row in records(kafka, "out"))
        assert written == Counter(f"{i % 2}:{i // 2}" for i in range(ROWS))
