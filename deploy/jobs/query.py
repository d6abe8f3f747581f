"""A running query: the summaries of a batch, whether one is in progress, and an exit code for what failed.

Spark lets a query wait for executors without limit. So the job itself reports that there are none, and ends after its
own limit: a supervisor then starts it as a new application, which a restarted master knows. Other queries of the same
session would wait too, so all jobs of a process end (`deploy.jobs.many_jobs`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException

from deploy.errors import DiskFull
from deploy.output.accounts import check_whole
from teacup.base.disks import name_the_disks, refusal_in
from teacup.base.errors import ExitCode
from teacup.base.times import iso, written
from teacup.spark.checkpoint import ends_in
from teacup.spark.cluster.executors import Executors
from teacup.spark.errors import NoExecutor
from teacup.spark.java import CONTINUES
from teacup.spark.jvm_errors import Failure, crossed, summaries_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("teacup")

S = TypeVar("S")
_PLANNER = "PythonStreamingSourceRunner"
SAID_AFTER_S = 15.0
"""A cluster takes some seconds to start or replace executors."""
_TOO_SLOW = "Python worker failed to connect back"


class Query(Protocol):
    """The batches of a job under way: `teacup.spark.batch_loop.BatchLoop`, or Spark's streaming query (`Streaming`).

    group        Spark's job group of its batches
    newest       where the newest committed batch of this run ends; {}: there is none
    in_progress  whether it has planned a batch and not yet committed it, so must not be stopped
    """

    group: str

    @property
    def newest(self) -> Mapping[str, Any]: ...

    @property
    def in_progress(self) -> bool: ...

    def awaitTermination(self, timeout: float) -> bool: ...

    def stop(self) -> None: ...


class Streaming:
    """A streaming query as a `Query`."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query, self.group = query, str(query.runId)
        self.stop = query.stop

    @property
    def newest(self) -> Mapping[str, Any]:
        """Batch numbers do not tell: while nothing is read, Spark reports the number of the next batch."""
        ends = [progress["sources"][0]["endOffset"] for progress in self._query.recentProgress]
        offsets = [json.loads(end) if isinstance(end, str) else end for end in ends if end]
        return offsets[-1] if offsets else {}

    @property
    def in_progress(self) -> bool:
        return in_progress(self._query)

    def awaitTermination(self, timeout: float) -> bool:
        return bool(self._query.awaitTermination(timeout))  # type: ignore[arg-type]  # may be a fraction


def summaries_of(frame: DataFrame, kind: type[S], nothing_planned: Callable[[], bool]) -> list[S]:
    """Returns what the tasks of a batch reported. Raises `AccountsDiffer` if there were tasks, but no report.

    Each summary says how many there must be; without any, Spark's plan tells. Behind a shuffle there are tasks even if
    nothing was planned. Raises `TaskEnded` if a task reports why the job must end.
    """
    rows = [(row.summary, row.failure) for row in frame.collect()]
    tasks = 0 if rows else frame.rdd.getNumPartitions()
    return reported(rows, 0 if tasks and nothing_planned() else tasks, kind)


def reported(rows: Sequence[tuple[str | None, str | None]], tasks: int, kind: type[S]) -> list[S]:
    """Returns what the tasks of a batch reported. Raises `AccountsDiffer` if there were tasks, but no report.

    Raises `TaskEnded` if a task reports why the job must end.
    """
    summaries = summaries_in(rows, kind)
    if not summaries and tasks:
        check_whole([], tasks, "tasks")
    return summaries


def nothing_planned(spark: SparkSession, checkpoint: str, batch: int) -> bool:
    """Returns whether a batch ends at `{}`, like the first one of a job that was stopped before planning anything.

    Spark reads its own log here, wherever that is.
    """
    (row,) = spark.read.text(f"{checkpoint}/offsets/{batch}", wholetext=True).collect()
    return all(end is None or not json.loads(end) for end in ends_in(row.value))


def in_progress(query: StreamingQuery) -> bool:
    """Returns whether the query is starting, or has planned a batch and not yet committed it, so must not be stopped.

    The batch would run again at the next start; a source whose process is starting would lose its JVM, and print a
    traceback. Only Spark's message tells: `isDataAvailable` stays true after the commit until the next trigger, and
    while nothing is read, Spark reports the number of the next batch.
    """
    message: str = query.status["message"]
    return message.startswith(("Initializing", "Writing offsets", "Processing", "No new data but"))


class Starved:
    """Watches the number of executors, a few times a second."""

    def __init__(self, master: str, limit_ms: int) -> None:
        self._master, self._limit_ms, self._said = master, limit_ms, False

    def checked(self, found: Executors) -> Executors:
        """Logs when executors are missing or back. Raises `NoExecutor` after the limit."""
        if found.missing_ms is None:
            if self._said:
                log.info("%d executors are there again: the job goes on", found.count)
            self._said = False
            return found
        if found.missing_s * 1000 >= self._limit_ms:
            raise NoExecutor(
                f"no executor since {iso(found.missing_ms)}, for {written(self._limit_ms)} (`wait_for_executors`): "
                f"{self._why()}. Nothing is lost: start the job again"
            )
        if not self._said and found.missing_s >= SAID_AFTER_S:
            self._said = True
            log.warning(
                "no executor since %s: %s. The job ends with exit code 4 at %s (`wait_for_executors`: %s)",
                *(iso(found.missing_ms), self._why(), iso(found.missing_ms + self._limit_ms), written(self._limit_ms)),
            )
        return found

    def _why(self) -> str:
        return (
            f"Spark's master {self._master} gives this job none. Its cores or its memory are in use (an application "
            "without `spark.cores.max` takes all), or no worker has as much as an executor asks for, or it was "
            "restarted and does not know this job"
        )


def failed(error: Exception, folders: Mapping[str, Path] = MappingProxyType({})) -> ExitCode:
    """Logs why a job failed, and returns its exit code.

    folders   the folders of this machine that the job writes to, by purpose: one of their disks may be full

    An error of a source or a task is in the text of Spark's error, with its mark (`teacup.spark.jvm_errors`).
    """
    failure = Failure.of(error) or crossed(_text(error))
    if failure is not None:
        log.error("%s", failure.text)
        return failure.exit_code
    if folders and refusal_in(text := f"{type(error).__name__}: {_text(error)}"):
        failure = Failure.of_ours(DiskFull(name_the_disks(text, folders)))
        log.error("%s", failure.text)
        return failure.exit_code
    if planner_was_too_slow(error):
        log.error(
            "the process that plans batches was not there within the 10 s that Spark waits: this machine is too busy, "
            "or its disk too slow, to start Python. Nothing is lost: start the job again"
        )
    elif isinstance(error, CapturedException) and _planner_is_gone(str(error), error._stackTrace):
        log.error("the process that plans batches was killed, or ended by itself. %s", CONTINUES)
    elif isinstance(error, StreamingQueryException | Py4JJavaError):
        log.error("the query failed: %s", _without_java(f"{type(error).__name__}: {error}"))
    else:
        log.error("the job failed: %s: %s", type(error).__name__, error, exc_info=error)
    return ExitCode.FAILED


def planner_was_too_slow(error: Exception) -> bool:
    """Returns whether the planner did not start within Spark's limit of ten seconds."""
    return isinstance(error, CapturedException) and _TOO_SLOW in str(error) and _PLANNER in (error._stackTrace or "")


def _text(error: Exception) -> str:
    """Returns the text of an error; empty for a Java error if the JVM is gone."""
    try:
        return str(error)
    except OSError:
        return ""


def _planner_is_gone(message: str, java_stack: str) -> bool:
    """Returns whether the connection to the planner broke; an error that it raised would have its traceback."""
    return _PLANNER in java_stack and "Traceback (most recent call last):" not in message


def _without_java(text: str) -> str:
    """Returns the last Python traceback in Spark's message, without JVM stacks and the query plan."""
    words = text.split("\n=== Streaming Query ===")[0]
    words = words[max(words.rfind("Traceback (most recent call last):"), 0) :]
    lines = [line for line in words.splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more| ?SQLSTATE)", line)]
    return "\n".join(lines).strip()
