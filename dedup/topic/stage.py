"""What a task does with a range of records.

A record is written unless its id is already in the output, within the window, or earlier in the range. Source and
output have the same number of partitions, and a record keeps its partition, so a task needs to know only one partition
of the output. What it knows is what it reads back: before each range, the records added since, by any worker. So
nothing counts as seen that is not durable, and workers need not inform each other.

A range that may have been tried before begins only after the earlier writes are settled. It gets a window of its own
that reaches back to the range's first record, because the range may span more than the window.

What is known to a record depends on its own time and that of the record with its id (`dedup.topic.read_back`); a time
in the future does not count. Records are written unchanged, as far as the output accepts them (`accepted`); a record
that it does not accept at all ends the job.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dedup.errors import RowsLost
from dedup.restart.deduplicator import Attempt
from dedup.restart.seen_ids import SeenIds, fresh_rows
from dedup.restart.worker import current_attempt, wait_until_settled
from dedup.topic import TopicJob
from dedup.topic.read_back import OutputWindow, valid_times
from dedup.topic.source import BatchPart, RangeStage, Remaining
from teacup.base.now import wall_ms
from teacup.base.process import PerProcess
from teacup.base.stage_times import StageTimes
from teacup.kafka.delivery.failpoints import failpoint
from teacup.kafka.errors import RecordTooLarge
from teacup.kafka.read.range_reader import open_reader
from teacup.kafka.records.limits import TopicLimits, batch_bytes, record_bytes, restamped
from teacup.kafka.write.topic_limits import forget_limits, limits_of, within_limits
from teacup.kafka.write.writer import TopicWriter, discard_writer, open_writer
from teacup.spark.jvm_errors import FIRST_TRY, TaskRun, summary_rows
from teacup.spark.worker import this_task

OPEN_WINDOWS = 64  # of partitions, in each process; beyond that, a process rereads windows for each batch

_windows: PerProcess[tuple[str, str, int], OutputWindow] = PerProcess(OPEN_WINDOWS, OutputWindow.close)


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What a task did with its range.

    read      written + dropped
    skipped   offsets that were deleted before they could be read
    loaded, known, forgotten   ids of the output's window
    """

    partition: int
    number: int
    parts: int
    read: int
    written: int
    dropped: int
    without_id: int
    loaded: int
    known: int
    forgotten: int
    skipped: int
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    task: TaskRun = FIRST_TRY


def topic_stage(job: TopicJob) -> RangeStage:
    """Returns the stage that gives a `TopicSummary` for a range, as a row."""

    def summaries(span: BatchPart) -> Iterator[pa.RecordBatch]:
        return summary_rows((_settled(job, part) for part in (span,)), RecordTooLarge)

    return summaries


def _settled(job: TopicJob, span: BatchPart) -> TopicSummary:
    """Deduplicates a range once the writes of an earlier attempt are settled."""
    key = (job.name, job.replay.run, span.partition)
    try:
        settled_ms = _settled_at_ms(job, current_attempt())
        if settled_ms is None:
            return _deduplicated(job, span, _windows.get(key, lambda: OutputWindow(job, span.partition)))
        wait_until_settled(job.name, settled_ms)
        with closing(OutputWindow(job, span.partition, _first_ms(job, span))) as window:
            return _deduplicated(job, span, window)
    except BaseException:
        _windows.discard(key)
        raise


def _deduplicated(job: TopicJob, span: BatchPart, window: OutputWindow) -> TopicSummary:
    loaded = window.catch_up()
    limits = limits_of(job.to_output, [job.output])
    producer = within_limits(job.to_output, limits)
    try:
        return _written(job, span, window, open_writer(producer), limits[job.output], loaded)
    except BaseException:
        discard_writer(producer)
        forget_limits(job.to_output, limits)
        raise


def _written(
    job: TopicJob, span: BatchPart, window: OutputWindow, writer: TopicWriter, limits: TopicLimits, loaded: int
) -> TopicSummary:
    under_way = SeenIds()
    failpoint("before_produce")
    read = dropped = without_id = 0
    source, took = _source(job, span), StageTimes(time.perf_counter)
    for batch in took.over("fetch", source.of(span.start, span.end)):
        with took.within("match"):
            ids = job.identity.of_records(batch)
            times = valid_times(batch, wall_ms())[ids.is_not_null().to_numpy()]
            fresh = fresh_rows(ids, partial(window.seen.contains, times=times), under_way)
            rows = batch if fresh.all() else batch.filter(pa.array(fresh))
        read += len(batch)
        dropped += len(batch) - len(rows)
        without_id += ids.null_count()
        if len(rows):
            with took.within("produce"):
                writer.write(job.output, *accepted(job.source, rows, limits, wall_ms()))
            failpoint("producing")
    with took.within("commit"):
        delivered = writer.flush()
    failpoint("after_commit")
    if delivered.sent != read - dropped or delivered.acknowledged != delivered.sent:
        raise RowsLost(
            f"{job.source}-{span.partition} [{span.start}, {span.end}): {read} records read, {dropped} dropped, "
            f"{delivered.sent} sent, {delivered.acknowledged} acknowledged; these must add up, nothing is committed"
        )
    return TopicSummary(
        partition=span.partition,
        number=span.number,
        parts=span.parts,
        read=read,
        written=read - dropped,
        dropped=dropped,
        without_id=without_id,
        loaded=loaded,
        known=len(window.seen),
        forgotten=window.forgotten,
        skipped=source.skipped,
        seconds=took.seconds,
        task=this_task(),
    )


def accepted(source: str, records: pa.RecordBatch, limits: TopicLimits, now_ms: int) -> tuple[Any, ...]:
    """Returns key, value, headers, timestamp and partition of records of `source` (schema of
    `teacup.kafka.read.fetch`).

    A time that the output does not accept is replaced by now, and kept in the header `teacup.time`
    (`teacup.kafka.records.limits`). Raises `RecordTooLarge`.
    """
    sizes = batch_bytes(records)
    doubtful = [] if limits.surely_takes(int(sizes.max())) else range(len(sizes))
    for record in (records.slice(i, 1).to_pylist()[0] for i in doubtful if not limits.surely_takes(int(sizes[i]))):
        own = [(header["key"], header["value"]) for header in record["headers"] or ()]
        if (passed := limits.limit_passed(record["key"], record["value"], own)) is not None:
            what = f"record {source}-{record['partition']}:{record['offset']}"
            raise RecordTooLarge(what, record_bytes(record["key"], record["value"], own), *passed)
    times, headers = records.column("timestamp"), records.column("headers")
    if not limits.keeps(pc.min(times).as_py(), pc.max(times).as_py(), now_ms):
        listed = [
            None if of_record is None else [(header["key"], header["value"]) for header in of_record]
            for of_record in headers.to_pylist()
        ]
        timed = [None if time < 0 else time for time in times.to_pylist()]
        times, headers = restamped(timed, listed, limits, now_ms)
    return records.column("key"), records.column("value"), headers, times, records.column("partition")


def _source(job: TopicJob, span: BatchPart) -> Remaining:
    reader = open_reader(job.source, job.kafka)
    return Remaining(lambda start, end: reader.read(span.partition, start, end), job.on_data_loss)


def _settled_at_ms(job: TopicJob, attempt: Attempt) -> int | None:
    """Returns the time from which nothing of an earlier attempt can arrive; None if there was none."""
    if attempt.earlier:
        return job.config.settled_at_ms(wall_ms())
    return job.config.settled_at_ms(job.replay.started_ms) if job.replay.covers(attempt.batch) else None


def _first_ms(job: TopicJob, span: BatchPart) -> int | None:
    """Returns the smallest time in a range, valid or not: from there on an earlier attempt may have written."""
    batches = _source(job, span).of(span.start, span.end)
    return min((int(pc.min(batch.column("timestamp")).as_py()) for batch in batches), default=None)
