"""Carries out a reader's batches one after the other, each as one Spark job (`teacup.spark.batches.jobs`).

Structured Streaming would ask a separate Python process where each batch ends, plan a SQL query for each, and give
tasks no preferred executor. For a small batch that is more work than the batch itself. Here a thread of the driver
plans.

    plan     the reader's next end is written to the checkpoint (`teacup.spark.batches.log`)
    run      each executor gets the same work in every batch (`teacup.spark.batches.placement`)
    finish   runs the batch, and checks what its tasks reported
    commit   is noted only then; a batch that was planned and not committed runs again at the next start

What it has in common with a streaming query has the same names: `awaitTermination`, `stop`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from teacup.base.logs import of_job
from teacup.spark.batches.jobs import BatchTasks, Report, Stream, batch_jobs_of
from teacup.spark.batches.log import BatchLog
from teacup.spark.batches.placement import ExecutorPlaces, Placement
from teacup.spark.conf import PLANS_KEPT
from teacup.spark.worker import BATCH

Finish = Callable[[Callable[[], list[Report]], int, int], None]
"""Gets what runs the batch and returns its rows, the number of its tasks, and its number."""
STOPS_WITHIN_S = 0.2
PLANS_WITHIN_S = 2.0
"""How long a stop waits for a reader, which may wait for a minute for brokers that do not answer."""


class BatchLoop:
    """The batches of one reader, in a thread of its own from `start` until all is read, or `stop`.

    group         Spark's job group of its batches
    newest        where the newest committed batch ends; {}: not known, or there is none
    in_progress   whether a batch is; in a loop that was stopped it never becomes true again
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        checkpoint: str,
        stream: Stream,
        finish: Finish,
        every_ms: int | None,
        committed: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """Opens the checkpoint.

        every_ms    from the beginning of a batch to that of the next, at least; None: ends once all is read
        committed   called with where the newest committed batch ends: at the start, and after each batch

        Raises what `BatchLog` raises.
        """
        self._context, self._name, self._finish, self._committed = spark.sparkContext, name, finish, committed
        self._every_s = None if every_ms is None else every_ms / 1000
        self._log = BatchLog(checkpoint, int(spark.conf.get(PLANS_KEPT) or ""))
        self._reader, self._exchange, self._jobs = stream.reader, stream.exchange, batch_jobs_of(spark, name, stream)
        executors = ExecutorPlaces(self._context).now
        self._work, self._parts = Placement(executors), Placement(executors)
        self.group = str(uuid.uuid4())
        self.newest: Mapping[str, Any] = {}
        self.in_progress = self._over = False
        self._job = ""
        self._stopped, self._begins = threading.Event(), threading.Lock()
        self._error: BaseException | None = None
        self._thread = InheritableThread(self._run)

    def start(self, job: str = "") -> BatchLoop:
        """Starts the thread, whose log lines name the job (`of_job`); returns this."""
        self._job = job
        self._thread.name, self._thread.daemon = "batches", True
        self._thread.start()
        return self

    def awaitTermination(self, timeout: float) -> bool:
        """Returns whether it has ended, or `stop` has, within `timeout` (s). Raises what ended it."""
        self._thread.join(timeout)
        if not self._thread.is_alive() and self._error is not None:
            raise self._error
        return not self._thread.is_alive() or self._over

    def stop(self) -> None:
        """Ends it at once; a batch in progress is cancelled. Returns when it has ended, or does no more than wait for
        an answer of brokers. Raises py4j's errors.
        """
        with self._begins:
            self._stopped.set()
        self._reader.ends = True
        waits_until_s = time.monotonic() + PLANS_WITHIN_S
        while self._thread.is_alive() and (self.in_progress or time.monotonic() < waits_until_s):
            self._context.cancelJobGroup(self.group)  # again and again: its next job may not have begun yet
            self._thread.join(STOPS_WITHIN_S)
        self._over = True

    def _run(self) -> None:
        try:
            with of_job(self._job):
                self._context.setJobGroup(self.group, self._name, interruptOnCancel=True)
                self._batches()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            if not self._stopped.is_set():  # what it has cancelled is no failure
                self._error = error
        finally:
            self._reader.disconnect()

    def _batches(self) -> None:
        number, committed = self._log.newest()
        end = self._log.end(number)
        if self._every_s is None:
            self._reader.available_now()
        if committed and end:
            self._done(end)
        elif not committed and self._begin():
            self._carry_out(number, end)
        while not self._stopped.is_set():
            began_s = time.monotonic()
            following = self._reader.latest(end)
            if following != end:
                if not self._begin():
                    return
                number, end = number + 1, following
                self._log.plan(number, end)
                self._carry_out(number, end)
            elif self._every_s is None:
                return
            elif self._reader.stops:  # it answers at once
                self._stopped.wait(STOPS_WITHIN_S)
            if self._every_s:
                self._stopped.wait(began_s + self._every_s - time.monotonic())

    def _begin(self) -> bool:
        """Returns whether a batch may begin; it then is in progress."""
        with self._begins:
            self.in_progress = not self._stopped.is_set()
            return self.in_progress

    def _carry_out(self, number: int, end: dict[str, Any]) -> None:
        # {}: an earlier run was stopped before it had planned anything
        tasks = self._tasks(end) if end else BatchTasks(())
        self._context.setLocalProperty(BATCH, str(number))
        self._finish(partial(self._rows, tasks), tasks.reporting, number)
        if self._stopped.is_set():
            return
        self._log.commit(number)
        self.in_progress = False
        self._done(end)

    def _done(self, end: dict[str, Any]) -> None:
        self.newest = end
        self._committed(end)

    def _tasks(self, end: dict[str, Any]) -> BatchTasks:
        behind = () if self._exchange is None else self._parts.tasks(self._exchange.parts(end))
        return BatchTasks(self._work.tasks(self._reader.work(end)), behind)

    def _rows(self, tasks: BatchTasks) -> list[Report]:
        return self._jobs.run(tasks) if tasks.first else []
