"""What a checkpoint still knows of a join's batches: which of them read a record, and what was known then.

A checkpoint keeps the plans of the last 100 batches (`spark.sql.streaming.minBatchesToRetain`). Each is read when it is
needed, without taking a lock, so a running job is not disturbed. A plan says where a batch begins to read; it ends
where the next one begins. For the newest batch the facts say where it ended, if it is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from deploy.checkpoint.join_checkpoint import Checkpoint
from deploy.checkpoint.place import current
from deploy.inspection.explain.model import BatchRead
from deploy.inspection.explain.remedy import PlannedRange
from deploy.jobfile.job import JoinJob
from joins.batch.handover import Handover
from joins.batch.state import BatchPlan, Bucket
from joins.explain import SKIPPED, UNREAD, BatchSpan
from joins.plan.reader import state_after
from joins.read.facts_files import known_facts
from joins.spec import JoinPath, JoinSpec
from teacup.kafka.client import committed_only

MOST_READ_AGAIN = 1_000_000
"""Facts of the newest batch that are lost are found by reading it again, if it has at most this many records."""


class Plans:
    """The plans of one join, and the state after the last completed batch."""

    def __init__(self, job: JoinJob) -> None:
        self._job = current(job)
        self._checkpoint = Checkpoint(self._job.checkpoint)
        self._files = self._checkpoint.batches()
        self._known: dict[int, BatchPlan | None] = {}

    @cached_property
    def newest(self) -> BatchPlan | None:
        """The batch that was planned last. Raises `SpecChanged` if it is of another join."""
        newest = next(filter(None, map(self._plan, reversed(range(len(self._files))))), None)
        if newest is not None:
            self._checkpoint.check_belongs(newest, self._job.spec)
        return newest

    @cached_property
    def oldest(self) -> BatchPlan | None:
        """The oldest plan that is kept."""
        return next(filter(None, map(self._plan, range(len(self._files)))), None)

    @cached_property
    def state(self) -> BatchPlan | None:
        """The state after the newest batch; None while that is under way, or if it is not known."""
        newest = self.newest
        if newest is None:
            return None
        facts = known_facts(self._job.spec.name, newest, self._job.facts_folders)
        if facts.keys() >= newest.buckets.keys():
            return newest.after(facts, self.spec)
        if self._checkpoint.is_committed() and newest.records <= MOST_READ_AGAIN:
            spec = replace(self.spec, kafka=committed_only(self.spec.kafka))
            return state_after(spec, newest, self._job.facts_folders)
        return None

    @cached_property
    def moved(self) -> Handover | None:
        """The handover from another checkpoint (`teacup move`); None if there was none."""
        return self._checkpoint.moved()

    @cached_property
    def spec(self) -> JoinSpec:
        """The join, with its path and buckets as soon as these are decided."""
        spec, newest = self._job.spec, self.newest
        if newest is None:
            return spec
        path = JoinPath.SHUFFLED if newest.parts else JoinPath.DIRECT
        return replace(spec, path=path, buckets=newest.tasks)

    @property
    def generation(self) -> str | None:
        """The checkpoint's generation; None before its first batch."""
        return None if self.newest is None else self.newest.generation

    def read(self, side: str, partition: int, offset: int) -> BatchRead:
        """Finds the batch that read the record at an offset."""
        at = self._last_from(side, partition, offset)
        if at is None:
            return self._before_all(side, partition, offset)
        plan = self._plan(at)
        assert plan is not None
        following = self._plan(at + 1) if at + 1 < len(self._files) else self.state
        before, after = bucket_with(plan, side, partition), bucket_with(following, side, partition)
        assert before is not None
        if after is None:
            planned = offset < before.side(side)[partition].end
            return BatchRead(BatchSpan(plan.number) if planned else UNREAD, plan, before)
        if offset >= after.side(side)[partition].start:
            return BatchRead(UNREAD, following, after)
        return BatchRead(BatchSpan.one(plan.number), plan, before, after)

    def ranges(self, partition: int, offset: int) -> Iterator[PlannedRange]:
        """Yields the ranges of a right partition of the batch that read an offset and by earlier ones, newest first."""
        at = self._last_from("right", partition, offset)
        for each in range(-1 if at is None else at, -1, -1):
            plan = self._plan(each)
            bucket = bucket_with(plan, "right", partition)
            if plan is None or bucket is None:
                return
            yield PlannedRange(plan.listed_ms, bucket.right[partition])

    def _last_from(self, side: str, partition: int, offset: int) -> int | None:
        """Returns the last plan that begins at or before an offset, by bisection, as plans only go forward."""
        low, high = -1, len(self._files)
        while high - low > 1:
            middle = (low + high) // 2
            bucket = bucket_with(self._plan(middle), side, partition)
            # Plans that Spark has removed meanwhile, and plans from before the partition was added, are older ones.
            if bucket is not None and bucket.side(side)[partition].start > offset:
                high = middle
            else:
                low = middle
        return None if low < 0 or bucket_with(self._plan(low), side, partition) is None else low

    def _before_all(self, side: str, partition: int, offset: int) -> BatchRead:
        """Returns what is known of a record before the oldest plan, which may be the very first."""
        oldest = self.oldest
        bucket = bucket_with(oldest, side, partition)
        if oldest is None or bucket is None:
            return BatchRead(UNREAD)
        if oldest.number <= 1:
            return BatchRead(SKIPPED)
        still_needed = offset >= bucket.side(side)[partition].bounds[0].offset
        return BatchRead(BatchSpan(1, oldest.number - 1) if still_needed else BatchSpan())

    def _plan(self, at: int) -> BatchPlan | None:
        if at not in self._known:
            self._known[at] = self._checkpoint.plan_of(self._files[at])
        return self._known[at]


def bucket_with(plan: BatchPlan | None, side: str, partition: int) -> Bucket | None:
    """Returns the bucket that has a partition of a side."""
    if plan is None:
        return None
    return next((bucket for bucket in plan.buckets.values() if partition in bucket.side(side)), None)
