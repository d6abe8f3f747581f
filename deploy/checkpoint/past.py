"""What a checkpoint has done, and where a time begins in the topics of its join.

Whether a left record is before or after a time is decided by its offset: each partition goes on at its first record
that has reached the time, as with `start: TIME`. So two ranges that meet at a time share no record. A partition that
the job had not read up to there goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import at, current
from deploy.errors import CheckpointUnusable
from deploy.jobfile.job import JoinJob
from deploy.output.kept import rows_that_stay
from joins.batch.handover import Handover, as_it_was
from joins.batch.state import BatchPlan
from joins.errors import DataLoss
from joins.plan.readable import EndOffsets, list_ends
from joins.plan.reader import open_log, state_after
from joins.plan.start.copartition import with_path
from joins.plan.start.positions import Beginning, begin, left_start
from joins.spec import JoinSpec
from joins.streaming import LOOKUP, join_kind_of
from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.kafka.log.losses import CONTINUE


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What a checkpoint has done.

    number       the number of its folder
    folder_with_last_batch   its number: the same, unless a rewind was undone and nothing done since then
    plan         the plan of its last batch
    completed    whether that batch was completed
    left         the offset of each partition before which every left record was delivered
    settled      whether no left record from there on has a row, of an uncompleted batch or kept since a rewind which
                 the job has not caught up with
    generations  its own, and earlier ones as far as known
    rewound_from   the folder that it was rewound from; None if it was not
    """

    number: int
    folder_with_last_batch: int
    plan: BatchPlan
    completed: bool
    left: Mapping[int, int]
    settled: bool
    generations: tuple[str, ...]
    rewound_from: int | None


def past_of(job: JoinJob, number: int) -> Past:
    """Returns what a folder of a job's checkpoint has done.

    A folder without any batch has done what the one before it has. If a rewind made it, that rewind does not count; if
    an undo made it, left goes on where the undo has put it.

    Raises `CheckpointUnusable` if nothing was done, `CheckpointUnreadable`, `SpecChanged`, `DataLoss`, `KafkaIOError`.
    """
    here = at(job, number)
    checkpoint = Checkpoint(here.checkpoint)
    plan, note = checkpoint.newest(), checkpoint.moved()
    rewound = None if note is None else note.rewound
    if plan is None:
        if note is None or rewound is None:
            raise CheckpointUnusable(f"checkpoint {here.checkpoint!r} has no batch of a join: there is no way back")
        if rewound.to_ms is not None and rewound.before is not None:
            return past_of(job, rewound.before)
        past = past_of(job, rewound.after)
        settled = past.completed and rewound.kept is None
        return replace(past, number=number, settled=settled, left=note.left, rewound_from=rewound.before)
    checkpoint.check_name(job.spec.name)
    completed = checkpoint.is_committed()
    state = state_after(as_it_was(job.spec, plan), plan, here.facts_folders) if completed else plan
    left = Handover.of(state, here.checkpoint, job.spec, job.output.topic).left
    return Past(
        number=number,
        folder_with_last_batch=number,
        plan=plan,
        completed=completed,
        left=left,
        settled=completed and rows_that_stay(note, left) is None,
        generations=(*(() if note is None else note.generations), plan.generation),
        rewound_from=None if rewound is None else rewound.before,
    )


@dataclass(frozen=True, slots=True)
class LastWritten:
    """Where a job's last completed batch is.

    job      the job, with the folder that has that batch
    further  up to where left is written, if that is further
    later    later generations that have planned a batch, but completed none
    """

    job: JoinJob
    further: Mapping[int, int]
    later: tuple[str, ...]


def last_written(job: JoinJob) -> LastWritten:
    """Finds the folder that has the last completed batch.

    A folder made by a rewind or an undo has none until the first batch after the next start. After a rewind nothing has
    happened yet; an undo says where left goes on, which may be where an earlier folder ended.

    Raises `CheckpointUnreadable`, `SpecChanged`.
    """
    here, further = current(job), None
    later: list[str] = []
    while True:
        checkpoint = Checkpoint(here.checkpoint)
        note = None if checkpoint.committed_end() else checkpoint.moved()
        rewound = None if note is None else note.rewound
        if note is None or rewound is None:
            return LastWritten(here, further or {}, tuple(later))
        if (planned := checkpoint.newest()) is not None:
            later.append(planned.generation)
        if rewound.to_ms is not None and rewound.before is not None:
            here = at(job, rewound.before)
        else:
            here, further = at(job, rewound.after), further or note.left


@dataclass(frozen=True, slots=True)
class StartOffsets:
    """Where a join would begin.

    spec      the join, with the path that it takes
    left, right   the offset of each partition; right: empty for a lookup join
    reached       where the time begins in left; a partition that was not read up to there goes on before it
    lost      what retention has deleted, for messages
    """

    spec: JoinSpec
    end_offsets: EndOffsets
    topic_id: str
    left: Mapping[int, int]
    right: Mapping[int, int]
    reached: Mapping[int, int]
    lost: tuple[str, ...]


def left_from(job: JoinJob, time_ms: int) -> Mapping[int, int]:
    """Returns where a time begins in left, as far as retention has kept it."""
    spec = replace(job.spec, start=max(time_ms, 0))
    with closing(open_log(spec, spec.left)) as left:
        return left_start(Beginning(spec, EndOffsets(wall_ms(), left.ends(), {})), left).offsets


def begins_at(job: JoinJob, time_ms: int, past: Mapping[int, int] | None = None) -> StartOffsets:
    """Finds where a job begins that reads left from a time on.

    past   how far each left partition was read; no partition begins later

    Raises `DataLoss` if retention has deleted what is needed, unless `on_data_loss` says to continue.
    """
    spec = replace(job.spec, start=time_ms)
    with ExitStack() as stack:
        left = stack.enter_context(closing(open_log(spec, spec.left)))
        right = None
        if join_kind_of(spec) is not LOOKUP:  # the right of a lookup join is not read
            right = stack.enter_context(closing(open_log(spec, spec.right)))
        end_offsets = EndOffsets(wall_ms(), left.ends(), {}) if right is None else list_ends(left, right, wall_ms())
        starts = left_start(Beginning(spec, end_offsets), left)
        lost = tuple(
            f"left partition {spec.left.topic}-{p} begins at offset {starts.offsets[p]}, with records of about "
            f"{iso(starts.typical_ms[p])}: retention has deleted what was before"
            for p, ends in end_offsets.left.items()
            if 0 < ends.start == starts.offsets[p] < ends.stable and starts.typical_ms[p] > time_ms
        )
        if lost and spec.on_data_loss != CONTINUE:
            raise DataLoss(
                f"{'; '.join(lost)}. Give a later time, or accept that these have no new rows (`on_data_loss: "
                "continue`; for this command alone: `--set on_data_loss=continue`)"
            )
        offsets = starts.offsets
        if past is not None:
            offsets = {p: min(offset, past.get(p, end_offsets.left[p].start)) for p, offset in offsets.items()}
            offsets = {p: max(offset, end_offsets.left[p].start) for p, offset in offsets.items()}
        spec = replace(spec, start=offsets)
        right_from: Mapping[int, int] = {}
        if right is not None:
            spec = with_path(spec)
            first = begin(spec, end_offsets, left, right)
            right_from = {p: r.start for bucket in first.buckets.values() for p, r in bucket.right.items()}
            if (count := first.skipped.get("left_without_right", 0)) > 0:
                lost = (*lost, f"retention has deleted right records that about {count} left records may match")
        return StartOffsets(spec, end_offsets, left.topic_id(), offsets, right_from, starts.offsets, lost)
