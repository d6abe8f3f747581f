"""The data source class of a streaming reader, and the stage that it carries to the executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from sparkio.cutoff import end_quietly_when_cut_off

PartitionStage = Callable[[Any], Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]]
"""The value of an input partition -> its rows, on an executor."""


def pickled(stage: PartitionStage) -> bytes:
    """A stage as bytes: only the executors' workers need what it imports, not the processes in which Spark plans."""
    return bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]


def stream_source(kind: str, name: str, schema: str, reader: Callable[[], DataSourceStreamReader]) -> type[DataSource]:
    """A data source class for one job. What the reader is made of travels in it, so it appears in no plan or log.

    kind, name   together the name of the source in Spark
    schema       of the rows
    """
    columns = schema

    class StreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"teacup_{kind}_" + "".join(c if c.isalnum() else "_" for c in name).lower()

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            end_quietly_when_cut_off()
            return reader()

    return StreamSource


def rows_of(spark: SparkSession, source: type[DataSource]) -> DataFrame:
    """Register a streaming source, and read from it."""
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()
