"""What is lost, and how a job goes on, when a checkpoint, an output, receipts or a cluster are gone: whole jobs.

Each test ends as docs/disaster.md says: with the exit code and the remedy, and then with the remedy carried out.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient

from teacup.base.errors import ExitCode
from teacup.base.times import iso
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from tests.support.jobprocess import JobProcess, records
from tests.support.provenance import left_of
from tests.support.recreating import recreate
from tests.support.smalldisk import on_small_disk
from tests.support.sparkjoin import Put, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000


def at(number):
    """The time of a left record, as in a job file; right's is half a second earlier."""
    return iso(START_MS + number * 1_000)


def fill(kafka, content, begin, end):
    """One left record per second, and a right one that matches it; both say their number."""
    for side, ms in (("right", -500), ("left", 0)):
        puts = [Put(i % 2, b"%d" % (i % 10), START_MS + i * 1_000 + ms, b"%d" % i) for i in range(begin, end)]
        produce(kafka, content[side]["topic"], puts)


def rows(kafka, content):
    """How often the output has the row of each left record, by partition and offset."""
    return Counter(left_of(row["headers"]) for row in records(kafka, content["output"]["topic"]))


def positions(begin, end, times=1):
    return Counter({f"{i % 2}:{i // 2}": times for i in range(begin, end)})


def forget_receipts(kafka, content):
    """As Kafka does `offsets.retention.minutes` after the last commit."""
    admin = AdminClient(dict(kafka))
    groups = [bucket.group for bucket in buckets(content)]
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result(30)


def buckets(content):
    return [OutputBucket(content["name"], number, content["output"]["topic"]) for number in (0, 1)]


def test_a_checkpoint_from_a_backup_is_refused_and_a_lost_one_is_replaced_at_a_time(
    kafka, window_job, here, tmp_path, caplog
):
    """Rows from the start on are written again, with the same positions in their headers; all others once."""
    content, checkpoint, backup = window_job(), tmp_path / "checkpoint", tmp_path / "backup"
    fill(kafka, content, 0, 100)
    assert here.run(content).code == ExitCode.DONE
    shutil.copytree(checkpoint, backup)
    fill(kafka, content, 100, 140)
    assert here.run(content).code == ExitCode.DONE

    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    assert here.run(content).code == ExitCode.CHECKPOINT
    assert "it was put back, or copied" in caplog.text
    shutil.rmtree(checkpoint)
    assert here.run(content).code == ExitCode.OUTPUT_TAKEN
    assert "--take-over" in caplog.text
    assert rows(kafka, content) == positions(0, 140)

    shutil.rmtree(checkpoint, ignore_errors=True)
    fill(kafka, content, 140, 150)
    assert here.run({**content, "start": at(130)}, take_over=True).code == ExitCode.DONE
    assert rows(kafka, content) == positions(0, 150) + positions(130, 140)


@pytest.mark.parametrize("recreated", [False, True], ids=["expired receipts", "recreated output"])
def test_without_receipts_a_job_stops_and_a_new_checkpoint_goes_on(
    kafka, window_job, here, tmp_path, caplog, recreated
):
    """Kafka has forgotten them, or they went with the output topic. The job never guesses what is in the output."""
    content = window_job()
    fill(kafka, content, 0, 100)
    assert here.run(content).code == ExitCode.DONE
    if recreated:
        recreate(kafka, content["output"]["topic"], 2)
    else:
        forget_receipts(kafka, content)
    wait_until(
        lambda: all(read_receipt(kafka, bucket)[0] is None for bucket in buckets(content)), lambda: "receipts remain"
    )
    fill(kafka, content, 100, 140)
    before = rows(kafka, content)

    assert here.run(content).code == ExitCode.CHECKPOINT
    assert "has no receipt" in caplog.text
    assert rows(kafka, content) == before == (Counter() if recreated else positions(0, 100))

    new = {**content, "checkpoint": str(tmp_path / "new"), "start": "earliest" if recreated else at(90)}
    assert here.run(new).code == ExitCode.DONE
    assert rows(kafka, content) == positions(0, 140) + (Counter() if recreated else positions(90, 100))


def test_a_job_goes_on_from_a_time_on_topics_that_were_mirrored_with_other_offsets(
    kafka, window_job, here, tmp_path, caplog
):
    """As on another cluster: topics of the same names, with other ids and offsets, and without receipts."""
    content, missing = window_job(), 20
    content["left"]["format"] = "text"
    fill(kafka, content, 0, 100)
    assert here.run(content).code == ExitCode.DONE
    old = records(kafka, content["output"]["topic"])
    for name in ("left", "right", "output"):
        recreate(kafka, content[name]["topic"], 2)
    fill(kafka, content, missing, 140)
    mirrored = [Put(r["partition"], r["key"], r["time"], r["value"]) for r in old if left_number(r) >= missing]
    produce(kafka, content["output"]["topic"], mirrored)

    assert here.run(content).code == ExitCode.DATA_LOSS
    assert "was deleted and recreated" in caplog.text
    assert "`start: TIME`) with `teacup run --take-over`" in caplog.messages[-1]
    new = {**content, "checkpoint": str(tmp_path / "new"), "start": at(90)}
    assert here.run(new, take_over=True).code == ExitCode.DONE

    written = records(kafka, content["output"]["topic"])
    assert Counter(map(left_number, written)) == Counter(range(missing, 140)) + Counter(range(90, 100))
    of_new = Counter(left_of(row["headers"]) for row in written if row["headers"])
    assert of_new == positions(90 - missing, 140 - missing), "positions are those of the mirrored topics"


def left_number(row):
    """What the left record of a row says."""
    return int(json.loads(row["value"])["left"]["value"])


FULL = """
mount -t tmpfs -o size=128k tmpfs "$0" || exit 99
"$@"
echo "ended with $? on a full disk" >&2
"$1" -m deploy.cli status "$5" >&2
cat /dev/zero > "$0/filler"
"$1" -m deploy.cli check --connect "$5" >&2
rm "$0/filler"
mount -o remount,ro "$0"
"$@"
echo "ended with $? on a read-only disk" >&2
mount -o remount,rw,size=64m "$0"
exec "$@"
"""
"""In a mount namespace of its own: the job on a disk that fills up, is read-only, and has room again."""


def test_a_job_whose_checkpoint_is_on_a_full_disk_goes_on_once_there_is_room(kafka, window_job, tmp_path):
    """Nothing is lost, and nothing is written twice. The job names the folder and what is left there; `status` knows
    how it ended, as the record of the run has its room; `check` tries the disk.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    content = window_job(records_per_batch=20, checkpoint=str(disk / "checkpoint"))
    fill(kafka, content, 0, 400)
    run = (sys.executable, "-m", "deploy.cli", "run")

    job = JobProcess(tmp_path, content, ("unshare", "--map-root-user", "--mount", "sh", "-c", FULL, str(disk), *run))

    assert job.ended() == ExitCode.DONE, job.logged()
    said = job.logged()
    assert [int(code) for code in re.findall(r"ended with (\d+) on a", said)] == [ExitCode.CHECKPOINT] * 2
    assert f"DiskFull: the disk of checkpoint {disk}/checkpoint took nothing more: No space left on device" in said
    assert "bytes free)" in said
    assert re.search(r"failed \(5\)", said)
    assert re.search(rf"error +checkpoint +the disk of {disk}/checkpoint is full \(0 bytes free\)", said)
    assert (
        f"the disk of the checkpoint {disk}/checkpoint took nothing more: Read-only file system; it is read-only"
        in said
    )
    assert rows(kafka, content) == positions(0, 400)


def test_a_job_whose_window_folder_is_on_a_full_disk_goes_on_in_memory(kafka, window_job, tmp_path):
    """It is a cache: the job says which folder it is, and what is left there, and writes every row."""
    disk = tmp_path / "disk"
    content = window_job(records_per_batch=20, window_folder=str(disk / "windows"))
    fill(kafka, content, 0, 400)
    run = (*on_small_disk(disk, "16k"), sys.executable, "-m", "deploy.cli", "run")

    job = JobProcess(tmp_path, content, run)

    assert job.ended() == ExitCode.DONE, job.logged()
    said = re.search(r"the window's folder (\S+) cannot be written to \(\[Errno 28\] (.+?)\): the join", job.logged())
    assert said, job.logged()
    assert said[1].startswith(f"{disk}/windows/")
    assert "its disk is full (0 bytes free): make room there" in said[2]
    assert rows(kafka, content) == positions(0, 400)
