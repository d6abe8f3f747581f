"""What stops `teacup run`, with one line and an exit code."""

from __future__ import annotations

from contextlib import closing

from teacup.base.errors import ExitCode
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.log.groups import GroupOffsets
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import JobProcess
from tests.support.sparkjoin import Put, produce


def test_what_stops_a_job_is_its_exit_code(kafka, job, here, tmp_path, caplog):
    """A bad record without a dead-letter topic; another join on the checkpoint."""
    content = job(topics={})
    produce(kafka, content["left"]["topic"], [Put(0, b"0", START_MS, b"no json")])
    fill(kafka, content, 20)

    refused = JobProcess(tmp_path, content)
    assert refused.ended() == ExitCode.REFUSED
    changed = here.run({**content, "join": {"before": "3s", "after": "1s"}})

    assert "topics.dead_letter" in refused.logged()
    assert "JobEnded" not in refused.logged(), "a class name that says nothing"
    assert "Lost task" not in refused.logged(), "it was retried"
    assert "Traceback" not in refused.logged()
    assert "\tat " not in refused.logged(), "Java's stacks drown what matters"
    assert changed.code == ExitCode.CHECKPOINT
    assert "join.before: 2s -> 3s" in caplog.text


def test_missing_topics_are_all_reported_before_spark_starts(job, here, caplog):
    """Each with its key; a side topic too, although it may be written to only weeks later."""
    refused = here.run(job(topics={"late": "nowhere-1"}, output={"topic": "nowhere-2"}))

    assert refused.code == ExitCode.BAD_JOB_FILE
    assert "topics.late: Kafka has no topic 'nowhere-1'" in caplog.text
    assert "output.topic: Kafka has no topic 'nowhere-2'" in caplog.text


def test_topics_that_differ_in_partitions_are_refused_before_the_output_is_claimed(
    kafka, job, topic_factory, here, caplog
):
    """After the mistake is corrected, a new checkpoint finds nobody's receipts."""
    content = job()
    content["join"]["path"] = "direct"
    content["right"]["topic"] = topic_factory(5)

    refused = here.run(content)

    assert refused.code == ExitCode.NOT_CO_PARTITIONED
    assert "has 5. Leave `join.path` out" in caplog.text
    with closing(GroupOffsets(OutputBucket(content["name"], 0, content["output"]["topic"]).group, kafka)) as receipts:
        assert receipts.read([(content["output"]["topic"], 0)]) == {(content["output"]["topic"], 0): None}
