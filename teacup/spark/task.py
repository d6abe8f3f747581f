"""Which attempt of which task of which batch this process carries out."""

from __future__ import annotations

from teacup.spark.jvm_errors import FIRST_TRY, TaskRun

BATCH = "streaming.sql.batchId"
"""The local property of Spark's that has the number of the batch."""
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
    """Returns the number of the batch that the task belongs to; None outside a batch of a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(BATCH)
    return None if batch is None else int(batch)
