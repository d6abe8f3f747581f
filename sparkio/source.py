"""The data source class of a streaming reader, and the stage that it carries to the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from kafkaio.withoutpandas import use_arrow_without_pandas
from sparkio.cutoff import end_quietly_when_cut_off
from sparkio.workerlog import log_like_the_driver

PartitionStage = Callable[[Sequence[Any]], Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]]
"""What an input partition holds, some of the reader's tasks -> its rows, on an executor."""


def pickled(stage: PartitionStage) -> bytes:
    """A stage as bytes: only the executors' workers need what it imports, not the processes in which Spark plans."""
    return bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]


def stream_source(kind: str, name: str, schema: str, reader: Callable[[], DataSourceStreamReader]) -> type[DataSource]:
    """A data source class for one job. What the reader is made of travels in it, so it appears in no plan or log.

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
            made: DataSourceStreamReader = cloudpickle.loads(makes_reader)()
            return made

    return StreamSource


def rows_of(spark: SparkSession, source: type[DataSource]) -> DataFrame:
    """Register a streaming source, and read from it."""
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()
