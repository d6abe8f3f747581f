"""A join's checkpoint: the record of batches, and three files of our own beside them, JSON with a checksum.

teacup.generation  the generation of a checkpoint without any batch: receipts carry it before the first batch is
                   planned, so that a start that dies in between is continued
teacup.name        the name under which the job has claimed its output: receipts are found by it
teacup.moved       the other checkpoint after which a new one goes on (`joins.batch.handover`)

Once the job was rewound, its original checkpoint also has `teacup.rewound` (`deploy.checkpoint.place`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any, TypeVar

from deploy.checkpoint.file import CheckpointFile
from deploy.errors import CheckpointOfAnother, JobRenamed
from deploy.jobfile.job import JoinJob
from deploy.jobfile.join_keys import IN_FILE
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan
from joins.errors import SpecChanged
from joins.spec import JoinSpec
from teacup.base import files
from teacup.base.fields import local_folder
from teacup.spark.checkpoint_access import opened, reached
from teacup.spark.errors import CheckpointInvalid, CheckpointUnreachable

log = logging.getLogger("teacup.deploy.checkpoint.join_checkpoint")

GENERATION = "teacup.generation"
NAME = "teacup.name"
MOVED = "teacup.moved"

T = TypeVar("T")


JOIN, FEEDER, DEDUP = "join", "feeder", "deduplicator"


def kind_of_end(end: Mapping[str, Any]) -> str | None:
    """Returns the kind of job that ends a batch like this; None: another version."""
    if "store_generation" in end:
        return FEEDER
    if "generation" in end:
        return JOIN
    return DEDUP if "ranges" in end else None


def reads(end: Mapping[str, Any]) -> str:
    """Returns what the job of this end of a batch reads, for messages."""
    identity = end.get("identity", {})
    topics = [identity[name] for name in ("left.topic", "right.topic") if name in identity] or [end.get("topic")]
    return f"which reads {' and '.join(map(repr, topics))}"


def planned_or_moved(job: JoinJob) -> tuple[BatchPlan | None, Handover | None]:
    """Returns the batch that a job planned last or, if there is none, the checkpoint after which a new one goes on.

    Raises `SpecChanged`, `CheckpointUnreadable`.
    """
    checkpoint = Checkpoint(job.checkpoint)
    planned = checkpoint.planned(job.spec)
    return planned, checkpoint.moved() if planned is None else None


class Checkpoint:
    """A folder, or any URL that fsspec has a driver for. Calls raise `CheckpointUnreadable`."""

    def __init__(self, location: str) -> None:
        self._location, self._folder, self._logs = location, local_folder(location), opened(location)

    def planned(self, spec: JoinSpec) -> BatchPlan | None:
        """Returns the batch that was planned last; None if none was. Raises `SpecChanged` for another join."""
        batch_plan = self.newest()
        if batch_plan is not None:
            self.check_belongs(batch_plan, spec)
        return batch_plan

    def check_belongs(self, batch_plan: BatchPlan, spec: JoinSpec) -> None:
        """Checks that a join has written this plan of the checkpoint.

        Raises `SpecChanged` if the join was changed since; `CheckpointOfAnother` if it cannot go on after this plan
        (`teacup move`), as it has another name, or another left topic.
        """
        try:
            batch_plan.check_belongs_to(spec, IN_FILE)
        except SpecChanged as error:
            owner = self.read_file(NAME, str, "Remove it")
            if owner in (None, spec.name) and batch_plan.identity["left.topic"] == spec.left.topic:
                raise
            who = "a join" if owner is None else f"the join {owner!r}"
            raise self._of_another(f"{who}, {reads(batch_plan.to_json())}") from error

    def check_kind(self, end: Mapping[str, Any], kind: str) -> None:
        """Raises `CheckpointOfAnother` if a job of another kind has written this end of a batch."""
        if end and (owner := kind_of_end(end)) not in (None, kind):
            raise self._of_another(f"a {owner}, {reads(end)}")

    def _of_another(self, owner: str) -> CheckpointOfAnother:
        return CheckpointOfAnother(
            f"checkpoint {self._location!r} belongs to another job: {owner}. Give this job a `checkpoint` of its own"
        )

    def newest(self) -> BatchPlan | None:
        """Returns the batch that was planned last, by whichever join; None if none was."""
        return self._plan(self.newest_end())

    def committed(self) -> BatchPlan | None:
        """Returns the batch that was carried out last; None if none was."""
        return self._plan(self.committed_end())

    def _plan(self, end: Mapping[str, Any]) -> BatchPlan | None:
        self.check_kind(end, JOIN)
        return BatchPlan.from_json(end) if end else None

    def batches(self) -> list[int]:
        """Returns the numbers of the batches whose plans are kept, ascending."""
        with reached(self._location):
            return self._logs.planned()

    def plan_of(self, batch: int) -> BatchPlan | None:
        """Returns the plan of a batch; None if the job has removed it meanwhile, or nothing was planned."""
        try:
            data = self._end(batch)
        except CheckpointUnreachable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        return self._plan(data)

    def committed_plans(self) -> list[BatchPlan]:
        """Returns the plans of the batches that were carried out, in order, as far as they are kept.

        A running job removes the oldest ones.
        """
        with reached(self._location):
            planned = set(self._logs.planned())
            numbers = [number for number in self._logs.committed() if number in planned]
        plans = map(self.plan_of, numbers)
        return [plan for plan in plans if plan is not None]

    def newest_end(self) -> dict[str, Any]:
        """Returns where the batch that was planned last ends, whatever the job; empty if none was."""
        with reached(self._location):
            planned = self._logs.planned()
        return self._end(planned[-1]) if planned else {}

    def committed_end(self) -> dict[str, Any]:
        """Returns where the batch that was carried out last ends, whatever the job; empty if none was."""
        with reached(self._location):
            committed = self._logs.committed()
        return self._end(committed[-1]) if committed else {}

    def forget_newest(self) -> None:
        """Removes the plan of the last batch, which was not carried out, so that it is planned again."""
        with reached(self._location):
            self._logs.forget_plan(self._logs.planned()[-1])
        if self._folder is not None:
            files.sync(self._folder / "offsets")

    def _end(self, batch: int) -> dict[str, Any]:
        """Returns where a batch ends; empty if the job was stopped before anything was planned."""
        try:
            with reached(self._location, but=ValueError):
                end, *_ = self._logs.ends(batch)
            values = {} if end is None else dict(json.loads(end))
            files.check(values)
            return values
        except ValueError as error:
            raise CheckpointInvalid(
                f"{self._cannot_be_read}: `offsets/{batch}` is truncated or damaged ({error}), as after a power loss. "
                f"Remove it, and `commits/{batch}` if that exists: at the next start the receipts in Kafka tell "
                "whether anything of the batch is in the output"
            ) from error

    def committed_at_ms(self) -> int | None:
        """Returns when the batch that was carried out last was committed; None if none was, or that is not known."""
        with reached(self._location):
            committed = self._logs.committed()
            return self._logs.committed_at_ms(committed[-1]) if committed else None

    def is_committed(self) -> bool:
        """Returns whether the batch that was planned last has been completed."""
        with reached(self._location):
            return self._logs.planned()[-1:] == self._logs.committed()[-1:]

    def moved(self) -> Handover | None:
        """Returns the checkpoint after which this one goes on; None if there is none."""
        data = self.read_file(MOVED, dict[str, Any], "Remove it, and repeat `teacup move`")
        return None if data is None else Handover.from_json(data)

    def keep_moved(self, moved: Handover) -> None:
        """Lets this checkpoint, which has planned nothing yet, go on after another one. Durable when this returns."""
        self.write_file(MOVED, moved.to_json())

    def check_name(self, name: str) -> None:
        """Raises `JobRenamed` if the checkpoint has batches of a job with another name. Call `keep_name` afterwards."""
        noted = self.read_file(NAME, str, "Remove it if the job was never renamed")
        if noted is not None and noted != name:
            raise JobRenamed(
                f"checkpoint {self._location!r} was written under the name {noted!r}, and the job is {name!r} now: "
                f"what is in the output is known by the old name only. Put `name: {noted}` back; or give the job a new "
                "checkpoint, and a `start` from which its rows may be written again"
            )

    def keep_name(self, name: str) -> None:
        """Stores the name under which the output is claimed."""
        if self.read_file(NAME, str, "Remove it") != name:
            self.write_file(NAME, name)

    def generation(self) -> str:
        """Returns the generation of a checkpoint without any plan; created if missing. Durable when this returns."""
        generation = self.read_file(
            GENERATION, str, "Start the job with a new checkpoint, and with `teacup run --take-over`"
        )
        if generation is None:
            generation = uuid.uuid4().hex
            self.write_file(GENERATION, generation)
        return generation

    def read_file(self, name: str, kind: type[T], remedy: str) -> T | None:
        """Returns the content of a file of ours beside Spark's; None if it is missing. Raises `CheckpointInvalid`."""
        try:  # not asked first: some drivers answer any error with "it does not exist"
            with reached(self._location, name, but=(ValueError, FileNotFoundError)):
                return CheckpointFile(self._location, name).checked(kind)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointInvalid(
                f"{self._cannot_be_read}: `{name}` is damaged, or of another version ({error}). {remedy}"
            ) from error

    def write_file(self, name: str, value: Any) -> None:
        """Replaces a file of ours beside Spark's. Durable when this returns."""
        with reached(self._location, name):
            CheckpointFile(self._location, name).write(value, durable=True)

    @property
    def _cannot_be_read(self) -> str:
        return f"checkpoint {self._location!r} cannot be read"
