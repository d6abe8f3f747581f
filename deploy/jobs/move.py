"""`teacup move`: a new checkpoint of a join goes on where another one ended, though the join has changed.

move      notes in the new checkpoint where left goes on, and after which batch of which generation (`Handover`)
started   gives the join as the job then starts it: left at those offsets, with the right to that generation's output

The other checkpoint's last batch must be completed; otherwise it is unknown what of it is in the output. Neither Spark
nor the output is touched; the first run claims the output (`join_start.take_output`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.place import folder, newest_folder
from deploy.errors import CheckpointUnusable
from deploy.jobfile.job import JoinJob
from deploy.jobs.rewind.in_output import rows_in_output
from deploy.output.kept import rows_that_stay
from joins.batch.handover import Handover, as_it_was
from joins.batch.state import BatchPlan
from joins.errors import REMEDY, DataLoss
from joins.plan.reader import open_log, state_after
from joins.spec import JoinSpec, JoinType
from teacup.base.fields import local_folder
from teacup.spark.errors import CheckpointUnreadable

log = logging.getLogger("teacup.deploy.jobs.move")


def move(job: JoinJob, other: str) -> Handover:
    """Lets the new checkpoint of a job go on after another one, on which no job may be running.

    other   the job's previous checkpoint: a folder or URL

    Raises `CheckpointUnusable`, `CheckpointUnreadable`, `SpecChanged`, `DataLoss`, `KafkaIOError`.
    """
    if job.checkpoint == other:
        raise CheckpointUnusable(
            f"checkpoint {other!r} is the one to move from: name a new one in the job file (`checkpoint`)"
        )
    if Checkpoint(newest_folder(other)).newest() is None:
        raise CheckpointUnusable(f"checkpoint {other!r} has no batch of a join: there is nothing to continue from")
    with checkpoint_lock(other), checkpoint_lock(job.checkpoint):
        new = Checkpoint(job.checkpoint)
        if new.newest() is not None:
            raise CheckpointUnusable(
                f"checkpoint {job.checkpoint!r} has batches of its own already: give the job a new one (`checkpoint`)"
            )
        before = Checkpoint(newest_folder(other)).moved()
        earlier = () if before is None else before.generations
        state = _ended(job, other)
        moved = Handover.of(state, other, job.spec, job.output.topic, earlier)
        if job.spec.right.type is JoinType.FULL and state.identity["right.topic"] == job.spec.right.topic:
            rows = rows_in_output(job, moved.left, moved.generations, time_ms=state.expiry_ms)
            moved = replace(moved, kept=rows.to_json())
        elif (stay := rows_that_stay(before, moved.left)) is not None:
            moved = replace(moved, kept=stay.to_json())
        new.keep_moved(moved)
    return moved


@contextmanager
def started(job: JoinJob, moved: Handover | None) -> Iterator[JoinSpec]:
    """Yields the join as it starts: where another checkpoint ended, which stays locked, if this one goes on after it.

    Raises `CheckpointUnusable`, `SpecChanged`, `DataLoss`, `KafkaIOError`.
    """
    if moved is None:
        yield job.spec
        return
    local = local_folder(moved.checkpoint)
    others = moved.rewound is None and (local is None or local.exists())  # the job already has its own lock
    with checkpoint_lock(moved.checkpoint) if others else nullcontext():
        _check_not_gone_on(job, moved)
        with closing(open_log(job.spec, job.spec.left)) as left:
            topic_id, partitions = left.topic_id(), left.partition_count()
        spec = moved.apply(job.spec, job.output.topic, partitions)
        if topic_id != moved.topic_id:
            raise DataLoss(
                f"left topic {job.spec.left.topic!r} was deleted and recreated (id {moved.topic_id} -> {topic_id}) "
                f"since the other checkpoint read it: {REMEDY}"
            )
        yield spec


def _check_not_gone_on(job: JoinJob, moved: Handover) -> None:
    """Checks that the other checkpoint has not gone on, which at-least-once output has no receipts to show."""
    rewound, command = moved.rewound, "teacup move" if moved.rewound is None else "teacup rewind"
    try:
        other = newest_folder(moved.checkpoint) if rewound is None else folder(job.locked, rewound.after)
        checkpoint = Checkpoint(other)
        last = checkpoint.newest()
        completed = last is not None and checkpoint.is_committed()
    except CheckpointUnreadable as error:
        log.warning("%s. Whether its job has gone on since `%s` is not known", error, command)
        return
    if last is None:
        return
    as_noted = rewound is None or rewound.completed == completed
    if (last.generation, last.number) != (moved.generation, moved.number) or not as_noted:
        raise CheckpointUnusable(
            f"this checkpoint goes on after batch {moved.number} of checkpoint {other!r}, which has reached batch "
            f"{last.number} since: stop that job, and repeat `{command}`"
        )


def _ended(job: JoinJob, other: str) -> BatchPlan:
    """Returns the batch plan that would follow the last batch of a checkpoint that no job runs on."""
    where = newest_folder(other)
    old = Checkpoint(where)
    last = old.newest()
    assert last is not None
    if not old.is_committed():
        raise CheckpointUnusable(
            f"the last batch of checkpoint {other!r}, {last.number}, was not completed: start the job "
            "once with the job file that it had, stop it with Ctrl-C if it goes on, and repeat this"
        )
    return state_after(as_it_was(job.spec, last), last, replace(job, checkpoint=where).facts_folders)
