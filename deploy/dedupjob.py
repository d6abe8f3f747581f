"""Run a deduplication job: one topic to another, a summary per partition and batch, a line per batch, a clean stop."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dedup.errors import DedupError
from dedup.identity import Within
from dedup.spark import replay_of
from dedup.topicjob import TopicJob, check_partitions, topic_stage
from dedup.topicsource import Ranges, range_source
from deploy.accounts import check_whole
from deploy.job import DedupJob
from deploy.lock import CheckpointInUse, checkpoint_lock
from deploy.query import POLL_S, committed, failed, signals, summaries_of
from deploy.session import build_session, warm_up
from kafkaio.errors import KafkaIOError
from kafkaio.exitcode import ExitCode
from kafkaio.headers import BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("teacup")

_COUNTS = ("read", "written", "dropped", "without_id", "loaded", "known", "forgotten")


def run_dedup(job: DedupJob, say: Callable[[str], None] = print) -> ExitCode:
    """Run until stopped, or until the source is read (`available_now`); one line per batch; returns the exit code."""
    try:
        with checkpoint_lock(job.checkpoint), tempfile.TemporaryDirectory(prefix="teacup-") as folder:
            return _run(job, Path(folder) / "stop", say)
    except CheckpointInUse as error:
        log.error("%s", error)
        return ExitCode.CHECKPOINT


def _run(job: DedupJob, stop_file: Path, say: Callable[[str], None]) -> ExitCode:
    try:
        topics = TopicJob(
            name=job.name,
            source=job.source,
            output=job.output,
            kafka=job.kafka,
            producer=job.producer,
            identity=job.identity,
            window_ms=job.window_ms,
            config=job.config,
            replay=replay_of(job.checkpoint),
        )
        problem = check_partitions(topics)
    except (DedupError, KafkaIOError) as error:
        return failed(error)
    if problem is not None:
        log.error("%s", problem)
        return ExitCode.NOT_CO_PARTITIONED
    spark = build_session(job.name, job.spark, rows_in_jvm=False)
    warm_up(spark)
    source = range_source(
        job.name, Ranges(job.source, job.kafka, job.max_records, job.start, stop_file), topic_stage(topics)
    )
    spark.dataSource.register(source)
    ended: list[int] = []

    def finish(frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        report = gathered(summaries_of(frame), time.monotonic() - began)
        if job.json_log:
            say(json.dumps(report, sort_keys=True))
        elif report["read"]:
            say(for_people(report))
        if report["forgotten"]:
            log.warning(
                "%d ids were forgotten within `window` (%d ms), as a partition had more than `limit` (%d): those that "
                "come again go out again; raise `limit`, or give a shorter `window`",
                report["forgotten"],
                job.window_ms,
                job.config.limit,
            )
        if (problem := without_any_id(report, job)) is not None:
            log.warning("%s", problem)
        ended.append(batch_id)
        del ended[:-1]

    trigger: dict[str, Any] = (
        {"availableNow": True} if job.trigger_ms is None else {"processingTime": f"{job.trigger_ms} milliseconds"}
    )
    writer = spark.readStream.format(source.name()).load().writeStream.queryName(job.name).foreachBatch(finish)
    query = writer.option("checkpointLocation", job.checkpoint).trigger(**trigger).start()
    with signals(stop_file, query) as asked:
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions of a second
                if asked.is_set() and committed(query, ended):
                    query.stop()
        except Exception as error:  # noqa: BLE001 - whatever ended the query is logged and becomes an exit code
            return failed(error)
        finally:
            spark.stop()
    return ExitCode.DONE


def gathered(summaries: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """One batch over all its partitions; none if there was nothing to read (`deploy.query.summaries_of`). Pure.

    Raises `AccountsDiffer` if a summary is missing or occurs twice.
    """
    check_whole([one["partition"] for one in summaries], summaries[0]["parts"] if summaries else 0, "partitions")
    counts = {name: sum(one[name] for one in summaries) for name in _COUNTS}
    number = max((one["number"] for one in summaries), default=0)
    return {"event": "batch", "number": number, "seconds": round(seconds, 6), **counts}


def without_any_id(report: Mapping[str, Any], job: DedupJob) -> str | None:
    """A warning if the configured id is missing everywhere, so that nothing is deduplicated. Pure."""
    if not report["read"] or report["without_id"] < report["read"]:
        return None
    what = "has the id that `id` names"
    if job.identity.within is Within.GENERATION:
        what = f"has a position with the header {BATCH!r}, which at-least-once output of joins carries"
    return (
        f"none of the {report['read']:,} records of batch {report['number']} from {job.source!r} {what}: they all went "
        "through. Give another `id`"
    )


def for_people(report: Mapping[str, Any]) -> str:
    """One line. Pure."""
    rate = report["read"] / report["seconds"] if report["seconds"] else 0.0
    return "  ".join(
        [
            f"batch {report['number']}",
            f"read {report['read']:,}",
            f"{rate:,.0f}/s",
            f"dropped {report['dropped']:,}",
            f"without id {report['without_id']:,}",
            f"ids known {report['known']:,}",
        ]
    )
