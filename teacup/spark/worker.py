"""What a worker knows: which attempt of which task of which batch it carries out, and whether another one should have.

A small batch goes to the worker that had the batch before, so that it finds everything as it left it.

Spark gives a task to the worker that has been idle for longest. A backlog has several tasks at a time, and so several
workers. The small batches that follow are one task each, and go round all of them for ever: each worker finds its
windows out of date, its consumers behind, and its producers fenced by the worker that had the batch before.

So a worker that sees that another one had the batch before retires when its task is done, unless it is the only one. A
pool of one idle worker (`spark.python.factory.idleWorkerMaxPoolSize`) would do the same, but then each batch of a
backlog would start a worker and restore its windows.

Workers that carry out tasks of several jobs do not retire, because there they take turns on account of another job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from teacup.spark.jvm_errors import FIRST_TRY, TaskRun

WriteInt = Callable[[int, Any], None]

BATCH = "streaming.sql.batchId"
"""The local property of Spark's that has the number of the batch: set by Structured Streaming, and for jobs by us."""
_last: TaskRun | None = None


def this_task() -> TaskRun:
    """Returns the attempt that this process carries out; without Spark, one like the first."""
    from pyspark import TaskContext

    global _last
    context = TaskContext.get()
    if context is None:
        return FIRST_TRY
    number = int(context.taskAttemptId())
    if _last is None or _last.number != number:
        _last = TaskRun(number, context.attemptNumber(), _last is None)
    return _last


def batch_of_task() -> int | None:
    """Returns the number of the batch that the task belongs to; None outside a batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(BATCH)
    return None if batch is None else int(batch)


class WorkerTurns:
    """Which batches this worker had, and whether it retires."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._another_had_the_last = False

    def had(self, job: str, batch: int, whole: bool) -> None:
        """Notes a task of this worker: its job and batch, and whether the batch has no other task."""
        last = self._last.get(job, batch)
        self._last[job] = batch
        self._another_had_the_last = whole and last < batch - 1

    def retires(self, workers: int) -> bool:
        """Returns whether this worker should end after its task; `workers`: how many there are."""
        return self._another_had_the_last and len(self._last) == 1 and workers > 1

    def ending(self, write_int: WriteInt, workers: Callable[[], int]) -> WriteInt:
        """Wraps what a worker tells Spark with: a retiring one must not say that it may be used again."""

        from pyspark.serializers import SpecialLengths

        def writing(value: int, stream: Any) -> None:
            if value == SpecialLengths.END_OF_STREAM and self.retires(workers()):
                write_int(SpecialLengths.END_OF_DATA_SECTION, stream)
                sys.exit(0)
            write_int(value, stream)

        return writing


turns = WorkerTurns()
"""This process's turns."""
