"""The two joins as a kind of job: an in-memory join or a lookup join, and the sink.

tickets -> join -> deliver      one Python task per bucket; only summaries reach the driver
with `select:` joined rows pass through Spark's expressions in between, in the same task
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from dedup.restart.spark import replay_of
from dedup.restart.worker import Setup
from dedup.results.kafka import KafkaResults
from deploy.jobs.beginning import take_output
from deploy.jobs.job import JoinJob
from deploy.jobs.report import BatchReport, gather
from deploy.jobs.runner import Kind
from deploy.jobs.topics import check_topics
from deploy.output.selectsql import with_selected
from deploy.output.sink import SUMMARY_SCHEMA, deliver_stage, identity_of
from deploy.spark.session import SessionRefused
from joins.admission.committed import commit_positions, positions_of
from joins.admission.control import JoinControl
from joins.admission.factsfolder import keep_facts, known_facts
from joins.admission.state import Admission
from joins.flavour import carried_out, flavour_of, tickets
from joins.window.stage import SPARK_SCHEMA, Batches, for_spark
from kafkaio.headers import ID
from sparkio.crossing import crossing_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deploy.jobs.backlog import Positions


class JoinKind(Kind):
    """An in-memory join or a lookup join."""

    def __init__(self, job: JoinJob, *, take_over: bool = False) -> None:
        """`take_over`: a new checkpoint may claim an output that a job of this name has written to from another one."""
        spec = job.spec
        super().__init__(job, spec.name, spec.kafka)
        self.rows_in_jvm, self.exactly_once = job.output.select is not None, job.output.exactly_once
        self._job, self._take_over = job, take_over
        self._setup: Setup | None = None
        self._generation: str | None = None

    def opening(self) -> str:
        spec = self._job.spec
        return f"{self.name}: joins {spec.left.topic} with {spec.right.topic} into {self._job.output.topic}"

    def read_checkpoint(self) -> None:
        self._setup = deduplication(self._job)

    def prepare(self) -> None:
        check_topics(self._job)
        if self.exactly_once:
            self._generation = take_output(self._job, take_over=self._take_over)

    def rows(self, spark: SparkSession, stop_file: Path) -> DataFrame:
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        control = JoinControl(
            stop_file=stop_file,
            commit_group=self.name,
            generation=self._generation,
            windows=self._job.window_folder,
            facts=self._job.facts_folder,
        )
        try:
            return job_rows(spark, self._job, control, self._setup)
        except AnalysisException as error:
            what = str(error).split("\n", 1)[0]
            raise SessionRefused(f"output.select: Spark refuses an expression: {what}") from error

    def report(self, summaries: Sequence[Mapping[str, Any]], seconds: float, at_ms: int) -> BatchReport:
        return gather(self._job.spec, summaries, seconds, at_ms)

    def keep(self, summaries: Sequence[Mapping[str, Any]]) -> None:
        keep_facts(self._job.facts_folder, self.name, summaries)

    def positions(self, end: Mapping[str, Any]) -> Positions:
        admission = Admission.from_json(end)
        spec = self._job.spec
        return positions_of(spec, admission, known_facts(spec.name, admission, self._job.facts_folders))

    def commit(self, end: Mapping[str, Any]) -> None:
        commit_positions(self._job.spec, self.name, Admission.from_json(end), self._job.facts_folders)


def job_rows(spark: SparkSession, job: JoinJob, control: JoinControl, setup: Setup | None) -> DataFrame:
    """The streaming DataFrame of a job: one summary (JSON) per bucket and batch; its rows are delivered on the way."""
    deliver = deliver_stage(job.spec, job.output, setup)
    spec = job.spec
    join = flavour_of(spec).stage(spec, job.window_folder)
    select = job.output.select
    if select is None:

        def both(batches: Iterable[pa.RecordBatch]) -> Batches:
            return deliver(join(batches))

        return carried_out(spark, spec, both, SUMMARY_SCHEMA, control)

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        return for_spark(join(batches))

    asked = job.output.deduplicate
    added = {} if asked is None or asked.expression is None else {ID: asked.expression}
    joined = tickets(spark, spec, control).mapInArrow(crossing_rows(rows), SPARK_SCHEMA)
    chosen = with_selected(joined, select, added)
    return chosen.mapInArrow(crossing_rows(deliver), SUMMARY_SCHEMA)


def deduplication(job: JoinJob) -> Setup | None:
    """What tasks need to drop rows that an earlier driver or attempt has written; raises `DedupError`."""
    asked = job.output.deduplicate
    if asked is None:
        return None
    topic, kafka, identity = job.output.topic, {**job.spec.kafka, **job.output.kafka}, identity_of(job.spec, asked)
    replay, tail = replay_of(job.checkpoint), 2 * job.spec.max_records  # twice, because keys may be skewed
    return Setup(job.spec.name, asked.config, replay, lambda: KafkaResults(topic, kafka, identity, tail=tail))
