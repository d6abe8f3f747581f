"""The data source class of a streaming reader, and the stage that it carries to the executors.

A process of Spark's that plans for a source ends without a traceback once the JVM has closed its socket.

PySpark's own code writes a last answer then, which fails, and a clean stop would print that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from teacup.base.imports import use_arrow_without_pandas
from teacup.base.logs import log_like_the_driver

if TYPE_CHECKING:
    from teacup.spark.stream_reader import PartitionStage, StreamReader


def end_quietly_when_cut_off() -> None:
    """Makes an uncaught error of a closed connection end this process without a line; others are reported as before."""
    sys.excepthook = _report


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def pickled(stage: PartitionStage) -> bytes:
    """Pickles a stage: only the executors' workers need what it imports, not the processes in which Spark plans."""
    return bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]


def stream_source(kind: str, name: str, schema: str, reader: Callable[[], StreamReader]) -> type[DataSource]:
    """Makes a data source class for a job. What the reader is made of travels in it, so it appears in no plan or log.

    It travels as bytes: Spark starts processes that only ask for the schema, and need not import what plans.

    kind, name   together the name of the source in Spark
    schema       of the rows
    """
    columns, makes_reader = schema, bytes(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]

    class StreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"teacup_{kind}_" + "".join(c if c.isalnum() else "_" for c in name).lower()

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            end_quietly_when_cut_off()
            log_like_the_driver()
            use_arrow_without_pandas()
            return MadeWhenAsked(makes_reader)

    return StreamSource


class MadeWhenAsked(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that is made when it is first asked.

    One of the processes that Spark starts only hands it on, and need not import what plans.
    """

    def __init__(self, makes_reader: bytes) -> None:
        self._makes_reader = makes_reader

    @cached_property
    def _made(self) -> StreamReader:
        made: StreamReader = cloudpickle.loads(self._makes_reader)()
        return made

    def initialOffset(self) -> dict[str, Any]:
        return self._made.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._made.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._made.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._made.latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._made.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]:
        return self._made.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._made.commit(end)

    def stop(self) -> None:
        if "_made" in self.__dict__:
            self._made.stop()


def rows_of(spark: SparkSession, source: type[DataSource]) -> DataFrame:
    """Registers a streaming source, and reads from it."""
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()
