"""The Spark jobs of a batch: what a reader's tasks make, or what becomes of it behind an exchange.

    no exchange   shares -> stage -> rows
    exchange      shares -> stage -> pieces =Spark's shuffle=> the pieces of each share of parts -> stage -> rows
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
from typing import Any, Protocol

import pyarrow as pa
from pyspark import SparkContext, cloudpickle
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import CPickleSerializer, NoOpSerializer, pack_long
from pyspark.sql import DataFrame, SparkSession

from teacup.spark.batches.placement import PlacedTask
from teacup.spark.jvm_errors import crossing_rows
from teacup.spark.stream_reader import StreamReader, carried_out, payloads

Report = tuple[str | None, str | None]
"""What a task reports (`teacup.spark.jvm_errors.SUMMARY_SCHEMA`)."""
Rows = Callable[[Iterable[bytes]], Iterator[pa.RecordBatch]]
"""What a Spark task does with what it gets."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What becomes of the pieces that a reader's stage makes: rows of a part number and a piece (bytes).

    parts        how many parts the batch that ends at this offset has, and how many of them a Spark task gets at most
    stage        pickled: the pieces of some of them, in any order -> rows
    in_one_task  pickled: all tasks of a batch -> rows, if one Spark task has them
    """

    parts: Callable[[dict[str, Any]], tuple[int, int]]
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
class BatchWork:
    """What the Spark tasks of a batch do. parts: shares of part numbers; empty: there is no exchange."""

    shares: Sequence[PlacedTask]
    parts: Sequence[PlacedTask] = ()

    @property
    def is_one_task(self) -> bool:
        """Whether pieces stay in the task that makes them."""
        return len(self.shares) == len(self.parts) == 1

    @property
    def reporting(self) -> int:
        """Returns how many Spark tasks have to report."""
        return len(self.parts or self.shares)


def batch_jobs_of(spark: SparkSession, name: str, stream: Stream) -> BatchJobs:
    """Returns what runs the batches of a job."""
    return PlainJobs(spark, name, stream) if stream.through is None else Queries(spark, name, stream, stream.through)


class BatchJobs(Protocol):
    """Runs a batch; returns what the tasks report."""

    def run(self, work: BatchWork) -> list[Report]: ...


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

    def run(self, work: BatchWork) -> list[Report]:
        """Runs a job."""
        inputs, rows = self._inputs.of(work)
        found = self._python_rdd(inputs, self._functions[rows], False, False).collect()
        return [row for at in range(work.reporting) for row in _REPORTS.loads(found[at])]  # type: ignore[no-untyped-call]

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

    def run(self, work: BatchWork) -> list[Report]:
        """Runs a query."""
        inputs, rows = self._inputs.of(work)
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
        self._of_shares: Rows = partial(rows_of_shares, name, stream.reader.stage)
        self._here = self._behind = self._of_shares
        if stream.exchange is not None:
            self._here = partial(rows_of_shares, name, stream.exchange.in_one_task)
            self._behind = partial(rows_of_pieces, stream.exchange.stage)
            keyed = partial(keyed_pieces, name, stream.reader.stage)
            self._keyed = _wrap_function(context, lambda _, shares: keyed(shares), NoOpSerializer(), NoOpSerializer())
            self._second = second_of_two(context)

    @property
    def all_rows(self) -> set[Rows]:
        """Returns what the tasks of any batch may do."""
        return {self._of_shares, self._here, self._behind}

    def of(self, work: BatchWork) -> tuple[Any, Rows]:
        """Returns the RDD for a batch, and what its tasks do."""
        if not work.parts:
            return self._placed((share.task, share.places) for share in work.shares), self._of_shares
        if work.is_one_task:  # where the window is
            return self._placed([(work.shares[0].task, work.parts[0].places)]), self._here
        return self._exchanged(work), self._behind

    def _exchanged(self, work: BatchWork) -> Any:
        """The pieces of each share of parts; `zipPartitions` with shares that have places gives it theirs."""
        target_of = {part: at for at, share in enumerate(work.parts) for part in share.task.value}
        makers = self._placed(((share.task, target_of), share.places) for share in work.shares)
        pairs = self._jvm.PairwiseRDD(self._jvm.PythonRDD(makers, self._keyed, False, False)).asJavaPairRDD()
        divided = pairs.partitionBy(self._jvm.PythonPartitioner(len(work.parts), 0))
        pieces = self._jvm.PythonRDD.valueOfPair(divided).rdd()
        places = self._placed((None, share.places) for share in work.parts)
        return places.zipPartitions(pieces, False, self._second, self._bytes, self._bytes)

    def _placed(self, shares: Iterable[tuple[object, Sequence[str]]]) -> Any:
        """Returns an RDD of pickled shares, each in a partition of its own with preferred places."""
        pairs = [(bytes(cloudpickle.dumps(share)), self._seq(list(places))) for share, places in shares]  # type: ignore[no-untyped-call]
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


def rows_of_shares(name: str, stage: bytes, shares: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Carries out pickled Spark tasks, on an executor."""
    for share in shares:
        yield from carried_out(name, stage, cloudpickle.loads(share))


def keyed_pieces(name: str, stage: bytes, shares: Iterable[bytes]) -> Iterator[bytes]:
    """Carries out pickled Spark tasks; yields for each piece the number of the share that gets it, and the piece."""
    for share in shares:
        task, target_of = cloudpickle.loads(share)
        for made in carried_out(name, stage, task):
            for part, piece in zip(*(column.to_pylist() for column in made.columns), strict=True):
                yield pack_long(target_of[part])  # type: ignore[no-untyped-call]
                yield piece


def rows_of_pieces(stage: bytes, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Carries out what is behind an exchange, on an executor."""
    made: Rows = cloudpickle.loads(stage)
    return crossing_rows(made)(pieces)


_REPORTS = CPickleSerializer()
