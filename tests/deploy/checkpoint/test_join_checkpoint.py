"""What a checkpoint says before Spark starts, and why it may say nothing. No broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dedup.topic.source import Ranges, following
from deploy.checkpoint.join_checkpoint import DEDUP, FEEDER, GENERATION, JOIN, MOVED, Checkpoint, planned_or_moved
from deploy.errors import CheckpointOfAnother
from deploy.jobfile.job import JoinJob, Output
from deploy.jobs.move import started
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.errors import SpecChanged
from joins.lookup.feed.spec import FedRange, FeedBatch, FeedSpec, FeedStorage
from joins.spec import JoinSpec, Right, Side
from teacup.base.errors import ExitCode
from teacup.base.files import with_checksum
from teacup.kafka.log.topic_log import Ends
from teacup.spark.errors import CheckpointDriverMissing, CheckpointInvalid, CheckpointUnreachable
from tests.support.making import changed

SPEC = JoinSpec(name="j", left=Side(topic="clicks"), right=Right(topic="impressions", before_ms=1, after_ms=1))
AFTER = Handover(
    checkpoint="/old",
    generation="g",
    number=7,
    name="j",
    output="out",
    topic="clicks",
    topic_id="id",
    left={0: 5},
)


@pytest.mark.parametrize("plan", ["v1\n{}\n%s", "v2\n{}\nsource:%s"])
def test_the_newest_plan_is_read_from_both_versions_of_the_offset_log(tmp_path: Path, plan: str) -> None:
    """Spark 4 writes either of them."""
    batch_plan = BatchPlan("generation", 3, 1, 0, 1, SPEC.identity(), {"left": ("id", 0)})
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(plan % json.dumps(batch_plan.to_json()))

    assert Checkpoint(str(tmp_path)).planned(SPEC) == batch_plan


def kept(folder: Path, end: dict[str, Any], name: str | None = None) -> Checkpoint:
    """A checkpoint with one batch that ends like this, of a job of this name."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(with_checksum(end))}")
    checkpoint = Checkpoint(str(folder))
    if name is not None:
        checkpoint.keep_name(name)
    return checkpoint


def test_the_checkpoint_of_another_join_names_that_one(tmp_path: Path) -> None:
    """And not `teacup move`, which takes the same left topic only; that goes for a join that was changed."""
    other = replace(SPEC, name="orders", left=Side(topic="orders"))
    longer = changed(SPEC, before_ms=2)
    plans = {
        name: BatchPlan("g", 3, 1, 0, 1, spec.identity(), {}).to_json()
        for name, spec in (("other", other), ("longer", longer))
    }

    with pytest.raises(CheckpointOfAnother, match=r"the join 'orders', which reads 'orders' and 'impr.*of its own$"):
        kept(tmp_path / "other", plans["other"], "orders").planned(SPEC)
    with pytest.raises(CheckpointOfAnother, match=r"the join 'sales', which reads 'clicks' and 'impr.*of its own$"):
        kept(tmp_path / "named", plans["longer"], "sales").planned(SPEC)
    with pytest.raises(CheckpointOfAnother, match="another job: a join, which reads 'orders'"):
        kept(tmp_path / "without", plans["other"]).planned(SPEC)
    with pytest.raises(SpecChanged, match=r"another join than 'j' \(join.before: 2ms -> 1ms\).*`teacup move`"):
        kept(tmp_path / "changed", plans["longer"], "j").planned(SPEC)


def test_the_checkpoint_of_a_job_of_another_kind_says_whose_it_is(tmp_path: Path) -> None:
    storage = FeedStorage(url="http://s", namespace="n")
    spec = FeedSpec(name="f", right=Side(topic="impressions"), storage=storage)
    fed = FeedBatch(3, 1, spec.identity(), "id", "s", {0: FedRange(0, 5)})
    ranges = Ranges("clicks", {}, 100, "earliest")
    feeder = kept(tmp_path / "feeder", fed.to_json())
    dedup = kept(tmp_path / "dedup", following({}, "id", {0: Ends(0, 5, 5)}, ranges))
    join = kept(tmp_path / "join", BatchPlan("g", 3, 1, 0, 1, SPEC.identity(), {}).to_json())

    with pytest.raises(CheckpointOfAnother, match="another job: a feeder, which reads 'impressions'"):
        feeder.planned(SPEC)
    with pytest.raises(CheckpointOfAnother, match="another job: a deduplicator, which reads 'clicks'"):
        dedup.planned(SPEC)
    for checkpoint, kind in ((join, FEEDER), (join, DEDUP), (feeder, DEDUP), (dedup, FEEDER)):
        with pytest.raises(CheckpointOfAnother):
            checkpoint.check_kind(checkpoint.newest_end(), kind)
    for checkpoint, kind in ((join, JOIN), (feeder, FEEDER), (dedup, DEDUP)):
        checkpoint.check_kind(checkpoint.newest_end(), kind)


def test_a_flipped_bit_in_the_newest_plan_is_noticed(tmp_path: Path) -> None:
    """Wherever it is in what the job planned: another offset would lose rows, or write them twice."""
    buckets = {0: Bucket(0, {0: PartitionRange(5, 17)}, {0: PartitionRange(7, 19)})}
    batch_plan = BatchPlan("g", 3, 1, 0, 1, SPEC.identity(), {"left": ("id", 1)}, buckets)
    text = json.dumps(with_checksum(batch_plan.to_json())).encode()
    (tmp_path / "offsets").mkdir()
    path, checkpoint = tmp_path / "offsets" / "4", Checkpoint(str(tmp_path))

    for at in range(len(text)):
        path.write_bytes(b"v1\n{}\n" + text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        with suppress(CheckpointInvalid):
            assert checkpoint.newest() == batch_plan


def test_the_generation_of_a_new_checkpoint_stays(tmp_path: Path) -> None:
    """A start that dies before its first plan is continued."""
    location = f"file://{tmp_path}/checkpoint"

    assert Checkpoint(location).generation() == Checkpoint(str(tmp_path / "checkpoint")).generation()


@pytest.mark.parametrize("plan", ["", 'v1\n{}\n{"format": 1'])
def test_a_truncated_plan_is_named(tmp_path: Path, plan: str) -> None:
    """As a power failure leaves it. Starting again would not help."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(plan)

    with pytest.raises(CheckpointInvalid, match=r"`offsets/7`.*`commits/7`") as refused:
        Checkpoint(str(tmp_path)).newest()

    assert refused.value.exit_code is ExitCode.CHECKPOINT


@pytest.mark.parametrize(
    "damaged",
    [lambda _: b"", lambda _: b"{}", lambda note: note[9:], lambda note: note.replace(b'"0":5', b'"0":4')],
)
def test_a_damaged_note_of_a_move_is_named(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    """The job would start somewhere else."""
    Checkpoint(str(tmp_path)).keep_moved(AFTER)
    note = tmp_path / MOVED
    note.write_bytes(damaged(note.read_bytes()))

    with pytest.raises(CheckpointInvalid, match=r"`teacup\.moved`.*`teacup move`"):
        Checkpoint(str(tmp_path)).moved()


def test_a_flipped_bit_of_a_file_of_ours_is_noticed(tmp_path: Path) -> None:
    """Wherever it is."""
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.keep_moved(AFTER)
    checkpoint.generation()

    for name, read in ((MOVED, checkpoint.moved), (GENERATION, checkpoint.generation)):
        path = tmp_path / name
        whole = path.read_bytes()
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            with pytest.raises(CheckpointInvalid, match=f"`{name}` is damaged"):
                read()


def test_a_checkpoint_without_a_driver_says_what_to_install() -> None:
    """Receipts are compared with it."""
    with pytest.raises(CheckpointDriverMissing, match=r"nosuch.*Install the fsspec driver") as refused:
        Checkpoint("nosuch://host/checkpoint")

    assert refused.value.exit_code is ExitCode.BAD_JOB_FILE


class Silent(MemoryFileSystem):
    """A file system that does not answer."""

    protocol = "silent"

    def exists(self, path: str, **_: Any) -> bool:
        raise ConnectionError("no route to host")

    cat_file = exists


def test_a_file_system_that_does_not_answer_is_worth_another_start() -> None:
    """Nothing is wrong with the checkpoint."""
    fsspec.register_implementation("silent", Silent, clobber=True)
    checkpoint = Checkpoint("silent://bucket/checkpoint")

    for call in (checkpoint.newest, checkpoint.moved, checkpoint.generation, checkpoint.is_committed):
        with pytest.raises(CheckpointUnreachable, match=r"silent://.*ConnectionError: no route to host") as refused:
            call()
        assert refused.value.exit_code is ExitCode.UNREACHABLE


def job_on(checkpoint: str) -> JoinJob:
    return JoinJob(kind="window-join", checkpoint=checkpoint, spec=SPEC, output=Output(topic="out"))


def test_a_look_finds_the_plan_or_after_which_checkpoint_a_new_one_goes_on(tmp_path: Path) -> None:
    """A checkpoint with a plan no longer goes on after another one."""
    job, batch_plan = job_on(str(tmp_path)), BatchPlan("g", 8, 1, 0, 1, SPEC.identity(), {"left": ("id", 0)})

    new = planned_or_moved(job)
    Checkpoint(job.checkpoint).keep_moved(AFTER)
    noted = planned_or_moved(job)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(batch_plan.to_json())}")
    planned = planned_or_moved(job)

    assert new == (None, None)
    assert noted == (None, AFTER)
    assert planned == (batch_plan, None)
    with started(job, None) as spec:
        assert spec is job.spec
