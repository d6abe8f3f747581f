"""Run an in-memory join job: session, query, one summary per bucket and batch, a clean stop, an exit code.

    tickets -> join -> deliver      one Python task per bucket; only summaries reach the driver
    with `select:` joined rows pass through Spark's expressions in between, in the same task

Spark commits a batch only after every bucket's rows are acknowledged and its summary has arrived. SIGINT and SIGTERM
create the stop file: nothing more is admitted, the current batch is finished and committed, then the query is stopped.
A second signal stops it at once; the current batch then runs again at the next start.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger

from dedup.errors import DedupError
from dedup.kafkaresults import KafkaResults
from dedup.spark import replay_of
from dedup.worker import Setup
from deploy import report
from deploy.beginning import take_output
from deploy.durable import sync_plan
from deploy.job import WindowJob
from deploy.lock import CheckpointInUse, checkpoint_lock
from deploy.query import POLL_S, committed, failed, signals, summaries_of
from deploy.selectsql import with_selected
from deploy.session import build_session, warm_up
from deploy.sink import SUMMARY_SCHEMA, deliver_stage, identity_of
from deploy.topics import check_topics
from joins import lookup
from joins.errors import JoinError
from joins.lookup.spec import LookupSpec
from joins.lookup.stage import lookup_stage
from joins.window import carried_out, tickets
from joins.window.factsfolder import keep_facts
from joins.window.source import Gate, commit_positions
from joins.window.stage import SPARK_SCHEMA, Batches, for_spark, join_stage
from joins.window.state import Admission
from kafkaio.errors import KafkaIOError
from kafkaio.exitcode import ExitCode
from kafkaio.headers import ID
from kafkaio.now import wall_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("teacup")


def run_job(job: WindowJob, say: Callable[[str], None] = print, *, take_over: bool = False) -> ExitCode:
    """Run until stopped, or until left is read (`available_now`); one line per batch; returns the exit code.

    take_over   a new checkpoint may claim an output that a job of this name has written to from another one
    """
    try:
        with checkpoint_lock(job.checkpoint), tempfile.TemporaryDirectory(prefix="teacup-") as folder:
            return _run(job, Path(folder) / "stop", say, take_over=take_over)
    except CheckpointInUse as error:
        log.error("%s", error)
        return ExitCode.CHECKPOINT


def job_rows(spark: SparkSession, job: WindowJob, gate: Gate, setup: Setup | None) -> DataFrame:
    """The streaming DataFrame of a job: one summary (JSON) per bucket and batch; its rows are delivered on the way."""
    deliver = deliver_stage(job.spec, job.output, setup)
    spec = job.spec
    windows = job.window_folder
    join = lookup_stage(spec, windows) if isinstance(spec, LookupSpec) else join_stage(spec, windows)
    select = job.output.select
    if select is None:

        def both(batches: Iterable[pa.RecordBatch]) -> Batches:
            return deliver(join(batches))

        if isinstance(spec, LookupSpec):
            return lookup.carried_out(spark, spec, both, SUMMARY_SCHEMA, gate)
        return carried_out(spark, spec, both, SUMMARY_SCHEMA, gate)

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        return for_spark(join(batches))

    asked = job.output.deduplicate
    added = {} if asked is None or asked.expression is None else {ID: asked.expression}
    source = lookup.tickets(spark, spec, gate) if isinstance(spec, LookupSpec) else tickets(spark, spec, gate)
    chosen = with_selected(source.mapInArrow(rows, SPARK_SCHEMA), select, added)
    return chosen.mapInArrow(deliver, SUMMARY_SCHEMA)


def deduplication(job: WindowJob) -> Setup | None:
    """What tasks need to drop rows that an earlier driver or attempt has written; raises `DedupError`."""
    asked = job.output.deduplicate
    if asked is None:
        return None
    topic, kafka, identity = job.output.topic, {**job.spec.kafka, **job.output.kafka}, identity_of(job.spec, asked)
    replay, tail = replay_of(job.checkpoint), 2 * job.spec.max_records  # twice, because keys may be skewed
    return Setup(job.spec.name, asked.config, replay, lambda: KafkaResults(topic, kafka, identity, tail=tail))


def _run(job: WindowJob, stop_file: Path, say: Callable[[str], None], *, take_over: bool = False) -> ExitCode:
    try:
        setup = deduplication(job)
        check_topics(job)
        generation = take_output(job, take_over=take_over) if job.output.exactly_once else None
    except (DedupError, JoinError, KafkaIOError) as error:
        return failed(error)
    if not job.json_log:
        left, right = job.spec.left.topic, job.spec.right.topic
        say(f"{job.spec.name}: joins {left} with {right} into {job.output.topic}; Spark starts, Ctrl-C stops")
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = build_session(
        job.spec.name,
        job.spark,
        rows_in_jvm=job.output.select is not None,
        exactly_once=job.output.exactly_once,
    )
    warm_up(spark)
    gate = Gate(
        stop_file=stop_file,
        commit_group=job.spec.name,
        generation=generation,
        windows=job.window_folder,
        facts=job.facts_folder,
    )
    ended: list[int] = []

    def finish(frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        sync_plan(job.checkpoint, batch_id)
        summaries = summaries_of(frame)
        if summaries:  # there are none if the job was stopped before anything was planned
            keep_facts(job.facts_folder, job.spec.name, summaries)
            now_ms = wall_ms()
            _say(job, say, report.gather(job.spec, summaries, time.monotonic() - began, now_ms))
        ended.append(batch_id)
        del ended[:-1]

    trigger: dict[str, Any] = (
        {"availableNow": True} if job.trigger_ms is None else {"processingTime": f"{job.trigger_ms} milliseconds"}
    )
    try:
        rows = job_rows(spark, job, gate, setup)
    except AnalysisException as error:
        spark.stop()
        log.error("output.select: Spark refuses an expression: %s", str(error).split("\n", 1)[0])
        return ExitCode.BAD_JOB_FILE
    writer = rows.writeStream.queryName(job.spec.name).foreachBatch(finish)
    query = writer.option("checkpointLocation", job.checkpoint).trigger(**trigger).start()
    with signals(stop_file, query) as asked:
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions of a second
                if asked.is_set() and committed(query, ended):
                    query.stop()
        except Exception as error:  # noqa: BLE001 - whatever ended the query is logged and becomes an exit code
            return failed(error)
        finally:
            _commit_last(job, query)
            spark.stop()
    return ExitCode.DONE


def _say(job: WindowJob, say: Callable[[str], None], batch: report.BatchReport) -> None:
    if job.json_log:
        say(json.dumps(report.for_machines(batch), sort_keys=True))
        return
    if batch.records or batch.rows:
        say(report.for_people(batch))
    for warning in batch.warnings:
        log.warning("%s", warning)


def _commit_last(job: WindowJob, query: StreamingQuery) -> None:
    """Spark reports a committed batch to the source when the next one starts; here the last one's are committed."""
    ends = [p["sources"][0]["endOffset"] for p in query.recentProgress]
    offsets = [json.loads(end) if isinstance(end, str) else end for end in ends if end]
    if not offsets or not offsets[-1]:
        return
    try:
        commit_positions(job.spec, job.spec.name, Admission.from_json(offsets[-1]), job.facts_folders)
    except KafkaIOError as error:
        log.warning("positions were not committed to group %r: %s", job.spec.name, error)
