"""`teacup run` on a checkpoint that does not fit the output: it says so before it has fenced anything."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from contextlib import closing
from functools import partial

import pytest

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.jobfile.load import load_job
from joins.batch.ticket import Ticket
from joins.items import Begin
from teacup.base.errors import ExitCode
from teacup.base.files import with_checksum
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import Fenced
from teacup.spark.checkpoint import ends_in
from tests.support.jobprocess import JobProcess, records
from tests.support.provenance import left_of
from tests.support.sparkjoin import Put, produce

START_MS = 1_700_000_000_000
TAKE_OVER = (sys.executable, "-m", "deploy.cli", "run", "--take-over")


@pytest.fixture
def job(window_job):
    """`job(**changes)`: a job file's content, with several batches."""
    return partial(window_job, records_per_batch=100)


def fill(kafka, job, begin, end):
    """Left and right records, one of each per second."""
    for side, ms in (("left", 500), ("right", 0)):
        puts = [Put(i % 2, b"%d" % (i % 10), START_MS + i * 1_000 + ms, b"%d" % i) for i in range(begin, end)]
        produce(kafka, job[side]["topic"], puts)


def lefts(kafka, job):
    """How often each left record appears in the output."""
    return Counter(left_of(r["headers"]) for r in records(kafka, job["output"]["topic"]))


def each_once(count):
    return Counter({f"{i % 2}:{i // 2}": 1 for i in range(count)})


def newest(checkpoint):
    """The file of the newest plan."""
    return max((p for p in (checkpoint / "offsets").iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))


def delivered(kafka, job):
    """The newest batch that has a receipt; batches without rows leave none."""
    buckets = [OutputBucket(job["name"], number, job["output"]["topic"]) for number in (0, 1)]
    return max(read_receipt(kafka, bucket)[0].number for bucket in buckets)


def lose(checkpoint, number, *logs):
    """What a power failure may do: in these logs of Spark the files of this batch and later ones are gone.

    Returns the folder to which they are moved.
    """
    kept = checkpoint.with_name("kept")
    while number_in(newest(checkpoint)) >= number:
        batch = newest(checkpoint).name
        for log in logs:
            for name in (batch, f".{batch}.crc"):
                if (checkpoint / log / name).exists():
                    (kept / log).mkdir(parents=True, exist_ok=True)
                    shutil.move(checkpoint / log / name, kept / log / name)
        if "offsets" not in logs:
            break
    return kept


def number_in(plan):
    """The number of a plan's batch."""
    (end,) = ends_in(plan.read_text())
    return json.loads(end)["number"]


@pytest.mark.slow
def test_a_power_loss_that_took_the_newest_plan_stops_the_job_and_costs_nothing(kafka, job, tmp_path):
    """More records came meanwhile: the batch with the same number would differ, and used to be skipped as done."""
    content, checkpoint = job(), tmp_path / "checkpoint"
    fill(kafka, content, 0, 200)
    first = JobProcess(tmp_path, content)
    assert first.ended() == ExitCode.DONE, first.logged()
    before = lefts(kafka, content)
    kept = lose(checkpoint, delivered(kafka, content), "offsets", "commits")
    fill(kafka, content, 200, 240)

    stopped = JobProcess(tmp_path, content)
    assert stopped.ended() == ExitCode.CHECKPOINT, stopped.logged()
    last = stopped.error()
    after_stop = lefts(kafka, content)
    shutil.copytree(kept, checkpoint, dirs_exist_ok=True)
    again = JobProcess(tmp_path, content)

    assert again.ended() == ExitCode.DONE, again.logged()
    assert "Put the checkpoint's newest files" in last
    assert "--take-over" in last
    assert after_stop == before
    assert lefts(kafka, content) == each_once(240)


@pytest.mark.slow
def test_a_power_loss_that_took_only_the_commit_costs_nothing(kafka, job, tmp_path):
    """The plan is on the disk before its batch runs: the batch runs again, and finds its receipts."""
    content = job()
    fill(kafka, content, 0, 200)
    assert JobProcess(tmp_path, content).ended() == ExitCode.DONE
    lose(tmp_path / "checkpoint", 0, "commits")
    fill(kafka, content, 200, 240)

    again = JobProcess(tmp_path, content)

    assert again.ended() == ExitCode.DONE, again.logged()
    assert lefts(kafka, content) == each_once(240)


def test_a_plan_that_is_not_the_one_that_was_delivered_stops_the_job(kafka, job, here, tmp_path, caplog):
    """As when a checkpoint was copied, and both copies planned a batch with this number."""
    content, checkpoint = job(), tmp_path / "checkpoint"
    fill(kafka, content, 0, 200)
    assert here.run(content).code == ExitCode.DONE
    lose(checkpoint, delivered(kafka, content) + 1, "offsets", "commits")
    plan = newest(checkpoint)
    head, end = plan.read_text().rsplit("\n", 1)
    members = json.loads(end)
    plan.write_text(f"{head}\n{json.dumps(with_checksum({**members, 'listed_ms': members['listed_ms'] - 1}))}")

    stopped = here.run(content)

    assert stopped.code == ExitCode.CHECKPOINT
    assert "rows of another batch" in caplog.text
    assert lefts(kafka, content) == each_once(200)


def test_a_second_start_on_another_checkpoint_leaves_the_running_job_alone(kafka, job, here, tmp_path, caplog):
    """From a laptop, or by a typo in the path: it used to fence the production job and write everything again."""
    content = job(trigger={"every": "100ms"})
    fill(kafka, content, 0, 100)
    with here.running(content) as running:
        running.until(lambda: sum(lefts(kafka, content).values()) > 50, "some rows are out")

        second = here.run({**content, "checkpoint": str(tmp_path / "elsewhere")})

        assert second.code == ExitCode.OUTPUT_TAKEN
        assert "may still run" in caplog.text
        assert "--take-over" in caplog.text
        fill(kafka, content, 100, 140)
        running.until(lambda: len(lefts(kafka, content)) == 140, "the first job continues")
        assert running.stop() == ExitCode.DONE
    assert lefts(kafka, content) == each_once(140)
    assert "took over" not in caplog.text


@pytest.mark.slow
def test_a_new_checkpoint_that_takes_over_ends_the_old_one_for_good(kafka, job, tmp_path):
    """At the request of an operator who starts over at a time; also while the old job still runs."""
    content = job(trigger={"every": "100ms"})
    fill(kafka, content, 0, 100)
    old = JobProcess(tmp_path, content)
    old.until(lambda: len(lefts(kafka, content)) == 100, "all rows are out")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    replaced = {**content, "checkpoint": str(elsewhere / "checkpoint"), "trigger": "available_now", "start": "latest"}

    new = JobProcess(elsewhere, replaced, TAKE_OVER)
    assert new.ended() == ExitCode.DONE, new.logged()
    fill(kafka, content, 100, 140)
    assert old.ended() == ExitCode.OUTPUT_TAKEN, old.logged()
    again = JobProcess(tmp_path, content)
    assert again.ended() == ExitCode.OUTPUT_TAKEN
    goes_on = JobProcess(elsewhere, replaced)

    assert goes_on.ended() == ExitCode.DONE, goes_on.logged()
    assert "was taken over" in again.logged()
    assert lefts(kafka, content) == each_once(140)


def test_the_driver_and_the_tasks_agree_on_the_digest(kafka, job, here, tmp_path):
    """Otherwise no job could be restarted. The receipts are those that tasks have left."""
    content = job()
    fill(kafka, content, 0, 50)
    assert here.run(content).code == ExitCode.DONE
    made = load_job(tmp_path / "job.yaml")
    batch_plan = Checkpoint(content["checkpoint"]).planned(made.spec)

    delivered = []
    for ticket in Ticket.all_of(batch_plan):
        bucket = OutputBucket(content["name"], ticket.bucket.number, content["output"]["topic"])
        receipt, _ = read_receipt(kafka, bucket)
        if receipt.number == batch_plan.number:
            delivered.append(receipt.digest == Begin.of(ticket, made.spec).digest)

    assert delivered
    assert all(delivered)


@pytest.mark.slow
def test_an_attempt_of_an_old_checkpoint_finds_the_claim_of_the_new_one(kafka, job, tmp_path):
    """Its first batch would have overwritten the new receipt, and the new job could not have gone on."""
    content = job()
    fill(kafka, content, 0, 20)
    assert JobProcess(tmp_path, content).ended() == ExitCode.DONE
    bucket = OutputBucket(content["name"], 0, content["output"]["topic"])

    with closing(TransactionalWriter(kafka, bucket)) as old:
        old.write(bucket.topic, None, [b"late"], None, [0])
        elsewhere = {**content, "checkpoint": str(tmp_path / "other"), "start": "latest"}
        assert JobProcess(tmp_path, elsewhere, TAKE_OVER).ended() == ExitCode.DONE
        with pytest.raises(Fenced):
            old.commit(Receipt("old", 1, "d", 1, True), {bucket.topic: 1})

    assert read_receipt(kafka, bucket)[0].generation == Checkpoint(str(tmp_path / "other")).generation()
