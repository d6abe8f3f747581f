"""`teacup move`: a new checkpoint of a join goes on where another one ended, though the join has changed.

    move      notes in the new checkpoint where left goes on, and after which batch of which generation
    started   what a job then starts with: left at those offsets, and the right to the output of that generation

Only a checkpoint whose last batch was carried out to its end can be left: until then it is not known what of the batch
is in the output. Neither Spark nor the output is touched; the first run claims the output (`beginning`).
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace

from deploy.errors import CheckpointUnreadable, CheckpointUnusable
from deploy.jobs.checkpoint import Checkpoint
from deploy.jobs.job import JoinJob
from deploy.jobs.lock import checkpoint_lock
from joins.admission.committed import state_after
from joins.admission.moved import Moved, as_it_was
from joins.admission.reader import open_log
from joins.admission.state import Admission
from joins.errors import DataLoss
from joins.spec import JoinSpec

log = logging.getLogger("teacup.deploy.jobs.moving")


def move(job: JoinJob, other: str) -> Moved:
    """Let the new checkpoint of a job go on after another one, which no job may be running on.

    other   a folder or URL: the checkpoint that the job had until now

    Raises `CheckpointUnusable`, `CheckpointUnreadable`, `SpecChanged`, `DataLoss`, `KafkaIOError`.
    """
    if job.checkpoint == other:
        raise CheckpointUnusable(
            f"checkpoint {other!r} is the one to leave: name a new one in the job file (`checkpoint`)"
        )
    with checkpoint_lock(other), checkpoint_lock(job.checkpoint):
        new = Checkpoint(job.checkpoint)
        if new.newest() is not None:
            raise CheckpointUnusable(
                f"checkpoint {job.checkpoint!r} has batches of its own already: give the job a new one (`checkpoint`)"
            )
        moved = Moved.of(_ended(job, other), job.spec)
        new.keep_moved(moved)
    return moved


def started(job: JoinJob) -> tuple[JoinSpec, Moved | None]:
    """The join as a new checkpoint starts it: where another one ended, if it was moved. Raises `DataLoss`."""
    try:
        moved = Checkpoint(job.checkpoint).moved()
    except CheckpointUnreadable as error:  # with exactly once it is read again, and then it is an error
        log.warning("%s: whether the job was moved here is not known, and it starts as its `start` says", error)
        moved = None
    if moved is None:
        return job.spec, None
    with closing(open_log(job.spec, job.spec.left)) as left:
        topic_id = left.topic_id()
    if topic_id != moved.topic_id:
        raise DataLoss(
            f"left topic {job.spec.left.topic!r} was deleted and recreated (id {moved.topic_id} -> {topic_id}) since "
            "the other checkpoint read it: give a new checkpoint and a `start`"
        )
    return moved.apply(job.spec), moved


def _ended(job: JoinJob, other: str) -> Admission:
    """The state after the last batch of a checkpoint that no job runs on."""
    old = Checkpoint(other)
    last = old.newest()
    if last is None:
        raise CheckpointUnusable(f"checkpoint {other!r} has no batch of a join: there is nothing to go on after")
    if not old.is_committed():
        raise CheckpointUnusable(
            f"the last batch of checkpoint {other!r}, {last.number}, was not carried out to its end: start the job "
            "once with the job file that it had, stop it with Ctrl-C, and repeat this"
        )
    was = as_it_was(job.spec, last)
    return state_after(was, last, replace(job, checkpoint=other).facts_folders)
