"""Which attempt of which task this process carries out."""

from __future__ import annotations

from teacup.spark.crossing import FIRST_TRY, TaskRun

_last: TaskRun | None = None


def this_task() -> TaskRun:
    """Returns the attempt that this process carries out; one like the first where there is no Spark."""
    from pyspark import TaskContext

    global _last
    context = TaskContext.get()
    if context is None:
        return FIRST_TRY
    number = int(context.taskAttemptId())
    if _last is None or _last.number != number:
        _last = TaskRun(number, context.attemptNumber(), _last is None)
    return _last
