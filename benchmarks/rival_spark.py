"""The rival: Spark's own stream-stream left outer join, over a plain record source, on the same topics.

It gets every advantage. Records come as Arrow batches from the same range reader; the ranges of both topics end at the
same event time, in steps of a batch's records (so that no record is late, with a watermark of the disorder alone, and
the state holds no more than the interval needs); as many shuffle partitions as the topics have; changelog checkpoints
for RocksDB; no sink, and counts by an observed metric. There are no marks, no unjoined right records, no reports;
unmatched rows of the last seconds never come, because no watermark passes them.

    python -m benchmarks.rival_spark --state memory|rocksdb --work work.json --checkpoint new/folder --out result.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from benchmarks.workload import AFTER_MS, BEFORE_MS, DISORDER_MS, MAX_RECORDS, Work
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import open_reader

SCHEMA = "key binary, time timestamp, value binary, partition int, offset bigint"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.driver.memory": "6g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
ROCKSDB_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class Range(InputPartition):
    """What a task reads."""

    partition: int
    start: int
    end: int


def record_source(side: str, topic: str, kafka: Mapping[str, str], work: Work, step_ms: int, until_ms: int) -> Any:
    """Makes a data source of a topic's records as rows, in ranges of `step_ms` of event time, up to `until_ms`."""

    class Records(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"plain_{side}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return RecordReader(topic, kafka, work, step_ms, until_ms)

    return Records


class RecordReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges of a topic. Its offsets are {"positions": {partition: offset}, "until_ms": event time}."""

    def __init__(self, topic: str, kafka: Mapping[str, str], work: Work, step_ms: int, until_ms: int) -> None:
        self._topic, self._kafka = topic, dict(kafka)
        self._begin_ms, self._step_ms, self._until_ms = work.begin_ms, step_ms, until_ms
        self._partitions = work.partitions
        self._log: BrokerLog | None = None

    def prepareForTriggerAvailableNow(self) -> None:
        return

    def initialOffset(self) -> dict[str, Any]:
        return {"positions": {str(p): 0 for p in range(self._partitions)}, "until_ms": self._begin_ms}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start["until_ms"] >= self._until_ms:
            return start
        if self._log is None:
            self._log = BrokerLog(self._topic, self._kafka)
        until_ms = min(start["until_ms"] + self._step_ms, self._until_ms)
        ends = self._log.ends()
        found = self._log.estimate(dict.fromkeys(ends, until_ms))
        positions = {str(p): max(min(found[p], ends[p].stable), start["positions"][str(p)]) for p in sorted(ends)}
        return {"positions": positions, "until_ms": until_ms}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [
            Range(int(p), start["positions"][p], until)
            for p, until in end["positions"].items()
            if until > start["positions"][p]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        reader = open_reader(self._topic, self._kafka)
        for batch in reader.read(partition.partition, partition.start, partition.end, chunk=20_000):
            times = pc.multiply(batch.column("timestamp"), 1_000).cast(pa.timestamp("us", "UTC"))
            columns = [batch.column("key"), times, *(batch.column(name) for name in ("value", "partition", "offset"))]
            yield pa.RecordBatch.from_arrays(columns, names=["key", "time", "value", "partition", "offset"])


def stream(spark: SparkSession, side: str, topic: str, work: Work, step_ms: int, until_ms: int) -> DataFrame:
    source = record_source(side, topic, work.kafka, work, step_ms, until_ms)
    spark.dataSource.register(source)
    records = spark.readStream.format(source.name()).load()
    renamed = records.select(*(sf.col(name).alias(f"{side}_{name}") for name in records.columns))
    return renamed.withWatermark(f"{side}_time", f"{DISORDER_MS} milliseconds")


def run(
    work: Work, settings: Mapping[str, str], checkpoint: Path, fraction: float, max_records: int, before_ms: int
) -> dict[str, Any]:
    """Drains the first part of the history; returns the counts."""
    builder = SparkSession.builder.appName("rival")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    span_ms = work.end_ms - work.begin_ms
    until_ms = work.begin_ms + round(span_ms * fraction) + (DISORDER_MS if fraction >= 1 else 0)
    step_ms = max(round(span_ms * max_records / work.records), 1)
    left = stream(spark, "left", work.left_topic, work, step_ms, until_ms)
    right = stream(spark, "right", work.right_topic, work, step_ms, until_ms)
    before, after = (sf.expr(f"interval {ms} milliseconds") for ms in (before_ms, AFTER_MS))
    condition = (
        (sf.col("left_key") == sf.col("right_key"))
        & (sf.col("right_time") >= sf.col("left_time") - before)
        & (sf.col("right_time") <= sf.col("left_time") + after)
    )
    joined = left.join(right, condition, "left_outer").observe(
        "rows",
        sf.count(sf.lit(1)).alias("rows"),
        sf.count("right_offset").alias("matched"),
    )
    query = (
        joined.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    observed = [progress.observedMetrics["rows"] for progress in query.recentProgress if progress.observedMetrics]
    matched = sum(batch.matched for batch in observed)
    dropped = sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)
    spark.stop()
    return {
        "matched": matched,
        "unmatched": sum(batch.rows for batch in observed) - matched,
        "dropped_late": dropped,
        "whole": fraction >= 1,
    }


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rival_spark", description="Spark's own join.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--state", choices=("memory", "rocksdb"), default="memory")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--fraction", type=float, default=1.0, help="only this first part of the history")
    parser.add_argument("--max-records", type=int, default=MAX_RECORDS, help="a batch, left and right together")
    parser.add_argument("--before-ms", type=int, default=BEFORE_MS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--state-format", type=int, choices=(2, 3, 4), default=2, help="of Spark's join state")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    work = Work.load(asked.work)
    settings = {
        **SETTINGS,
        **(ROCKSDB_SETTINGS if asked.state == "rocksdb" else {}),
        "spark.master": asked.master,
        "spark.sql.shuffle.partitions": str(work.partitions),
        "spark.sql.streaming.join.stateFormatVersion": str(asked.state_format),
    }
    counts = run(work, settings, asked.checkpoint, asked.fraction, asked.max_records, asked.before_ms)
    asked.out.write_text(json.dumps({"counts": counts}))
    sys.stdout.write(f"{counts}\n")


if __name__ == "__main__":
    _main()
