"""The ids in one partition of the output, read back from it.

The last block of records and the index give the place where the window begins, unchecked: every record before the
answer is older, and a record with a wrong time only makes it answer earlier. Records behind another writer's open
transaction cannot be read back yet: the task waits for it.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from dedup.restart.hashing import hashes_of
from dedup.results.kafka import TRANSACTION_TIMEOUT_S
from dedup.topic.job import TopicJob
from dedup.topic.recentids import I64, SeenWindow, with_valid_times
from kafkaio.blocksearch import block_size
from kafkaio.brokerlog import BrokerLog
from kafkaio.client import committed_only
from kafkaio.eventtime import typical
from kafkaio.now import wall_ms
from kafkaio.opentransaction import wait_until_readable
from kafkaio.rangereader import RangeReader
from kafkaio.times import UNLIMITED_MS
from kafkaio.topiclog import Ends

log = logging.getLogger("teacup.dedup.topic.readback")

FUTURE_SKEW_MS = 60_000


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
        """Reads what was added to the output; returns how many ids that brought."""
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
        """Returns where the window begins in the output, and how long it is."""
        p, window_ms, size = self._partition, self._job.window_ms, block_size(self._log.outliers)
        block = self._log.last_times({p: ends.stable}, now_ms + FUTURE_SKEW_MS, size)[p]
        if len(block) < size:
            return ends.start, window_ms if self._since_ms is None else UNLIMITED_MS  # too few to go by
        since_ms, kept_ms = min(typical([at for _, at in block]), now_ms) - window_ms, window_ms
        if self._since_ms is not None:
            since_ms, kept_ms = min(since_ms, self._since_ms - window_ms), UNLIMITED_MS
        return min(max(self._log.estimate({p: since_ms})[p], ends.start), ends.stable), kept_ms

    def close(self) -> None:
        """Closes the clients."""
        self._log.close()
        self._reader.close()


def valid_times(records: pa.RecordBatch, now_ms: int) -> I64:
    """Returns the time of each record; `NO_TIME` if it has no valid one."""
    return with_valid_times(records.column("timestamp").to_numpy(), now_ms + FUTURE_SKEW_MS)
