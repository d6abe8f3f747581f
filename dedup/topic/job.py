"""One topic deduplicated into another: what a task does with a range of records.

A record is written unless its id is in the output already, within the window, or earlier in the range. Source and
output have the same number of partitions, and a record keeps its partition, so a task needs to know only one partition
of the output. What it knows is what it reads back: before each range, the records added since, by any worker. So
nothing counts as seen that is not durable, and workers need not inform each other.

A range that may have been tried before begins only after the earlier writes are settled. It gets a window of its own
that reaches back to the range's first record, because the range may span more than the window. Records behind another
writer's open transaction cannot be read back yet: the task waits for it.

What is known to a record depends on its own time and that of the record with its id (`dedup.topic.window`); a time in
the future does not count. The last block of records and the index give the place where the window begins in the output,
unchecked: every record before the answer is older, and a record that lies about its time only makes it answer earlier.

Records are written unchanged. A time that the output does not accept is replaced by now and kept in the header
`teacup.time` (`kafkaio.producible`); a record that it does not accept at all ends the job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dedup.errors import PartitionsDiffer, RowsLost
from dedup.identity import Identity
from dedup.restart.hashing import hashes_of
from dedup.restart.replayrange import DedupConfig, ReplayRange
from dedup.restart.seen import SeenIds, fresh_rows
from dedup.restart.spark import current_attempt
from dedup.restart.states import Attempt
from dedup.restart.worker import wait_until_settled
from dedup.results.kafka import TRANSACTION_TIMEOUT_S
from dedup.topic.source import BatchPart, RangeStage
from dedup.topic.window import I64, SeenWindow, with_valid_times
from kafkaio.blocksearch import block_size
from kafkaio.brokerlog import BrokerLog
from kafkaio.client import committed_only
from kafkaio.delivery import failpoint
from kafkaio.errors import RecordTooLarge
from kafkaio.eventtime import typical
from kafkaio.now import wall_ms
from kafkaio.opentransaction import wait_until_readable
from kafkaio.perprocess import PerProcess
from kafkaio.producible import TopicLimits, batch_bytes, record_bytes, restamped
from kafkaio.rangereader import RangeReader, open_reader
from kafkaio.times import UNLIMITED_MS
from kafkaio.topiclimits import forget_limits, limits_of, within_limits
from kafkaio.topiclog import Ends
from kafkaio.writer import TopicWriter, discard_writer, open_writer
from sparkio.summaries import summary_rows

log = logging.getLogger("teacup.dedup.topic.job")

FUTURE_SKEW_MS = 60_000
OPEN_WINDOWS = 64  # of partitions, in each process: one with more rereads their windows for each batch


@dataclass(frozen=True, slots=True)
class TopicJob:
    """One topic into another. config: `limit` and `settle_ms` are used; window_ms: of record times in the output."""

    name: str
    source: str
    output: str
    kafka: Mapping[str, str]
    producer: Mapping[str, str]
    identity: Identity
    window_ms: int
    config: DedupConfig
    replay: ReplayRange

    @property
    def to_output(self) -> dict[str, str]:
        """Properties of the producer."""
        return {**self.kafka, **self.producer}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """What a task did with its range. read = written + dropped; loaded, known, forgotten: ids of the output's window"""

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


class OutputWindow:
    """The ids in one partition of the output, as far as they were read back.

    since_ms    a range is retried: the window also reaches back by its length from this time; only the limit ends it
    forgotten   ids within the window that the last `catch_up` dropped or did not load because of the limit
    """

    def __init__(self, job: TopicJob, partition: int, since_ms: int | None = None) -> None:
        self._job, self._partition, self._since_ms = job, partition, since_ms
        kafka = committed_only(job.kafka)  # an aborted record is not a result, even for a job that reads aborted ones
        self._log = BrokerLog(job.output, kafka)
        self._reader = RangeReader(job.output, kafka)
        self._position: int | None = None
        self.forgotten = 0
        self.seen = SeenWindow(job.window_ms, job.config.limit)

    def catch_up(self) -> int:
        """Read what was added to the output; returns how many ids that brought."""
        p = self._partition
        ends = wait_until_readable(self._log, {p: self._log.ends()[p]}, TRANSACTION_TIMEOUT_S)[p]
        now_ms = wall_ms()
        if self._position is not None and ends.stable < self._position:
            log.warning(
                "%s-%d ends at offset %d, and was read up to %d: it was truncated or recreated; its ids are "
                "forgotten and read again",
                self._job.output,
                p,
                ends.stable,
                self._position,
            )
            self._position = None
        self.forgotten = 0
        if self._position is None:
            start, window_ms = self._start(ends, now_ms)
            self.seen = SeenWindow(window_ms, self._job.config.limit)
            self._position = max(start, ends.stable - self._job.config.limit)
            self.forgotten = self._position - start
        loaded = 0
        for batch in self._reader.read(p, max(self._position, ends.start), ends.stable):
            ids = self._job.identity.of_records(batch)
            loaded += len(ids) - ids.null_count()
            known = ids.is_not_null().to_numpy()
            self.forgotten += self.seen.add(hashes_of(ids.drop_nulls()), valid_times(batch, now_ms)[known])
        self._position = ends.stable
        return loaded

    def _start(self, ends: Ends, now_ms: int) -> tuple[int, int]:
        """Where the window begins in the output, and how long it is."""
        p, window_ms, size = self._partition, self._job.window_ms, block_size(self._log.outliers)
        block = self._log.last_times({p: ends.stable}, now_ms + FUTURE_SKEW_MS, size)[p]
        if len(block) < size:
            return ends.start, window_ms if self._since_ms is None else UNLIMITED_MS  # too few to go by
        since_ms, kept_ms = min(typical([at for _, at in block]), now_ms) - window_ms, window_ms
        if self._since_ms is not None:
            since_ms, kept_ms = min(since_ms, self._since_ms - window_ms), UNLIMITED_MS
        return min(max(self._log.estimate({p: since_ms})[p], ends.start), ends.stable), kept_ms

    def close(self) -> None:
        self._log.close()
        self._reader.close()


_windows: PerProcess[tuple[str, str, int], OutputWindow] = PerProcess(OPEN_WINDOWS, OutputWindow.close)


def topic_stage(job: TopicJob) -> RangeStage:
    """A range -> one `TopicSummary`, as a row."""

    def carry_out(span: BatchPart) -> Iterator[pa.RecordBatch]:
        return summary_rows((_carry_out(job, one) for one in (span,)), RecordTooLarge)

    return carry_out


def _carry_out(job: TopicJob, span: BatchPart) -> TopicSummary:
    key = (job.name, job.replay.run, span.partition)
    try:
        settled_ms = _settled_at_ms(job, current_attempt())
        if settled_ms is None:
            return _carried_out(job, span, _windows.get(key, lambda: OutputWindow(job, span.partition)))
        wait_until_settled(job.name, settled_ms)
        with closing(OutputWindow(job, span.partition, _first_ms(job, span))) as window:
            return _carried_out(job, span, window)
    except BaseException:
        _windows.discard(key)
        raise


def _carried_out(job: TopicJob, span: BatchPart, window: OutputWindow) -> TopicSummary:
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
    failpoint.reach("before_produce")
    read = dropped = without_id = 0
    for batch in open_reader(job.source, job.kafka).read(span.partition, span.start, span.end):
        ids = job.identity.of_records(batch)
        times = valid_times(batch, wall_ms())[ids.is_not_null().to_numpy()]
        fresh = fresh_rows(ids, window.seen.to_rows_at(times), under_way)
        kept = batch if fresh.all() else batch.filter(pa.array(fresh))
        read += len(batch)
        dropped += len(batch) - len(kept)
        without_id += ids.null_count()
        if len(kept):
            writer.write(job.output, *_taken(job, kept, limits))
            failpoint.reach("producing")
    delivered = writer.flush()
    failpoint.reach("after_commit")
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
    )


def _taken(job: TopicJob, records: pa.RecordBatch, limits: TopicLimits) -> tuple[Any, ...]:
    """Key, value, headers, timestamp and partition of records, as the output accepts them. Raises `RecordTooLarge`."""
    sizes = batch_bytes(records)
    doubtful = [] if limits.surely_takes(int(sizes.max())) else range(len(sizes))
    for one in (records.slice(i, 1).to_pylist()[0] for i in doubtful if not limits.surely_takes(int(sizes[i]))):
        own = [(header["key"], header["value"]) for header in one["headers"] or ()]
        if (passed := limits.limit_passed(one["key"], one["value"], own)) is not None:
            what = f"record {job.source}-{one['partition']}:{one['offset']}"
            raise RecordTooLarge(what, record_bytes(one["key"], one["value"], own), *passed)
    times, headers, now_ms = records.column("timestamp"), records.column("headers"), wall_ms()
    if not limits.keeps(pc.min(times).as_py(), pc.max(times).as_py(), now_ms):
        listed = [
            None if some is None else [(one["key"], one["value"]) for one in some] for some in headers.to_pylist()
        ]
        known = [None if time < 0 else time for time in times.to_pylist()]
        times, headers = restamped(known, listed, limits, now_ms)
    return records.column("key"), records.column("value"), headers, times, records.column("partition")


def valid_times(records: pa.RecordBatch, now_ms: int) -> I64:
    """The time of each record; `NO_TIME` if it has no valid one."""
    return with_valid_times(records.column("timestamp").to_numpy(), now_ms + FUTURE_SKEW_MS)


def _settled_at_ms(job: TopicJob, attempt: Attempt) -> int | None:
    """The time from which nothing of an earlier attempt can arrive any more; None: there was none."""
    if attempt.task or attempt.stage:
        return job.config.settled_at_ms(wall_ms())
    return job.config.settled_at_ms(job.replay.started_ms) if job.replay.covers(attempt.batch) else None


def _first_ms(job: TopicJob, span: BatchPart) -> int | None:
    """The smallest time in a range, valid or not: from there on an earlier attempt may have written."""
    batches = open_reader(job.source, job.kafka).read(span.partition, span.start, span.end)
    return min((int(pc.min(batch.column("timestamp")).as_py()) for batch in batches), default=None)


def check_partitions(job: TopicJob) -> None:
    """Raises `PartitionsDiffer`, `KafkaIOError`."""
    counts = {}
    for topic in (job.source, job.output):
        one = BrokerLog(topic, job.kafka)
        try:
            counts[topic] = one.partition_count()
        finally:
            one.close()
    if counts[job.source] != counts[job.output]:
        raise PartitionsDiffer(
            f"{job.source!r} has {counts[job.source]} partitions and {job.output!r} has {counts[job.output]}: records "
            "keep their partition, give both the same number"
        )
