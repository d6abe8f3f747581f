"""A stream with one row: has Spark load and start what a query of ours needs, without any topic.

It serves the archive of Spark's classes (`teacup.spark.class_archive`) and a process that waits for its turn
(`deploy.jobs.standby`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from teacup.base.scratch import ScratchFolder
from teacup.spark.jvm_errors import cancelled_by_a_stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("teacup.spark.one_row")

WITHIN_S = 60
LOOK_EVERY_S = 0.5


def carry_out(spark: SparkSession, stopped: Callable[[], bool] = lambda: False) -> None:
    """Runs the stream, with a checkpoint that is removed again; ends early if it is to stop."""
    spark.dataSource.register(_OneRow)
    rows = spark.readStream.format(_OneRow.name()).load().mapInArrow(lambda batches: batches, "value bigint")
    with ScratchFolder("one-row") as checkpoint:
        query = (
            rows.writeStream.foreachBatch(_collect)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            ends_s = time.monotonic() + WITHIN_S
            while not (stopped() or query.awaitTermination(LOOK_EVERY_S)):  # type: ignore[arg-type]  # may be a fraction
                if time.monotonic() > ends_s:
                    break
        finally:
            query.stop()


def rehearse(spark: SparkSession, stopped: Callable[[], bool]) -> None:
    """Runs it, so that the next query finds everything that Spark loads and starts for its first; takes seconds."""
    try:
        carry_out(spark, stopped)
    except Exception as error:  # noqa: BLE001 - nothing depends on it: the next query only starts more slowly
        log.debug("the stream of one row was not carried out: %s", error)


class _OneRow(DataSource):
    """A stream with one row in it."""

    @classmethod
    def name(cls) -> str:
        return "teacup_one_row"

    def schema(self) -> str:
        return "value bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _OneRowReader()


class _OneRowReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:
        """Has nothing to prepare."""

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(row) for row in range(start["rows"], end["rows"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)


def _collect(frame: DataFrame, batch_id: int) -> None:
    with cancelled_by_a_stop():
        frame.collect()
