"""Retention overtakes a job that was killed in the middle of a batch: the batch in Spark's log can never run."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from msgspec import structs

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.jobfile.load import load_job
from deploy.jobs.replan import forget_lost_feed, forget_lost_plan
from joins.batch.ticket import Ticket
from joins.errors import DataLoss
from joins.items import Begin
from joins.lookup.feed.spec import FedRange, FeedBatch
from joins.plan.reader import state_after
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.log.broker_log import BrokerLog
from tests.support.jobprocess import JobProcess, records
from tests.support.provenance import left_of
from tests.support.sparkjoin import Put, produce

START_MS = 1_700_000_000_000
DONE, MORE, GONE = 100, 60, 10
"""Records of each side: before the kill, after it, and of these, per partition, what retention deletes."""


def fill(kafka, job, begin, end):
    for side in ("left", "right"):
        produce(
            kafka,
            job[side]["topic"],
            [Put(i % 2, b"%d" % i, START_MS + i * 1_000, b"%d" % i) for i in range(begin, end)],
        )


def lefts(kafka, job):
    return Counter(left_of(row["headers"]) for row in records(kafka, job["output"]["topic"]))


def killed(kafka, content, tmp_path, admin):
    """The job after a run, with a plan in its checkpoint as a kill leaves it; then retention deletes part of it."""
    fill(kafka, content, 0, DONE)
    first = JobProcess(tmp_path, content)
    assert first.ended() == ExitCode.DONE, first.logged()
    fill(kafka, content, DONE, DONE + MORE)

    job = load_job(tmp_path / "job.yaml")
    done = Checkpoint(job.checkpoint).newest()
    state = state_after(job.spec, done, job.facts_folders)
    end = (DONE + MORE) // 2
    buckets = {
        n: structs.replace(
            bucket,
            left={p: r.to(end) for p, r in bucket.left.items()},
            right={p: r.to(end) for p, r in bucket.right.items()},
        )
        for n, bucket in state.buckets.items()
    }
    planned = replace(state, number=state.number + 1, listed_ms=wall_ms(), buckets=buckets)
    folder = tmp_path / "checkpoint" / "offsets"
    number = max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    lines = (folder / str(number)).read_text().strip().split("\n")
    name = lines[2].partition(":")[0] + ":" if lines[0] == "v2" else ""
    (folder / str(number + 1)).write_text("\n".join([*lines[:2], name + json.dumps(planned.to_json())]))

    for side in ("left", "right"):
        parts = [TopicPartition(content[side]["topic"], p, DONE // 2 + GONE) for p in (0, 1)]
        for deleted in admin.delete_records(parts).values():
            deleted.result(30)
    assert Checkpoint(job.checkpoint).planned(job.spec) == planned
    return planned


@pytest.mark.slow
@pytest.mark.parametrize("path", ["direct", "shuffled"])
def test_a_batch_that_cannot_be_carried_out_is_not_tried_again(kafka, window_job, tmp_path, admin, path):
    """Its records are missed by the stage before the one that delivers: the fetch, or the join before a `select`."""
    content = window_job()
    content["join"]["path"] = path
    content["output"]["select"] = {"key": "key", "value": "left_value"}
    killed(kafka, content, tmp_path, admin)

    stopped = JobProcess(tmp_path, content)

    assert stopped.ended() == ExitCode.DATA_LOSS, stopped.logged()
    assert "a batch that is planned cannot be carried out" in stopped.logged()
    assert "Lost task" not in stopped.logged()


@pytest.mark.slow
def test_a_batch_that_retention_has_overtaken_stops_the_job_or_is_planned_again(kafka, window_job, tmp_path, admin):
    """As `on_data_loss` says. Nothing is written twice, and what is skipped is counted."""
    content = window_job()
    killed(kafka, content, tmp_path, admin)

    stopped = JobProcess(tmp_path, content)
    assert stopped.ended() == ExitCode.DATA_LOSS, stopped.logged()
    said = stopped.error()
    goes_on = JobProcess(tmp_path, {**content, "on_data_loss": "continue"})

    assert "a batch that is planned cannot be carried out" in said
    assert "`on_data_loss: continue`" in said
    assert goes_on.ended() == ExitCode.DONE, goes_on.logged()
    assert "it is planned again" in goes_on.logged()
    line = json.loads(next(line for line in goes_on.logged().splitlines() if f"'left': {2 * GONE}" in line))
    assert line["level"] == "warning", "as the driver logs, though another process plans"
    half = DONE // 2
    left = [*range(half), *range(half + GONE, half + MORE // 2)]
    assert lefts(kafka, content) == Counter({f"{p}:{offset}": 1 for p in (0, 1) for offset in left})


@pytest.mark.slow
def test_a_batch_of_which_rows_are_in_the_output_is_not_planned_again(kafka, window_job, tmp_path, admin):
    """Another batch of its number would write them twice. A new checkpoint at a time goes on."""
    content = window_job(on_data_loss="continue")
    planned = killed(kafka, content, tmp_path, admin)
    job = load_job(tmp_path / "job.yaml")
    first, _ = Ticket.all_of(planned)
    bucket = OutputBucket(content["name"], first.number_of_part, content["output"]["topic"])
    digest = Begin.of(first, job.spec).digest
    with closing(TransactionalWriter(kafka, bucket)) as writer:
        writer.commit(Receipt(planned.generation, planned.number, digest, 1, done=False, at_ms=wall_ms()), {})

    assert not forget_lost_plan(job, planned)
    stopped = JobProcess(tmp_path, content)
    assert stopped.ended() == ExitCode.DATA_LOSS, stopped.logged()
    assert read_receipt(kafka, bucket)[0].number == planned.number


def test_a_feeders_batch_that_retention_has_overtaken_is_forgotten_if_it_is_to_continue(
    kafka, topic_factory, tmp_path, admin
):
    """The next plan skips what is gone. A batch that is whole or committed stays, and that of a feeder that stops."""
    content = {
        "name": "feeder",
        "kind": "feeder",
        "kafka": kafka,
        "right": {"topic": (topic := topic_factory(2, prefix="right"))},
        "storage": {"url": "http://localhost:1", "namespace": "right"},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    produce(kafka, topic, [Put(i % 2, b"%d" % i, START_MS + i, b"v") for i in range(40)])
    (tmp_path / "job.yaml").write_text(json.dumps(content))
    stops = load_job(tmp_path / "job.yaml")
    continues = replace(stops, spec=replace(stops.spec, on_data_loss="continue"))
    with closing(BrokerLog(topic, kafka)) as log:
        fed = FeedBatch(0, 0, stops.spec.identity(), log.topic_id(), "g", {0: FedRange(0, 0), 1: FedRange(0, 0)})
    planned = replace(fed, number=1, spans={0: FedRange(0, 20), 1: FedRange(0, 15)})

    def plan(batch, end, *, committed):
        for name in ("offsets", *(["commits"] if committed else [])):
            (tmp_path / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "checkpoint" / name / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end.to_json())}")

    plan(0, fed, committed=True)
    assert not forget_lost_feed(continues)
    plan(1, planned, committed=False)
    assert not forget_lost_feed(continues)

    for deleted in admin.delete_records([TopicPartition(topic, 1, 6)]).values():
        deleted.result(30)
    assert not forget_lost_feed(stops)
    assert forget_lost_feed(continues)
    assert FeedBatch.from_json(Checkpoint(stops.checkpoint).newest_end()) == fed

    plan(1, replace(planned, spans={0: FedRange(0, 21), 1: FedRange(6, 15)}), committed=False)
    for job in (stops, continues):
        with pytest.raises(DataLoss, match=f"{topic}-0 .*offset 20.*truncated"):
            forget_lost_feed(job)
