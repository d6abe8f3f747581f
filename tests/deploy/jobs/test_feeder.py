"""The job file of a feeder, what its line says, and `teacup run` of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from deploy.errors import AccountsDiffer
from deploy.jobfile.job import FeederJob
from deploy.jobfile.load import load_job
from deploy.jobs.feeder import gathered
from joins.lookup.feed.stage import FeedSummary
from joins.spec import Side
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.now import wall_ms
from teacup.kafka.log.groups import GroupOffsets
from teacup.storage.api.config import READ_TOKEN_VARIABLE
from tests.support.jobhere import JobsHere
from tests.support.recreating import recreate
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

    assert {problem.partition(":")[0] for problem in raised.value.problems} == {
        "storage.items_per_request",
        "storage.key",
        "topics.dead_letter",
    }


RIGHT = Side(topic="r", disorder_ms=5)


def test_a_topic_that_is_more_out_of_order_than_configured_is_a_concern() -> None:
    """With the value to set, and where."""
    summary = FeedSummary(0, 4, 1, 10, read=10, stored=10, late=2, disorder_ms=19_100)

    (concern,) = gathered(RIGHT, [summary], 0.5, 4_000).concerns

    assert concern.text == (
        "right.disorder is 5ms, but 'r' was out of order by 19s 100ms, late records: 2. Raise right.disorder to 20s, "
        "here and in the collector's configuration"
    )


def test_the_line_adds_partitions_up_and_names_what_is_rare_only_where_it_happened() -> None:
    """One line per batch."""
    summary = FeedSummary(
        0, 4, 2, 10, read=10, stored=8, null_key=1, dead={"rejected": 1}, disorder_ms=5, newest_ms=1_000
    )

    report = gathered(RIGHT, [summary, replace(summary, partition=1, newest_ms=3_000)], 0.5, 4_000)

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
    assert report.concerns == ()
    with pytest.raises(AccountsDiffer, match=r"\[0\], and 2 were expected"):
        gathered(RIGHT, [summary], 0.5, 4_000)


@pytest.fixture
def job(kafka: dict[str, str], topic_factory: Any, tmp_path: Path) -> dict[str, Any]:
    """A feeder of a new topic; `storage` is missing."""
    topic = topic_factory(1)
    return {
        "name": f"feeder-{topic}",
        "kind": "feeder",
        "kafka": kafka,
        "right": {"topic": topic},
        "checkpoint": str(tmp_path / "checkpoint"),
    }


@contextmanager
def store(folder: Path, token: str = TOKEN) -> Iterator[dict[str, str]]:
    """`storage` of a job: a new one."""
    with server_process(folder, namespaces=[{"name": "right", "retention": "1h"}]) as (_, url):
        yield {"url": url, "namespace": "right", "token": token}


def test_a_feeder_runs_and_stops_cleanly_and_a_wiped_store_ends_it(
    job: dict[str, Any], here: JobsHere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a real broker and store; a wiped store is exit code 5, with the remedy. Positions that Kafka has forgotten
    meanwhile are there again, though no batch follows.
    """
    topic, now_ms, admin = job["right"]["topic"], wall_ms(), AdminClient(dict(job["kafka"]))
    produce(job["kafka"], topic, [Put(0, b"k%d" % i, now_ms) for i in range(5)])

    with store(tmp_path / "store") as storage, closing(GroupOffsets(job["name"], job["kafka"])) as group:
        for stored in (5, 0):
            with here.running({**job, "storage": storage}) as running:
                running.until(lambda: group.read([(topic, 0)]) == {(topic, 0): 5}, "the collector can see it")
                assert running.stop() == ExitCode.DONE
            assert sum(line["stored"] for line in running.lines) == stored
            admin.delete_consumer_groups([job["name"]])[job["name"]].result(30)
    with store(tmp_path / "wiped") as storage:
        assert here.run({**job, "storage": storage}).code == ExitCode.CHECKPOINT

    assert "new checkpoint" in caplog.text


def test_a_token_that_may_only_read_ends_the_feeder_without_a_retry(
    job: dict[str, Any],
    here: JobsHere,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its first task is refused, and so would be the next three."""
    produce(job["kafka"], job["right"]["topic"], [Put(0, b"k", wall_ms())])
    monkeypatch.setenv(READ_TOKEN_VARIABLE, "may-only-read-in-this-test")

    with store(tmp_path / "store", "may-only-read-in-this-test") as storage, here.failed_tasks() as failed:
        assert here.run({**job, "storage": storage}).code == ExitCode.BAD_JOB_FILE

    assert "CallRefused: the storage API refuses" in caplog.text
    assert failed == [], "it was retried"


@pytest.mark.slow
def test_a_recreated_topic_is_fed_again_as_the_message_says(
    job: dict[str, Any], here: JobsHere, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a new checkpoint, and nothing else."""
    produce(job["kafka"], job["right"]["topic"], [Put(0, b"k%d" % i, wall_ms()) for i in range(30)])
    with store(tmp_path / "store") as storage:
        content = {**job, "storage": storage, "trigger": "available_now"}
        assert here.run(content).code == ExitCode.DONE
        recreate(job["kafka"], job["right"]["topic"])
        produce(job["kafka"], job["right"]["topic"], [Put(0, b"n%d" % i, wall_ms()) for i in range(10)])
        assert here.run(content).code == ExitCode.DATA_LOSS
        assert "feed again with a new checkpoint" in caplog.text

        again = here.run({**content, "checkpoint": str(tmp_path / "new")})

    assert again.code == ExitCode.DONE
    assert sum(line["stored"] for line in again.lines) == 10
