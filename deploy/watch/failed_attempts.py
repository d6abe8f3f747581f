"""Failed task attempts of a job while their batch is under way.

Spark retries a task and reports it only in its own log. A batch counts its retries once it is done, so a batch that
fails in every attempt would never count any. That is why Spark's status store is polled about once a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deploy.watch.life.moment import Failures
from teacup.base.logs import without_numbers
from teacup.spark.jvm_errors import crossed

if TYPE_CHECKING:
    from pyspark import SparkContext

_MOST = 1_000  # tasks examined per stage


def grouped(texts: list[str]) -> list[Failures]:
    """Groups texts that differ only in numbers."""
    groups: dict[str, Failures] = {}
    for text in texts:
        before = groups.get(what := without_numbers(text))
        groups[what] = Failures(1 if before is None else before.count + 1, text)
    return list(groups.values())


class FailedAttempts:
    """Watches the active stages of one job. `group`: Spark's job group of its batches."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self._counts: dict[int, tuple[int, int]] = {}  # attempt and its failed tasks by stage, at the last poll
        self._seen: set[int] = set()  # ids of attempts

    def poll(self) -> list[Failures]:
        """Returns the failures since the last poll. Raises py4j's errors if Spark has ended."""
        tracker = self._context.statusTracker()
        counts: dict[int, tuple[int, int]] = {}
        texts: list[str] = []
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is None or not (info.numFailedTasks or info.currentAttemptId):
                continue
            counts[stage] = info.currentAttemptId, info.numFailedTasks
            if counts[stage] != self._counts.get(stage) and self._is_ours(stage):
                for attempt in range(info.currentAttemptId + 1):  # a new one begins if what tasks fetch is lost
                    texts += self._texts(stage, attempt)
        self._counts = counts
        return grouped(texts)

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
