"""Attempts of a job's tasks that have failed while their batch is under way.

Spark tries a task again, and tells nobody but its own log. A batch counts its retries once it has been carried out, so
one that fails in each attempt would count none. So Spark's status store is asked, about a second apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deploy.watch.life.moment import Failures
from teacup.base.logs import without_numbers
from teacup.spark.jvm_errors import crossed

if TYPE_CHECKING:
    from pyspark import SparkContext

_MOST = 1_000  # tasks of a stage that are looked at


def alike(texts: list[str]) -> list[Failures]:
    """Returns texts that differ in numbers only as one."""
    found: dict[str, Failures] = {}
    for text in texts:
        before = found.get(what := without_numbers(text))
        found[what] = Failures(1 if before is None else before.count + 1, text)
    return list(found.values())


class FailedAttempts:
    """Looks at the active stages of one query; group: its job group, which is its run's id."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self._counts: dict[int, int] = {}  # by stage, at the last look
        self._seen: set[int] = set()  # attempts

    def look(self) -> list[Failures]:
        """Returns what has failed since the last look. Raises what py4j raises if Spark has ended."""
        tracker = self._context.statusTracker()
        counts: dict[int, int] = {}
        texts: list[str] = []
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None or not info.numFailedTasks:
                continue
            counts[stage] = info.numFailedTasks
            if info.numFailedTasks != self._counts.get(stage) and self._is_ours(stage):
                texts += self._texts(stage, info.currentAttemptId)
        self._counts = counts
        return alike(texts)

    def _is_ours(self, stage: int) -> bool:
        store = self._store()
        for number in self._context.statusTracker().getActiveJobsIds():
            job = store.job(number)
            stages = job.stageIds()
            if any(stages.apply(at) == stage for at in range(stages.size())):
                return bool(job.jobGroup().isDefined()) and job.jobGroup().get() == self._group
        return False

    def _texts(self, stage: int, attempt: int) -> Iterator[str]:
        tasks = self._store().taskList(stage, attempt, _MOST)
        for task in (tasks.apply(at) for at in range(tasks.size())):
            if task.status() != "FAILED" or task.taskId() in self._seen:
                continue
            self._seen.add(task.taskId())
            raised = task.errorMessage().get() if task.errorMessage().isDefined() else ""
            failure = crossed(raised)
            yield raised.strip().partition("\n")[0] if failure is None else failure.text

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore()
