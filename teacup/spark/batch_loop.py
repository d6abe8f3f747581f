"""Carries out a reader's batches one after the other, each as one plain Spark job.

Structured Streaming asks a process of its own for each end, and makes and plans a query for each batch. For a small
batch that is more work than the batch itself. Where tasks report only what they did, nothing of it is needed: here a
thread of the driver plans, and a batch is a job of one task for each share of the reader's tasks. Where rows pass
through Spark's expressions (`ThroughSpark`), it is a query that Spark plans each time, but its tasks have places, too.

    plan     the reader's next end is written to Spark's log (`teacup.spark.batch_log`)
    run      each executor gets the same tasks in every batch (`placed`), so that it has at hand what they need
    finish   is given what the tasks reported
    commit   is noted only then; a batch that was planned and not committed runs again at the next start

What it has in common with a streaming query has the same names: `awaitTermination`, `stop`.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark import InheritableThread, SparkContext, cloudpickle
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import CPickleSerializer, NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from teacup.base.logs import of_job
from teacup.base.now import Every
from teacup.spark.batch_log import BatchLog
from teacup.spark.conf import is_local
from teacup.spark.stream_reader import SparkTask, StreamReader, carried_out, reports
from teacup.spark.task import BATCH

log = logging.getLogger("teacup.spark.batch_loop")

Row = tuple[str | None, str | None]
"""What a task reports (`teacup.spark.jvm_errors.SUMMARY_SCHEMA`)."""
Finish = Callable[[Callable[[], list[Row]], int, int], None]
"""Gets what runs the batch and returns its rows, the number of its tasks, and its number."""
STOPS_WITHIN_S = 0.2
EXECUTORS_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class ThroughSpark:
    """A reader whose stage makes rows that go on through Spark's expressions, in the same task.

    schema   of these rows
    then     makes of them a frame of what tasks report (`SUMMARY_SCHEMA`), without a shuffle
    """

    reader: StreamReader
    schema: str
    then: Callable[[DataFrame], DataFrame]


class BatchLoop:
    """The batches of one reader, in a thread of its own from `start` until all is read, or `stop`.

    group    Spark's job group of its batches
    newest   where the newest committed batch of this run ends; {}: there is none
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        checkpoint: str,
        stream: StreamReader | ThroughSpark,
        finish: Finish,
        every_ms: int | None,
    ) -> None:
        """every_ms: from the beginning of a batch to that of the next, at least; None: ends once all is read.

        Raises py4j's errors if Spark cannot write to the checkpoint.
        """
        self._context, self._name, self._finish = spark.sparkContext, name, finish
        self._every_s = None if every_ms is None else every_ms / 1000
        self._log = BatchLog(spark, checkpoint)
        self._reader: StreamReader
        self._jobs: Jobs
        if isinstance(stream, ThroughSpark):
            self._reader, self._jobs = stream.reader, PlacedQueries(spark, name, stream)
        else:
            self._reader, self._jobs = stream, PlacedJobs(self._context, partial(reports, name, stream.stage))
        self.group = str(uuid.uuid4())
        self.newest: Mapping[str, Any] = {}
        self.in_progress = False
        self._job, self._executors = "", ExecutorPlaces(self._context)
        self._places: Mapping[Hashable, str] = {}
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = InheritableThread(self._run)

    def start(self, job: str = "") -> BatchLoop:
        """Starts the thread, whose log lines name the job (`of_job`); returns this."""
        self._job = job
        self._thread.name, self._thread.daemon = "batches", True
        self._thread.start()
        return self

    def awaitTermination(self, timeout: float) -> bool:
        """Returns whether it has ended within `timeout` (s). Raises what ended it."""
        self._thread.join(timeout)
        if not self._thread.is_alive() and self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ends it at once; a batch in progress is cancelled. Returns when it has ended. Raises py4j's errors."""
        self._stopped.set()
        self._reader.ends = True
        while self._thread.is_alive():  # its next job may not have begun yet
            self._context.cancelJobGroup(self.group)
            self._thread.join(STOPS_WITHIN_S)

    def _run(self) -> None:
        try:
            with of_job(self._job):
                self._context.setJobGroup(self.group, self._name, interruptOnCancel=True)
                self._batches()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
            if not self._stopped.is_set():  # what it has cancelled is no failure
                self._error = error
        finally:
            self._reader.stop()

    def _batches(self) -> None:
        number, committed = self._log.newest()
        end = self._log.end(number)
        if self._every_s is None:
            self._reader.prepareForTriggerAvailableNow()
        if not committed:
            self._carry_out(number, end)
        while not self._stopped.is_set():
            began_s = time.monotonic()
            following = self._reader.latest(end)
            if following != end:
                self.in_progress = True
                number, end = number + 1, following
                self._log.plan(number, end)
                self._carry_out(number, end)
            elif self._every_s is None:
                return
            if self._every_s:
                self._stopped.wait(began_s + self._every_s - time.monotonic())

    def _carry_out(self, number: int, end: dict[str, Any]) -> None:
        self.in_progress = True
        shares = self._shares(end) if end else []  # {}: an earlier run was stopped before it had planned anything
        self._context.setLocalProperty(BATCH, str(number))
        self._finish(partial(self._rows, shares), len(shares), number)
        if self._stopped.is_set():
            return
        self._log.commit(number)
        self.newest = end
        self.in_progress = False
        self._reader.commit(end)

    def _shares(self, end: dict[str, Any]) -> list[Share]:
        """Returns what each Spark task gets, and where it should run."""
        tasks, size = self._reader.tasks(end), self._reader.together(end)
        keys = self._reader.task_keys(end, len(tasks))
        assert len(keys) == len(tasks), "a task without a key would not run"
        self._places = placed([*self._places, *keys], self._executors.now(), self._places)
        groups = grouped([self._places.get(key) for key in keys], size)
        of_place = Counter(place for place, _ in groups)
        return [
            (SparkTask([tasks[at] for at in share], of_place[place] == 1), [] if place is None else [place])
            for place, share in groups
        ]

    def _rows(self, shares: Sequence[Share]) -> list[Row]:
        return self._jobs.run(shares) if shares else []


Share = tuple[object, Sequence[str]]
"""What a Spark task gets, and where it should run; Spark chooses if the places are empty."""


class Jobs(Protocol):
    """Runs a Spark job with a task for each share; returns what the tasks report."""

    def run(self, shares: Iterable[Share]) -> list[Row]: ...


class PlacedRDD:
    """Makes an RDD of pickled shares, each with preferred places."""

    def __init__(self, context: SparkContext) -> None:
        jvm = context._jvm
        assert jvm is not None
        self._spark, self._tuple, self._seq = context._jsc.sc(), jvm.scala.Tuple2, jvm.PythonUtils.toSeq
        self._bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))

    def of(self, shares: Iterable[Share]) -> tuple[Any, int]:
        """Returns the RDD (Java's), and how many partitions it has."""
        pairs = [(bytes(cloudpickle.dumps(share)), self._seq(list(places))) for share, places in shares]  # type: ignore[no-untyped-call]
        return self._spark.makeRDD(self._seq([self._tuple(*pair) for pair in pairs]), self._bytes), len(pairs)


class PlacedQueries:
    """A query whose rows come from a reader's stage; its tasks may each have a preferred place.

    Spark plans the query in each batch. No shuffle is between the shares and what reports, so that each task has the
    place of its share.
    """

    def __init__(self, spark: SparkSession, name: str, through: ThroughSpark) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._session, self._placed = spark, PlacedRDD(spark.sparkContext)
        self._binary = jvm.org.apache.spark.sql.Encoders.BINARY()
        self._schema, self._then = through.schema, through.then
        self._carried_out = partial(rows_of_shares, name, through.reader.stage)

    def run(self, shares: Iterable[Share]) -> list[Row]:
        """Runs the query over the shares."""
        made, _ = self._placed.of(shares)
        tickets = DataFrame(self._session._jsparkSession.createDataset(made, self._binary).toDF(), self._session)
        rows = self._then(tickets.mapInArrow(self._carried_out, self._schema)).collect()
        return [(row.summary, row.failure) for row in rows]


def rows_of_shares(name: str, stage: bytes, shares: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Carries out pickled Spark tasks, on an executor, where their rows go on through Spark."""
    for batch in shares:
        for payload in batch.column(0).to_pylist():
            yield from carried_out(name, stage, cloudpickle.loads(payload))


class PlacedJobs:
    """Spark jobs of one function, whose tasks may each have a preferred place.

    `RDD.mapPartitions(...).collect()` would do the same with some hundred round trips to the JVM, each time: names of
    classes, the function and its environment, a socket for the result. Here all that stays the same is made once.
    """

    def __init__(self, context: SparkContext, function: Callable[[Iterable[bytes]], Iterable[Row]]) -> None:
        """function: from a pickled share to its rows, on an executor."""
        jvm = context._jvm
        assert jvm is not None
        self._placed, self._python_rdd = PlacedRDD(context), jvm.PythonRDD

        def as_one(_: int, payloads: Iterable[bytes]) -> Iterable[list[Row]]:
            yield list(function(payloads))

        self._function = _wrap_function(context, as_one, NoOpSerializer(), _ROWS)

    def run(self, shares: Iterable[Share]) -> list[Row]:
        """Runs a job with a task for each share."""
        made, tasks = self._placed.of(shares)
        found = self._python_rdd(made, self._function, False, False).collect()
        return [row for at in range(tasks) for row in _ROWS.loads(found[at])]  # type: ignore[no-untyped-call]


_ROWS = CPickleSerializer()


def placed(keys: Iterable[Hashable], executors: Sequence[str], before: Mapping[Hashable, str]) -> dict[Hashable, str]:
    """Returns the executor of each key: as before if it still is there, and does not have more than its share.

    So the keys of a lost executor move, and no others; a new one gets a share from those that have more than that.
    """
    chosen: dict[Hashable, str] = {}
    if not executors:
        return chosen
    wanted = list(dict.fromkeys(keys))
    most, loads = -(-len(wanted) // len(executors)), dict.fromkeys(executors, 0)
    for key in wanted:
        executor = before.get(key)
        if executor is not None and loads.get(executor, most) < most:
            chosen[key] = executor
            loads[executor] += 1
    for key in wanted:
        if key not in chosen:
            executor = min(executors, key=loads.__getitem__)
            chosen[key] = executor
            loads[executor] += 1
    return chosen


def grouped(places: Sequence[str | None], size: int) -> list[tuple[str | None, list[int]]]:
    """Returns the tasks (indexes) in groups of one place, of at most `size`."""
    by_place: dict[str | None, list[int]] = defaultdict(list)
    for at, place in enumerate(places):
        by_place[place].append(at)
    return [(place, found[at : at + size]) for place, found in by_place.items() for at in range(0, len(found), size)]


class ExecutorPlaces:
    """The executors of a session, as Spark names them for preferred locations; on a local master there are none."""

    def __init__(self, context: SparkContext) -> None:
        self._context, self._local = context, is_local(str(context.master))
        self._look, self._found = Every(EXECUTORS_EVERY_S, at_once=True), list[str]()

    def now(self) -> list[str]:
        """Returns them in order, from a look within the last second."""
        if not self._local and self._look.due():
            listed = self._context._jsc.sc().statusStore().executorList(True)
            known = [listed.apply(at) for at in range(listed.size())]
            hosts = {one.id(): one.hostPort().rpartition(":")[0] for one in known if one.id() != "driver"}
            self._found = [f"executor_{hosts[one]}_{one}" for one in sorted(hosts)]
        return self._found
