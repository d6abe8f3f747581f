"""The ids in one partition of the output, read back from it, and kept within a window of record times.

The last block of records and the index tell where the window begins, unchecked: every record before the answer is
older, and a record with a wrong time only makes it answer earlier. Records behind another writer's open transaction
cannot be read back yet: the task waits for it.

The window consists of buckets of a quarter of its length.

    known    an id seen at most the window (up to a quarter more) before the row's time
    clock    the typical time of the last block of records that were added (`teacup.kafka.records.record`); it never
             goes back
    dropped  buckets that are more than the window below the clock; at the limit the oldest ones

Whether an id is known depends on the two records' own times: a wrong time affects only the id of its record. The clock
decides only how long an id is kept. It rests on blocks, so a record ahead of its neighbours does not end the window for
the others. If records are few it lags, which only costs memory. A record without a time, or older than all that is
kept, counts as one of the clock's time; to a row without a time all kept ids are known.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dedup.restart.seen_ids import Hashes, Mask, SeenIds, hashes_of
from dedup.results import TRANSACTION_TIMEOUT_S
from dedup.topic import TopicJob
from teacup.base.now import wall_ms
from teacup.base.times import UNLIMITED_MS
from teacup.kafka.client import committed_only
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.point_reader import wait_until_readable
from teacup.kafka.log.time_search import block_size
from teacup.kafka.log.topic_log import Ends, begins_of
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.records.record import OUTLIERS, typical

I64 = npt.NDArray[np.int64]

log = logging.getLogger("teacup.dedup.topic.read_back")

NO_TIME = -1
FUTURE_SKEW_MS = 60_000
_PARTS = 4
_BUCKETS_AT_MOST = 256  # far more than a window has; if record times are scattered, the oldest buckets are dropped
_BLOCK = 2 * OUTLIERS + 1


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
        """Reads what was added to the output; returns how many new ids there were."""
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
            has_id = ids.is_not_null().to_numpy()
            self.forgotten += self.seen.add(hashes_of(ids.drop_nulls()), valid_times(batch, now_ms)[has_id])
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
        return begins_of(self._log, {p: ends}, since_ms)[p], kept_ms

    def close(self) -> None:
        """Closes the clients."""
        self._log.close()
        self._reader.close()


class SeenWindow:
    """The ids of a window, at most `limit`. Times are valid ones, or `NO_TIME`."""

    def __init__(self, window_ms: int, limit: int) -> None:
        self._window_ms, self._limit = window_ms, limit
        self._width_ms = max(window_ms // _PARTS, 1)
        self._buckets: dict[int, list[SeenIds]] = {}
        self._tail = np.zeros(0, np.int64)
        self._clock_ms = 0

    def __len__(self) -> int:
        return sum(len(part) for parts in self._buckets.values() for part in parts)

    def add(self, hashes: Hashes, times: I64) -> int:
        """Adds ids of records with these times, in the order of the log.

        Returns how many ids were forgotten early because of the limit.
        """
        self._see(times[times != NO_TIME])
        oldest = (self._clock_ms - self._window_ms) // self._width_ms
        at = times // self._width_ms
        at[(times == NO_TIME) | (at < oldest)] = self._clock_ms // self._width_ms
        for bucket in np.unique(at).tolist():
            self._put(bucket, hashes.at(at == bucket))
        for bucket in [bucket for bucket in self._buckets if bucket < oldest]:
            del self._buckets[bucket]
        return self._keep_within_limits()

    def contains(self, hashes: Hashes, times: I64) -> Mask:
        """Returns whether each id is known to a row of this time."""
        seen = np.zeros(len(hashes), np.bool_)
        for bucket, parts in self._buckets.items():
            in_reach = (times == NO_TIME) | (times - self._window_ms < (bucket + 1) * self._width_ms)
            if in_reach.any():
                for part in parts:
                    seen |= part.contains(hashes) & in_reach
        return seen

    def _see(self, times: I64) -> None:
        """Advances the clock. Fewer records than a block prove no more than the smallest of their times."""
        self._tail = np.concatenate([self._tail, times[-_BLOCK:]])[-_BLOCK:]
        if len(self._tail):
            block: list[int] = self._tail.tolist()
            self._clock_ms = max(self._clock_ms, typical(block) if len(block) == _BLOCK else min(block))

    def _put(self, bucket: int, hashes: Hashes) -> None:
        parts = self._buckets.setdefault(bucket, [SeenIds()])
        if len(parts[-1]) >= max(self._limit // _PARTS, 1):
            parts.append(SeenIds())
        parts[-1].add(hashes)

    def _keep_within_limits(self) -> int:
        forgotten = 0
        while len(self._buckets) > _BUCKETS_AT_MOST or (len(self) > self._limit and self._parts > 1):
            oldest = min(self._buckets)
            forgotten += len(self._buckets[oldest].pop(0))
            if not self._buckets[oldest]:
                del self._buckets[oldest]
        return forgotten

    @property
    def _parts(self) -> int:
        return sum(len(parts) for parts in self._buckets.values())


def valid_times(records: pa.RecordBatch, now_ms: int) -> I64:
    """Returns the time of each record; `NO_TIME` if it has no valid one."""
    return with_valid_times(records.column("timestamp").to_numpy(), now_ms + FUTURE_SKEW_MS)


def with_valid_times(times: I64, ceiling_ms: int) -> I64:
    """Returns the times, with `NO_TIME` for invalid ones: negative, or in the future."""
    return np.where((times >= 0) & (times <= ceiling_ms), times, NO_TIME)
