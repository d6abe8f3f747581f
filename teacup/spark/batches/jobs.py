"""The Spark jobs of a batch: what tasks make of a reader's work, or behind an exchange a second stage of that.

    no exchange   tasks -> stage -> rows
    exchange      tasks -> stage -> pieces =Spark's shuffle=> tasks, each with the pieces of some parts -> stage -> rows
                  or, of a batch of one task, all of this within it: nothing is shuffled

All these tasks have preferred places (`teacup.spark.batches.placement`), also behind the exchange, where Spark would
choose hosts with most of the data; for a small batch that is every host.

Without `select` the rows are the tasks' reports. With it they are joined rows, which a SQL query, made for each batch,
turns into reports in the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, cloudpickle
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import CPickleSerializer, NoOpSerializer, pack_long
from pyspark.sql import DataFrame, SparkSession

from teacup.spark.batches.placement import PlacedTask
from teacup.spark.jvm_errors import crossing_rows
from teacup.spark.stream_reader import BatchWork, StreamReader, carried_out, payloads

Report = tuple[str | None, str | None]
"""What a task reports (`teacup.spark.jvm_errors.SUMMARY_SCHEMA`)."""
Rows = Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]
"""What a Spark task does with what it gets."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What becomes of the pieces that a reader's stage makes: rows of a part number and a piece (bytes).

    parts        the work behind it, in the batch that ends at this offset: its items are part numbers
    stage        pickled: the pieces of some parts, in any order -> rows
    in_one_task  pickled: all items of a reader's work -> rows, if one Spark task has them
    """

    parts: Callable[[dict[str, Any]], BatchWork]
    stage: bytes
    in_one_task: bytes


@dataclass(frozen=True, slots=True)
class ThroughSpark:
    """Rows go on through Spark's expressions, in the same task.

    schema   of these rows
    then     makes of them a frame of what tasks report (`SUMMARY_SCHEMA`), without a shuffle
    """

    schema: str
    then: Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Stream:
    """How the batches of a job are carried out.

    exchange   None: the reader's stage makes the rows
    through    None: the rows are reports
    """

    reader: StreamReader
    exchange: Exchange | None = None
    through: ThroughSpark | None = None


@dataclass(frozen=True, slots=True)
class BatchTasks:
    """The Spark tasks of a batch. behind: those behind an exchange, of part numbers; empty: there is none."""

    first: Sequence[PlacedTask]
    behind: Sequence[PlacedTask] = ()

    @property
    def is_one(self) -> bool:
        """Whether pieces stay in the task that makes them."""
        return len(self.first) == len(self.behind) == 1

    @property
    def reporting(self) -> int:
        """Returns how many Spark tasks have to report."""
        return len(self.behind or self.first)


def batch_jobs_of(spark: SparkSession, name: str, stream: Stream) -> PlainJobs | Queries:
    """Returns what runs the batches of a job."""
    return PlainJobs(spark, name, stream) if stream.through is None else Queries(spark, name, stream, stream.through)


class PlainJobs:
    """Runs batches as plain jobs of Spark's, which plan no query.

    `RDD.mapPartitions(...).collect()` would do the same with some hundred round trips to the JVM, each time: names of
    classes, the function and its environment, a socket for the result. Here all that stays the same is made once.
    """

    def __init__(self, spark: SparkSession, name: str, stream: Stream) -> None:
        self._inputs = TaskInputs(spark.sparkContext, name, stream)
        self._functions = {rows: self._wrapped(spark.sparkContext, rows) for rows in self._inputs.all_rows}
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._python_rdd = jvm.PythonRDD

    def run(self, tasks: BatchTasks) -> list[Report]:
        """Runs a job."""
        inputs, rows = self._inputs.of(tasks)
        results = self._python_rdd(inputs, self._functions[rows], False, False).collect()
        return [row for at in range(tasks.reporting) for row in _REPORTS.loads(results[at])]  # type: ignore[no-untyped-call]

    @staticmethod
    def _wrapped(context: SparkContext, rows: Rows) -> Any:
        def as_one(_: int, inputs: Iterable[bytes]) -> Iterable[list[Report]]:
            yield [row for batch in rows(inputs) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]

        return _wrap_function(context, as_one, NoOpSerializer(), _REPORTS)


class Queries:
    """Runs batches as queries of Spark's."""

    def __init__(self, spark: SparkSession, name: str, stream: Stream, through: ThroughSpark) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._session, self._through = spark, through
        self._inputs = TaskInputs(spark.sparkContext, name, stream)
        self._binary = jvm.org.apache.spark.sql.Encoders.BINARY()

    def run(self, tasks: BatchTasks) -> list[Report]:
        """Runs a query."""
        inputs, rows = self._inputs.of(tasks)
        frame = DataFrame(self._session._jsparkSession.createDataset(inputs, self._binary).toDF(), self._session)
        made = frame.mapInArrow(lambda batches: rows(payloads(batches)), self._through.schema)
        return [(row.summary, row.failure) for row in self._through.then(made).collect()]


class TaskInputs:
    """Makes the RDD (Java's, of bytes) over which the tasks that report run."""

    def __init__(self, context: SparkContext, name: str, stream: Stream) -> None:
        jvm = context._jvm
        assert jvm is not None
        self._jvm, self._spark = jvm, context._jsc.sc()
        self._tuple, self._seq = jvm.scala.Tuple2, jvm.PythonUtils.toSeq
        self._bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        self._of_tasks: Rows = partial(rows_of_tasks, name, stream.reader.stage)
        self._here = self._behind = self._of_tasks
        if stream.exchange is not None:
            self._here = partial(rows_of_tasks, name, stream.exchange.in_one_task)
            self._behind = partial(rows_of_pieces, stream.exchange.stage)
            keyed = partial(keyed_pieces, name, stream.reader.stage)
            self._keyed = _wrap_function(context, lambda _, tasks: keyed(tasks), NoOpSerializer(), NoOpSerializer())
            self._second = second_of_two(context)

    @property
    def all_rows(self) -> set[Rows]:
        """Returns what the tasks of any batch may do."""
        return {self._of_tasks, self._here, self._behind}

    def of(self, tasks: BatchTasks) -> tuple[Any, Rows]:
        """Returns the RDD for a batch, and what its tasks do."""
        if not tasks.behind:
            return self._placed((one.task, one.places) for one in tasks.first), self._of_tasks
        if tasks.is_one:  # where the window is
            return self._placed([(tasks.first[0].task, tasks.behind[0].places)]), self._here
        return self._exchanged(tasks), self._behind

    def _exchanged(self, tasks: BatchTasks) -> Any:
        """The pieces for each task behind the exchange; `zipPartitions` with an RDD that has places gives it theirs."""
        target_of = {part: at for at, one in enumerate(tasks.behind) for part in one.task.items}
        makers = self._placed(((one.task, target_of), one.places) for one in tasks.first)
        pairs = self._jvm.PairwiseRDD(self._jvm.PythonRDD(makers, self._keyed, False, False)).asJavaPairRDD()
        divided = pairs.partitionBy(self._jvm.PythonPartitioner(len(tasks.behind), 0))
        pieces = self._jvm.PythonRDD.valueOfPair(divided).rdd()
        places = self._placed((None, one.places) for one in tasks.behind)
        return places.zipPartitions(pieces, False, self._second, self._bytes, self._bytes)

    def _placed(self, contents: Iterable[tuple[object, Sequence[str]]]) -> Any:
        """Returns an RDD of pickled contents, each in a partition of its own with preferred places."""
        pairs = [(bytes(cloudpickle.dumps(content)), self._seq(list(places))) for content, places in contents]  # type: ignore[no-untyped-call]
        return self._spark.makeRDD(self._seq([self._tuple(*pair) for pair in pairs]), self._bytes)


def second_of_two(context: SparkContext) -> Any:
    """Returns (a, b) -> b as a function of Scala's, of what its library has: a -> (b -> b), uncurried.

    `uncurried` has four methods, which differ in what they return: py4j would take any of them.
    """
    jvm, gateway = context._jvm, context._gateway
    assert jvm is not None
    assert gateway is not None
    identity = getattr(getattr(jvm.scala, "Predef$"), "MODULE$").__getattr__("$conforms")()
    always_identity = jvm.PythonUtils.toScalaMap({}).withDefaultValue(identity)
    (uncurried,) = (
        method
        for method in jvm.java.lang.Class.forName("scala.Function").getMethods()
        if (method.getName(), method.getReturnType().getName()) == ("uncurried", "scala.Function2")
    )
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = always_identity
    return uncurried.invoke(None, arguments)


def rows_of_tasks(name: str, stage: bytes, tasks: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Carries out pickled Spark tasks, on an executor."""
    for task in tasks:
        yield from carried_out(name, stage, cloudpickle.loads(task))


def keyed_pieces(name: str, stage: bytes, tasks: Iterable[bytes]) -> Iterator[bytes]:
    """Carries out pickled Spark tasks; yields for each piece the number of the task that gets it, and the piece."""
    for pickle in tasks:
        task, target_of = cloudpickle.loads(pickle)
        for made in carried_out(name, stage, task):
            for part, piece in zip(*(column.to_pylist() for column in made.columns), strict=True):
                yield pack_long(target_of[part])  # type: ignore[no-untyped-call]
                yield piece


def rows_of_pieces(stage: bytes, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Carries out what is behind an exchange, on an executor."""
    made: Rows = cloudpickle.loads(stage)
    return crossing_rows(made)(pieces)


_REPORTS = CPickleSerializer()
