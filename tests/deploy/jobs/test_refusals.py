"""What stops `teacup run`, with one line and an exit code."""

from __future__ import annotations

import logging
from contextlib import closing

import yaml

from deploy.check.connect import findings_of
from deploy.check.findings import Level
from deploy.jobfile.load import load_job
from deploy.kinds.job_kind import kind_of
from teacup.base.errors import ExitCode
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.log.groups import GroupOffsets
from tests.deploy.jobs.filling import START_MS, fill
from tests.support.jobprocess import JobProcess, records
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


def test_a_renamed_job_is_told_the_name_of_its_checkpoint(kafka, job, here, tmp_path, caplog):
    """By which the output knows its rows: under another name they would be written again. A check says so before."""
    content = job()
    fill(kafka, content, 20)
    assert here.run(content).code is ExitCode.DONE
    file = tmp_path / "renamed.yaml"
    file.write_text(yaml.safe_dump({**content, "name": "renamed"}))

    found = [finding for finding in findings_of(kind_of(load_job(file))) if finding.what == "checkpoint"]
    assert [(finding.level, finding.code) for finding in found] == [(Level.ERROR, ExitCode.CHECKPOINT)]
    assert f"was written under the name {content['name']!r}" in found[0].text
    assert here.run({**content, "name": "renamed"}).code is ExitCode.CHECKPOINT

    line = caplog.messages[-1]
    assert f"was written under the name {content['name']!r}, and the job is 'renamed' now" in line
    assert f"Put `name: {content['name']}` back" in line
    assert here.run(content).code is ExitCode.DONE


def test_a_start_that_failed_before_it_wrote_asks_for_no_take_over(kafka, job, here, tmp_path, caplog):
    """With its own checkpoint removed, or with another one; a batch of rows changes that."""
    caplog.set_level(logging.INFO, "teacup.kafka.delivery.claim")
    content = job(topics={})
    produce(kafka, content["left"]["topic"], [Put(0, b"0", START_MS, b"no json")])
    assert here.run(content).code is ExitCode.REFUSED

    changed = {**content, "left": {**content["left"], "format": "bytes"}}
    assert here.run({**changed, "checkpoint": str(tmp_path / "second")}).code is ExitCode.DONE
    assert "the output was claimed by a start that wrote nothing and has ended" in caplog.text
    assert here.run({**changed, "checkpoint": str(tmp_path / "third")}).code is ExitCode.OUTPUT_TAKEN


def test_tombstones_are_skipped_counted_and_need_no_topic(kafka, job, here, tmp_path):
    """On both sides and both paths; without `tombstones` the first one stops the job."""
    for path in ("direct", "shuffled"):
        content = job(topics={}, join={"before": "2s", "path": path}, checkpoint=str(tmp_path / path))
        values = {"left": b'{"t": %d}', "right": b'{"t": %d}'}
        for side, value in values.items():
            content[side] |= {"format": "json", "time": "$.t"}
            puts = [Put(i % 2, b"%d" % i, START_MS, value % (START_MS + i)) for i in range(10)]
            produce(kafka, content[side]["topic"], [*puts, Put(0, b"0", START_MS, None), Put(1, b"1", START_MS, None)])
        skipping = {**content, **{side: {**content[side], "tombstones": "skip"} for side in values}}

        ran = here.run(skipping)

        assert ran.code is ExitCode.DONE
        batches = [line for line in ran.lines if line.get("event") == "batch"]
        assert sum(line["rows"].get("skipped", 0) for line in batches) == 4
        assert sum(line["rows"].get("matched", 0) for line in batches) == 10
        assert len(records(kafka, content["output"]["topic"])) == 10
    assert here.run({**content, "name": "stops", "checkpoint": content["checkpoint"] + "-2"}).code is ExitCode.REFUSED
