"""A running job: what its tasks report, whether it has executors, and an exit code for what failed.

Spark lets a job wait for executors without limit. So the job itself reports that there are none, and ends after its
own limit: a supervisor then starts it as a new application, which a restarted master knows. Other jobs of the same
session would wait too, so all jobs of a process end (`deploy.jobs.many_jobs`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from deploy.errors import DiskFull
from deploy.output.accounts import check_whole
from teacup.base.disks import name_the_disks, refusal_in
from teacup.base.errors import ExitCode
from teacup.base.times import iso, written
from teacup.spark.cluster import Executors
from teacup.spark.errors import NoExecutor
from teacup.spark.jvm_errors import Failure, crossed, summaries_in

log = logging.getLogger("teacup")

S = TypeVar("S")
SAID_AFTER_S = 15.0
"""A cluster takes some seconds to start or replace executors."""


def reported(rows: Sequence[tuple[str | None, str | None]], tasks: int, kind: type[S]) -> list[S]:
    """Returns what the tasks of a batch reported. Raises `AccountsDiffer` if there were tasks, but no report.

    Raises `TaskEnded` if a task reports why the job must end.
    """
    summaries = summaries_in(rows, kind)
    if not summaries and tasks:
        check_whole([], tasks, "tasks")
    return summaries


class Starved:
    """Watches the number of executors, a few times a second."""

    def __init__(self, master: str, limit_ms: int) -> None:
        self._master, self._limit_ms, self._said = master, limit_ms, False

    def checked(self, executors: Executors) -> Executors:
        """Logs when executors are missing or back. Raises `NoExecutor` after the limit."""
        if executors.missing_ms is None:
            if self._said:
                log.info("%d executors are there again: the job goes on", executors.count)
            self._said = False
            return executors
        if executors.missing_s * 1000 >= self._limit_ms:
            raise NoExecutor(
                f"no executor since {iso(executors.missing_ms)}, for {written(self._limit_ms)} (`wait_for_executors`): "
                f"{self._why()}. Nothing is lost: start the job again"
            )
        if not self._said and executors.missing_s >= SAID_AFTER_S:
            self._said = True
            log.warning(
                "no executor since %s: %s. The job ends with exit code 4 at %s (`wait_for_executors`: %s)",
                *(
                    iso(executors.missing_ms),
                    self._why(),
                    iso(executors.missing_ms + self._limit_ms),
                    written(self._limit_ms),
                ),
            )
        return executors

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
    if isinstance(error, CapturedException | Py4JJavaError):
        log.error("Spark failed: %s", _without_java(f"{type(error).__name__}: {error}"))
    else:
        log.error("the job failed: %s: %s", type(error).__name__, error, exc_info=error)
    return ExitCode.FAILED


def _text(error: Exception) -> str:
    """Returns the text of an error; empty for a Java error if the JVM is gone."""
    try:
        return str(error)
    except OSError:
        return ""


def _without_java(text: str) -> str:
    """Returns the last Python traceback in Spark's message, without JVM stacks."""
    words = text[max(text.rfind("Traceback (most recent call last):"), 0) :]
    lines = [line for line in words.splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more| ?SQLSTATE)", line)]
    return "\n".join(lines).strip()
