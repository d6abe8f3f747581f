"""Run a feeder: right topic -> storage API, a summary per partition and batch, a line per batch, a clean stop."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.job import FeederJob
from deploy.lock import CheckpointInUse, checkpoint_lock
from deploy.query import POLL_S, committed, failed, signals, summaries_of
from deploy.session import build_session, warm_up
from joins.lookup.feed import Fed
from joins.lookup.feedsource import commit_fed, feed_source
from joins.window.source import Gate
from kafkaio.errors import KafkaIOError
from kafkaio.exitcode import ExitCode
from kafkaio.now import wall_ms
from kafkaio.times import iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("teacup")

_COUNTS = ("read", "stored", "conflict", "null_key", "expired", "late")


def run_feeder(job: FeederJob, say: Callable[[str], None] = print) -> ExitCode:
    """Run until stopped, or until right is read (`available_now`); one line per batch; returns the exit code."""
    try:
        with checkpoint_lock(job.checkpoint), tempfile.TemporaryDirectory(prefix="teacup-") as folder:
            return _run(job, Path(folder) / "stop", say)
    except CheckpointInUse as error:
        log.error("%s", error)
        return ExitCode.CHECKPOINT


def _run(job: FeederJob, stop_file: Path, say: Callable[[str], None]) -> ExitCode:
    spark = build_session(job.spec.name, job.spark, rows_in_jvm=False)
    warm_up(spark)
    source = feed_source(job.spec, Gate(stop_file=stop_file, commit_group=job.spec.name))
    spark.dataSource.register(source)
    ended: list[int] = []

    def finish(frame: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        report = gathered(summaries_of(frame), time.monotonic() - began, wall_ms())
        if job.json_log:
            say(json.dumps(report, sort_keys=True))
        elif report["read"]:
            say(for_people(report))
        ended.append(batch_id)
        del ended[:-1]

    trigger: dict[str, Any] = (
        {"availableNow": True} if job.trigger_ms is None else {"processingTime": f"{job.trigger_ms} milliseconds"}
    )
    writer = spark.readStream.format(source.name()).load().writeStream.queryName(job.spec.name).foreachBatch(finish)
    query = writer.option("checkpointLocation", job.checkpoint).trigger(**trigger).start()
    positions = _Positions(job, query)
    with signals(stop_file, query) as asked:
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions of a second
                positions.commit_when_idle(ended[-1] if ended else None)
                if asked.is_set() and committed(query, ended):
                    query.stop()
        except Exception as error:  # noqa: BLE001 - whatever ended the query is logged and becomes an exit code
            return failed(error)
        finally:
            positions.commit()
            spark.stop()
    return ExitCode.DONE


class _Positions:
    """Commits the positions of the newest batch, which Spark reports to the source only when the next one starts.

    When right pauses there is no next batch for a while: without this, left would wait for records that are stored.
    """

    def __init__(self, job: FeederJob, query: StreamingQuery) -> None:
        self._job, self._query = job, query
        self._seen: int | None = None
        self._told: int | None = None

    def commit_when_idle(self, batch: int | None) -> None:
        """To be called regularly with the newest batch: commits when it is the same one twice."""
        progress = self._query.lastProgress
        if batch is None or batch == self._told or progress is None or progress["batchId"] < batch:
            return  # Spark has not committed it yet
        if batch == self._seen and self.commit():
            self._told = batch
        self._seen = batch

    def commit(self) -> bool:
        """Commit the positions; returns whether that succeeded."""
        ends = [one["sources"][0]["endOffset"] for one in self._query.recentProgress]
        offsets = [json.loads(end) if isinstance(end, str) else end for end in ends if end]
        if not offsets or not offsets[-1]:
            return True
        try:
            commit_fed(self._job.spec, self._job.spec.name, Fed.from_json(offsets[-1]))
        except KafkaIOError as error:
            log.warning("positions were not committed to group %r: %s", self._job.spec.name, error)
            return False
        return True


def gathered(summaries: Sequence[Mapping[str, Any]], seconds: float, at_ms: int) -> dict[str, Any]:
    """One batch over all its partitions. Pure."""
    dead: Counter[str] = Counter()
    for one in summaries:
        dead.update(one["dead"])
    times = [one["newest_ms"] for one in summaries if one["newest_ms"] is not None]
    return {
        "event": "batch",
        "number": max((one["number"] for one in summaries), default=0),
        "seconds": round(seconds, 6),
        **{name: sum(one[name] for one in summaries) for name in _COUNTS},
        "dead": dict(sorted(dead.items())),
        "disorder_ms": max((one["disorder_ms"] for one in summaries), default=0),
        "newest_ms": max(times, default=None),
        "behind_ms": max(at_ms - min(times), 0) if times else None,
    }


def for_people(report: Mapping[str, Any]) -> str:
    """One line; rare events are named only if they happened. Pure."""
    rate = report["read"] / report["seconds"] if report["seconds"] else 0.0
    parts = [
        f"batch {report['number']}",
        f"read {report['read']:,}",
        f"{rate:,.0f}/s",
        f"stored {report['stored']:,}",
    ]
    rare = {"newer kept": "conflict", "without key": "null_key", "expired": "expired", "late": "late"}
    parts += [f"{told} {report[name]:,}" for told, name in rare.items() if report[name]]
    parts += [f"dead letters ({reason}) {count:,}" for reason, count in report["dead"].items()]
    if report["newest_ms"] is not None:
        parts.append(f"newest {iso(report['newest_ms'])}, behind {report['behind_ms'] / 1000:.1f} s")
    return "  ".join(parts)
