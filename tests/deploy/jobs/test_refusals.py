"""What stops `teacup run`, with one line and an exit code."""

from __future__ import annotations

from contextlib import closing

from kafkaio.delivery.fencing import OutputBucket
from kafkaio.exitcode import ExitCode
from kafkaio.groups import GroupOffsets
from kafkaio.now import wall_ms
from tests.deploy.jobs.filling import fill
from tests.support.jobprocess import JobProcess
from tests.support.sparkjoin import Put, produce


def test_a_second_process_on_the_checkpoint_stops(kafka, job, tmp_path):
    """It says which process holds it."""
    content = job(trigger={"every": "100ms"})
    fill(kafka, content, 20)
    first = JobProcess(tmp_path, content)
    first.until(lambda: first.lines, "the first batch")
    other = tmp_path / "other"
    other.mkdir()

    second = JobProcess(other, content)

    assert second.ended() == ExitCode.CHECKPOINT
    assert str(first.process.pid) in second.logged()
    assert first.stop() == ExitCode.DONE


def test_what_stops_a_job_is_its_exit_code(kafka, job, tmp_path):
    """Another join on the checkpoint; a bad record without a dead-letter topic."""
    content = job()
    fill(kafka, content, 20)
    assert JobProcess(tmp_path, content).ended() == ExitCode.DONE

    changed = JobProcess(tmp_path, {**content, "join": {"before": "3s", "after": "1s"}})
    assert changed.ended() == ExitCode.CHECKPOINT
    assert "join.before: 2s -> 3s" in changed.logged()

    produce(kafka, content["left"]["topic"], [Put(0, b"0", wall_ms() - 20_000, b"no json")])
    refused = JobProcess(tmp_path, {**content, "topics": {}})
    assert refused.ended() == ExitCode.REFUSED
    assert "topics.dead_letter" in refused.logged()
    assert "JobEnded" not in refused.logged(), "a class name that says nothing"
    assert "Lost task" not in refused.logged(), "it was retried"
    assert "Traceback" not in refused.logged()
    assert "\tat " not in refused.logged(), "Java's stacks drown what matters"


def test_missing_topics_are_all_reported_before_spark_starts(kafka, job, tmp_path):
    """Each with its key; a side topic too, although it may be written to only weeks later."""
    content = job(topics={"late": "nowhere-1"}, output={"topic": "nowhere-2"})

    started = JobProcess(tmp_path, content)

    assert started.ended() == ExitCode.BAD_JOB_FILE
    (line,) = started.logged().strip().splitlines()
    assert "topics.late: Kafka has no topic 'nowhere-1'" in line
    assert "output.topic: Kafka has no topic 'nowhere-2'" in line


def test_topics_that_differ_in_partitions_are_refused_before_the_output_is_claimed(kafka, job, topic_factory, tmp_path):
    """After the mistake is corrected, a new checkpoint finds nobody's receipts."""
    content = job()
    content["join"]["path"] = "direct"
    other = {**content, "right": {**content["right"], "topic": topic_factory(5)}}

    refused = JobProcess(tmp_path, other)

    assert refused.ended() == ExitCode.NOT_CO_PARTITIONED
    assert "has 5. Leave `join.path` out" in refused.logged()
    with closing(GroupOffsets(OutputBucket(content["name"], 0, content["output"]["topic"]).group, kafka)) as receipts:
        assert receipts.read([(content["output"]["topic"], 0)]) == {(content["output"]["topic"], 0): None}
