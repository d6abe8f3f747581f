"""`teacup rewind --into`: writes a time range's rows to another topic, beside the live job.

It is a job of its own, `NAME.backfill`, with its own checkpoint, transactions and receipts, so the live job and its
output are not touched. It reads left between the offsets where the two times begin, right as far as that needs, and
ends. The offsets are noted in its checkpoint first, so that a stopped or killed backfill goes on with the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from deploy.check.access import check_topics
from deploy.check.uses import Named
from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.past import begins_at
from deploy.errors import CheckpointUnusable
from deploy.jobfile.job import JoinJob
from joins.errors import SpecError
from joins.spec import JoinType
from teacup.base.now import wall_ms
from teacup.base.times import iso

BACKFILL = "teacup.backfill"


@dataclass(frozen=True, kw_only=True, slots=True)
class Backfill:
    """A backfill to run.

    job      its job, which ends by itself
    left     by partition, the offsets [start, end) of left
    resumed  whether it had begun before
    lost     what retention has deleted
    """

    job: JoinJob
    left: Mapping[int, tuple[int, int]]
    resumed: bool
    lost: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Returns how many offsets of left it covers."""
        return sum(end - start for start, end in self.left.values())


@dataclass(frozen=True, slots=True)
class _Noted:
    """What the checkpoint of a backfill that has begun says of it."""

    from_ms: int
    until_ms: int
    left: Mapping[int, tuple[int, int]]

    def of(self, from_ms: int, until_ms: int, checkpoint: str) -> Mapping[int, tuple[int, int]]:
        """Returns the offsets of left. Raises `CheckpointUnusable` if the backfill is of other times."""
        if (self.from_ms, self.until_ms) != (from_ms, until_ms):
            raise CheckpointUnusable(
                f"checkpoint {checkpoint!r} is of a backfill from {iso(self.from_ms)} until {iso(self.until_ms)}: "
                "give these times to go on with it, or another topic"
            )
        return self.left


def backfill(job: JoinJob, from_ms: int, until_ms: int, topic: str, *, dry_run: bool = False) -> Backfill:
    """Returns the backfill of a job's left records of [from_ms, until_ms) into a topic.

    Raises `SpecError`, `TopicsMissing`, `CheckpointUnusable`, `CheckpointUnreadable`, `DataLoss`, `KafkaIOError`.
    """
    if job.spec.right.type is JoinType.FULL:
        raise SpecError(
            "join.type: whether a right record at the edges of the range is in a row depends on left records outside "
            "of it, so `full` is not supported here; write the rows of left alone (`--set join.type=left`)"
        )
    output = job.output
    if topic in (output.topic, *output.side_topics.values()):
        raise SpecError(f"--into: {topic!r} is a topic that the job writes to: give one of its own")
    if topic in (job.spec.left.topic, job.spec.right.topic):
        raise SpecError(f"--into: {topic!r} is a topic that the job reads: give one of its own")
    if until_ms > wall_ms():
        raise SpecError(f"--until: {iso(until_ms)} has not come yet: a backfill ends where that time begins")
    check_topics([Named("--into", topic, job.written_with, ("Describe",))])  # before a range is noted for it
    checkpoint = f"{job.checkpoint.rstrip('/')}/backfill/{topic}"
    beside = replace(
        job,
        spec=replace(job.spec, name=f"{job.spec.name}.backfill"),
        output=replace(output, topic=topic, late=None, unmatched=None, unjoined=None),
        checkpoint=checkpoint,
        trigger_ms=None,
        metrics=None,
        lineage=None,
    )
    with nullcontext() if dry_run else checkpoint_lock(checkpoint):
        noted = Checkpoint(checkpoint).read_file(BACKFILL, _Noted, "Remove the folder, and give another topic")
        lost: tuple[str, ...] = ()
        if noted is None:
            first, end = begins_at(beside, from_ms), begins_at(_without_loss(beside), until_ms)
            left: Mapping[int, tuple[int, int]] = {
                p: (start, max(end.left.get(p, start), start)) for p, start in first.left.items()
            }
            lost = first.lost
            if not any(start < end for start, end in left.values()):
                raise CheckpointUnusable(f"no left record is between {iso(from_ms)} and {iso(until_ms)}")
            if not dry_run:
                Checkpoint(checkpoint).write_file(BACKFILL, _Noted(from_ms, until_ms, left))
        else:
            left = noted.of(from_ms, until_ms, checkpoint)
    spec = replace(beside.spec, start={p: start for p, (start, _) in left.items()})
    until = {p: end for p, (_, end) in left.items()}
    return Backfill(job=replace(beside, spec=spec, until=until), left=left, resumed=noted is not None, lost=lost)


def _without_loss(job: JoinJob) -> JoinJob:
    """Returns the job without its reaction to losses, for finding its end: losses were found at its beginning."""
    return replace(job, spec=replace(job.spec, on_data_loss="continue"))
