"""The job file of a feeder, what its line says, and `teacup run` of one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from configfile.errors import SettingsInvalid
from deploy.errors import AccountsDiffer
from deploy.job import FeederJob
from deploy.jobs.feeder import gathered
from deploy.load import load_job
from joins.feed.stage import FeedSummary
from kafkaio.exitcode import ExitCode
from kafkaio.groups import GroupOffsets
from kafkaio.now import wall_ms
from storage.api.config import READ_TOKEN_VARIABLE
from tests.support.jobprocess import JobProcess
from tests.support.sparkjoin import Put, produce
from tests.support.storage_process import TOKEN, server_process

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "feeder.yaml"


def test_the_example_is_a_feeder() -> None:
    """As it is shipped."""
    job = load_job(EXAMPLE, {})

    assert isinstance(job, FeederJob)
    assert (job.spec.right.topic, job.spec.storage.unreachable_for_s) == ("impressions", 300)


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    """By its key."""
    document = yaml.safe_load(EXAMPLE.read_text())
    document["storage"] |= {"items_per_request": 0, "key": 1}
    document["topics"]["dead_letter"] = document["right"]["topic"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))

    with pytest.raises(SettingsInvalid) as raised:
        load_job(tmp_path / "job.yaml", {})

    assert {one.partition(":")[0] for one in raised.value.problems} == {
        "storage.items_per_request",
        "storage.key",
        "topics.dead_letter",
    }


def test_the_line_adds_partitions_up_and_names_what_is_rare_only_where_it_happened() -> None:
    """One line per batch."""
    one = FeedSummary(0, 4, 2, 10, read=10, stored=8, null_key=1, dead={"rejected": 1}, disorder_ms=5, newest_ms=1_000)

    report = gathered([one, replace(one, partition=1, newest_ms=3_000)], 0.5, 4_000)

    assert (report.records, report.newest_ms, report.behind_ms) == (20, 3_000, 3_000)
    assert report.usual() == [
        "batch 4",
        "read 20",
        "40/s",
        "stored 16",
        "newest 1970-01-01T00:00:03.000Z",
        "behind 3.0 s",
    ]
    assert report.rare() == ["without key 2", "dead letters (rejected) 2"]
    with pytest.raises(AccountsDiffer, match=r"\[0\], and 2 were expected"):
        gathered([one], 0.5, 4_000)


def test_a_feeder_runs_and_stops_cleanly_and_a_wiped_store_ends_it(
    kafka: dict[str, str], topic_factory: Any, tmp_path: Path
) -> None:
    """As a process, on a real broker and store; a wiped store is exit code 5, with the remedy."""
    topic = topic_factory(1)
    now_ms = wall_ms()
    produce(kafka, topic, [Put(0, b"k%d" % i, now_ms) for i in range(5)])
    namespaces = [{"name": "right", "retention": "1h"}]
    job = {
        "name": f"feeder-{topic}",
        "kind": "feeder",
        "kafka": kafka,
        "right": {"topic": topic},
        "checkpoint": str(tmp_path / "checkpoint"),
    }

    with server_process(tmp_path / "store", namespaces=namespaces) as (_, url):
        job["storage"] = {"url": url, "namespace": "right", "token": TOKEN}
        process = JobProcess(tmp_path, job)
        process.until(lambda: sum(line["stored"] for line in process.lines) == 5, "all is stored")
        with closing(GroupOffsets(job["name"], kafka)) as group:  # no next batch follows
            process.until(lambda: group.read([(topic, 0)]) == {(topic, 0): 5}, "the collector can see it")
        assert process.stop() == ExitCode.DONE
    with server_process(tmp_path / "wiped", namespaces=namespaces) as (_, url):
        job["storage"] = {"url": url, "namespace": "right", "token": TOKEN}
        process = JobProcess(tmp_path, job)
        assert process.ended() == ExitCode.CHECKPOINT
        assert "feed again with a new checkpoint" in process.logged()


def test_a_token_that_may_only_read_ends_the_feeder_without_a_retry(
    kafka: dict[str, str], topic_factory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first task is refused, and so would be the next three."""
    topic = topic_factory(1)
    produce(kafka, topic, [Put(0, b"k", wall_ms())])
    monkeypatch.setenv(READ_TOKEN_VARIABLE, "may-only-read-in-this-test")

    with server_process(tmp_path / "store", namespaces=[{"name": "right", "retention": "1h"}]) as (_, url):
        job = {
            "name": f"feeder-{topic}",
            "kind": "feeder",
            "kafka": kafka,
            "right": {"topic": topic},
            "storage": {"url": url, "namespace": "right", "token": "may-only-read-in-this-test"},
            "checkpoint": str(tmp_path / "checkpoint"),
        }
        process = JobProcess(tmp_path, job)
        assert process.ended() == ExitCode.BAD_JOB_FILE

    assert "CallRefused: the storage API refuses" in process.logged()
    assert "Lost task" not in process.logged(), "it was retried"
