"""`teacup rewind`: takes a stopped job back to a time, with both sides and the window.

1. Take the checkpoint's lock, so that no job runs on it. Look up in the topics where the time begins.
2. With exactly once, fence the output's earlier writers, so that its receipts and rows are final until a job starts.
   With `KEEP`, look up in the output which left records have a row.
3. Note all this in a new folder of the checkpoint (`Handover`, `Rewound`): where left goes on, what the receipts
   said, which rows stay.
4. Name that folder in `teacup.rewound` (`deploy.checkpoint.place`). Only this changes anything: killed before, the
   command starts over; killed after, it is done.

The next start is that of a new checkpoint: a new generation, with left at those offsets, and right from as far back as
they need. It claims the output if the receipts are still as noted. The old folder is not touched.

An undo before that start names the old folder again. Later, rows may have been written beyond where the old folder
ended, so an undo is a rewind too: each left partition goes on where the old folder ended, or the new one if that is
further, and no row is written twice. Rows of uncompleted batches of either stay (`KEEP`). So do those of an uncompleted
batch that begins before the time of a rewind with `AGAIN`, up to that time, and those kept by an earlier rewind that
the job has not caught up with.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.lock import checkpoint_lock
from deploy.checkpoint.past import Past, begins_at, past_of
from deploy.checkpoint.place import Place, folder, go_on_in, place_of
from deploy.errors import CheckpointUnusable
from deploy.jobfile.job import JoinJob
from deploy.jobs.join_start import buckets_of
from deploy.jobs.rewind.in_output import rows_in_output
from deploy.output.kept import RowsToKeep
from joins.batch.handover import Handover, Rewound, as_it_was
from joins.batch.state import BatchPlan
from joins.errors import REMEDY, DataLoss, SpecError
from joins.spec import JoinType, Policy
from teacup.base.times import iso
from teacup.kafka.delivery.claim import settled
from teacup.kafka.delivery.receipt import Receipt


class WrittenRows(StrEnum):
    """What becomes of rows that are in the output already."""

    KEEP = "keep"
    AGAIN = "again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewinding:
    """What a rewind, or its undo, does; for people.

    number   the folder in which the job goes on
    was, left   by left partition, how far it was read, and where it goes on
    right    where right is read from; empty: found at the start
    kept     how many left records have rows that stay; None: not looked up
    before   with `AGAIN`: how many left records before the time keep their rows
    lost     what retention has deleted
    """

    number: int
    was: Mapping[int, int]
    left: Mapping[int, int]
    right: Mapping[int, int]
    kept: int | None = None
    before: int = 0
    lost: tuple[str, ...] = ()


def rewind(job: JoinJob, time_ms: int, written: WrittenRows, *, dry_run: bool = False) -> Rewinding:
    """Takes a job back to a time that it has passed.

    Raises `CheckpointUnusable`, `CheckpointUnreadable`, `SpecChanged`, `SpecError`, `DataLoss`, `ForeignRow`,
    `ReceiptRefused`, `KafkaIOError`; then nothing has changed.
    """
    if written is WrittenRows.KEEP and job.spec.right.policy is Policy.ALL:
        raise SpecError(
            "join.policy: with `all` a left record has several rows, and some of them may be missing: write them again "
            "(`--written again`), or to another topic (`--into`)"
        )
    with nullcontext() if dry_run else checkpoint_lock(job.locked):
        place = place_of(job.locked)
        past = past_of(job, place.number)
        begins = begins_at(job, time_ms, past.left)
        if begins.topic_id != past.plan.topics["left"][0]:
            raise DataLoss(f"left topic {job.spec.left.topic!r} was deleted and recreated: {REMEDY}")
        if past.settled and not any(begins.left[p] < offset for p, offset in past.left.items()):
            raise CheckpointUnusable(f"the job has read nothing from {iso(time_ms)} on: there is nothing to go back to")
        here = replace(job, spec=begins.spec)
        receipts = {} if dry_run else _receipts(here, past.plan)
        kept = stay = None
        in_output = partial(rows_in_output, here, begins.left, past.generations, time_ms=time_ms)
        further = not past.settled and any(begins.left[p] < offset for p, offset in begins.reached.items())
        if written is WrittenRows.KEEP:
            kept = in_output()
        elif further or job.spec.right.type is JoinType.FULL:
            if further and job.spec.right.policy is Policy.ALL:
                raise CheckpointUnusable(
                    f"rows about left records from before {iso(time_ms)} may be in the output, of batch "
                    f"{past.plan.number} that was not completed, or since an earlier rewind: with the policy `all` it "
                    "is not known which are missing. Start the job once, and stop it with Ctrl-C; or rewind to an "
                    "earlier time"
                )
            stay = in_output(again=True).ending_at(begins.reached if further else begins.left)
        number = place.newest + 1
        if not dry_run:
            stays = stay if kept is None else kept
            _go_on(job, number, past, begins.left, to_ms=time_ms, before=past.number, receipts=receipts, kept=stays)
    return Rewinding(
        number=number,
        was=past.left,
        left=begins.left,
        right=begins.right,
        kept=None if kept is None else kept.count,
        before=0 if stay is None else stay.count,
        lost=begins.lost,
    )


def undo(job: JoinJob, *, dry_run: bool = False) -> Rewinding:
    """Lets a rewound job go on where it was before, or where it is now if that is further.

    Raises the same as `rewind`.
    """
    with nullcontext() if dry_run else checkpoint_lock(job.locked):
        place = place_of(job.locked)
        note = Checkpoint(folder(job.locked, place.number)).moved()
        rewound = None if note is None else note.rewound
        if rewound is None or rewound.before is None:
            raise CheckpointUnusable(f"checkpoint {job.locked!r} was not rewound, or that is undone: nothing to undo")
        now, old = past_of(job, place.number), past_of(job, rewound.before)
        here = replace(job, spec=as_it_was(job.spec, now.plan))
        receipts = {} if dry_run else _receipts(here, now.plan)
        if now.number == old.number and all(receipt.generation == old.plan.generation for receipt in receipts.values()):
            if not dry_run:
                go_on_in(job.locked, replace(place, number=old.number))
            return Rewinding(number=old.number, was=old.left, left=old.left, right={})
        left = {p: max(old.left.get(p, 0), offset) for p, offset in now.left.items()}
        kept = None
        settled = old.settled and now.settled
        if not settled or job.spec.right.type is JoinType.FULL:  # some rows from there on may be in the output
            if not settled and job.spec.right.policy is Policy.ALL:
                raise CheckpointUnusable(
                    f"batch {old.plan.number} before the rewind, or batch {now.plan.number} since, was not completed, "
                    "or rows after it stay since an earlier rewind: with the policy `all` it is not known which rows "
                    "are missing. Start the job once, and stop it with Ctrl-C; or rewind to the time of that batch "
                    "(`--written again`)"
                )
            reached_ms = min(old.plan.expiry_ms, now.plan.expiry_ms)
            kept = rows_in_output(here, left, now.generations, time_ms=reached_ms)
        number = place.newest + 1
        if not dry_run:
            _go_on(job, number, now, left, to_ms=None, before=old.rewound_from, receipts=receipts, kept=kept)
    return Rewinding(number=number, was=now.left, left=left, right={}, kept=None if kept is None else kept.count)


def _go_on(
    job: JoinJob,
    number: int,
    past: Past,
    left: Mapping[int, int],
    *,
    to_ms: int | None,
    before: int | None,
    receipts: Mapping[int, Receipt],
    kept: RowsToKeep | None,
) -> None:
    """Notes in a new folder how the job goes on after `past`, and makes that folder current."""
    note = Rewound(
        to_ms=to_ms,
        after=past.folder_with_last_batch,
        before=before,
        completed=past.completed,
        receipts={n: receipt.to_text() for n, receipt in receipts.items()},
        kept=None if kept is None else kept.to_json(),
    )
    where, earlier = folder(job.locked, past.folder_with_last_batch), past.generations[:-1]
    handover = Handover.of(past.plan, where, job.spec, job.output.topic, earlier)
    topic_id = past.plan.topics["left"][0]
    Checkpoint(folder(job.locked, number)).keep_moved(replace(handover, topic_id=topic_id, left=left, rewound=note))
    go_on_in(job.locked, Place(number, number))


def _receipts(job: JoinJob, plan: BatchPlan) -> dict[int, Receipt]:
    """Fences earlier writers and returns the receipts; none without exactly once."""
    if not job.output.exactly_once:
        return {}
    kafka = job.written_with
    return settled(kafka, buckets_of(job, plan.tasks))
