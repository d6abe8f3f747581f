"""Reads ranges of a partition as Arrow batches: the hot path of every join.

A range [start, end) ends when the *position* reaches `end`, not when the record with the last offset arrives:
compaction, transaction markers and aborted records leave gaps. The position passes `end` with a record at or
beyond it (which is kept for the next range), or with the broker's end-of-partition event.

Short ranges that are known beforehand (`prepare`) come together, over one consumer: as many requests as there are
brokers, not as there are partitions. After the last of them it rests: otherwise it would ask for the records of the
next ones a few at a time, hundreds of times a second. What has come beyond a range by then is kept for the next one.

For other ranges a reader keeps a few consumers open, each assigned to at most one partition. A consumer that has
finished a long range has already fetched beyond it. If the next range of its partition starts there, it continues
without a seek. After a short range it rests.

So records beyond the end of a range wait for the next one in one of three places:

    cursor              what the caller gave back (`give_back`); it comes first
    C                   what had come when a shared consumer was laid to rest (`PartitionFetch.keep`)
    librdkafka's queue  what a consumer of its own that goes on has fetched meanwhile
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import pyarrow as pa

from teacup.base.process import PerProcess
from teacup.kafka import client
from teacup.kafka.client import last_error
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.read.fetch import PartitionFetch, RecordFetch, SharedFetch
from teacup.kafka.records.limits import fitting_rows

Span = tuple[int, int]
"""Offsets [start, end)."""

READ_TIMEOUT_S = 60.0
OPEN_READERS = 8  # in a process
OPEN_CONSUMERS = 8  # of a reader
SHORT = 20_000  # records; a shorter range is one of many, each read as soon as its records are there
BATCH_BYTES = 32 << 20  # of keys, values and headers: about 100,000 records of 300 bytes


class RangeReader:
    """Reads ranges of one topic. A range is read by one thread at a time."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float = READ_TIMEOUT_S) -> None:
        """`timeout_s`: how long a read waits without progress before it raises `KafkaUnavailable`."""
        client.validate(kafka)
        self.topic = topic
        self._kafka = dict(kafka)
        self._timeout_s = timeout_s
        self._idle: OrderedDict[int, _OwnCursor] = OrderedDict()  # by partition, least recently used first
        self._shared: SharedFetch | None = None
        self._together: dict[int, _Cursor] = {}  # of `_shared`, by partition: those prepared last
        self._last: dict[int, _Cursor] = {}  # which of the two has read a partition last
        self._lock = threading.Lock()

    def prepare(self, ranges: Mapping[int, Span]) -> None:
        """Starts fetching ranges [start, end) in the background: a `read` of one finds records waiting.

        Raises `TopicMissing`, `KafkaUnavailable`, `KafkaIOError`.
        """
        short = {p: span for p, span in ranges.items() if span[1] - span[0] < SHORT}
        self._prepare_each({p: start for p, (start, _) in ranges.items() if p not in short})
        if short:
            self._prepare_together(short)

    def _prepare_together(self, ranges: Mapping[int, Span]) -> None:
        if self._shared is None:
            self._shared = SharedFetch(self.topic, self._kafka, self._timeout_s)
        self._together = {p: _Cursor(self.topic, self._shared.of(p)) for p in ranges}
        starts = {}
        for p, cursor in self._together.items():
            start, end = ranges[p]
            if (last := self._last.get(p)) is not None and last.partition == p:
                cursor.continue_as(last)
            if (fetched_to := cursor.aim(start)) < end:
                starts[p] = fetched_to
        if starts:
            self._shared.assign(starts)

    def _prepare_each(self, starts: Mapping[int, int]) -> None:
        """Opens consumers at the same time, as each connects twice, with a pause."""
        with self._lock:
            room = OPEN_CONSUMERS - len(self._idle)
            opened = list(islice((p for p in starts if p not in self._idle), room))
        if opened:
            with ThreadPoolExecutor(len(opened)) as pool:
                list(pool.map(lambda partition: self._prepare(partition, starts[partition]), opened))
        for partition in (p for p in starts if p not in opened):
            self._prepare(partition, starts[partition])

    def _prepare(self, partition: int, start: int) -> None:
        self._put_back(self._take(partition, start))

    def read(self, partition: int, start: int, end: int, chunk: int = 100_000) -> Generator[pa.RecordBatch, None, None]:
        """Yields the records of [start, end) in offset order, in batches (`fetch.SCHEMA`) of at most `chunk`.

        A batch also ends with the record that brings it to `BATCH_BYTES`. So batch boundaries do not depend on how the
        records arrive: every read of a range gives the same batches, and what is derived from them keeps its order.

        The log must have reached `end`; with `read_committed`, `end` is at most the last stable offset.
        Raises `OffsetOutOfRange`, `TopicMissing`, `KafkaUnavailable`, `KafkaIOError`.
        """
        if start >= end:
            return
        cursor = self._together.get(partition)
        if cursor is not None and cursor.is_prepared(start):
            yield from self._read_together(cursor, end, chunk)
            return
        cursor = self._take(partition, start)
        try:
            yield from cursor.read(end, chunk, self._timeout_s)
        except GeneratorExit:
            self._put_back(cursor)  # the caller stopped early; the cursor knows its position
            raise
        except BaseException:
            cursor.close()
            raise
        self._put_back(cursor)

    def give_back(self, partition: int, records: list[pa.RecordBatch]) -> None:
        """Puts back the last records read from the partition: its next `read` starts with them, without a fetch.

        They are cut into batches just as fetched records would be.
        """
        with self._lock:
            cursor = self._last.get(partition)
            if cursor is not None and cursor.partition == partition:  # it may have gone on to another one
                cursor.take_back(records)

    def close(self) -> None:
        """Closes the consumers that no read is using."""
        with self._lock:
            cursors, self._idle, self._last = list(self._idle.values()), OrderedDict(), {}
        for cursor in cursors:
            cursor.close()
        self._close_together()

    def _read_together(self, cursor: _Cursor, end: int, chunk: int) -> Generator[pa.RecordBatch, None, None]:
        self._last[cursor.partition] = cursor
        try:
            yield from cursor.read(end, chunk, self._timeout_s)
        except GeneratorExit:
            raise  # the caller stopped early; the cursor knows its position
        except BaseException:
            self._close_together()
            raise

    def _close_together(self) -> None:
        shared, self._shared, self._together = self._shared, None, {}
        if shared is not None:
            shared.close()

    def _take(self, partition: int, start: int) -> _OwnCursor:
        with self._lock:
            cursor = self._idle.pop(partition, None)
            if cursor is None and len(self._idle) >= OPEN_CONSUMERS:
                cursor = self._idle.popitem(last=False)[1]
        if cursor is None:
            cursor = _OwnCursor(RecordFetch(self.topic, self._kafka, self._timeout_s))
        cursor.go_to(partition, start)
        self._last[partition] = cursor
        return cursor

    def _put_back(self, cursor: _OwnCursor) -> None:
        with self._lock:
            spare = self._idle.pop(cursor.partition, None)
            self._idle[cursor.partition] = cursor
            if spare is None and len(self._idle) > OPEN_CONSUMERS:
                spare = self._idle.popitem(last=False)[1]
        if spare is not None:
            spare.close()


class _Cursor:
    """A consumer, or its share, on one partition: its position, and records that were given back."""

    def __init__(self, topic: str, fetch: PartitionFetch) -> None:
        self.topic = topic
        self.partition = fetch.partition
        self.position = -1
        self._given_back: list[pa.RecordBatch] = []  # from `position` on
        self._continues_at = -1  # where the given-back records end
        self._fetches = False
        self._fetch = fetch

    def continue_as(self, other: _Cursor) -> None:
        """Takes over the position and the records that were given back."""
        self.position, self._continues_at, self._given_back = other.position, other._continues_at, other._given_back
        other.position, other._given_back = -1, []

    def aim(self, start: int) -> int:
        """Prepares for a range from `start` on. Returns from where it is to be fetched."""
        if start != self.position:
            self.position, self._given_back = start, []
        self._fetches = True
        return self._fetch.resume(self._continues_at if self._given_back else start)

    def is_prepared(self, start: int) -> bool:
        """Returns whether the range from `start` on is being fetched."""
        return self._fetches and self.position == start

    def take_back(self, records: list[pa.RecordBatch]) -> None:
        if not records:
            return
        if not self._given_back:
            self._continues_at = self.position
        self._given_back = [*records, *self._given_back]
        self.position = records[0].column("offset")[0].as_py()

    def read(self, end: int, chunk: int, timeout_s: float) -> Generator[pa.RecordBatch, None, None]:
        again: list[pa.RecordBatch] = []  # given back; records fetched for the same batch follow them
        rows = size = fetched = 0
        short = end - self.position < SHORT
        deadline = time.monotonic() + timeout_s
        while self.position < end:
            if self._given_back:
                piece, bytes_of_piece = self._again(end, chunk - rows, BATCH_BYTES - size)
                again.append(piece)
                rows, size = rows + piece.num_rows, size + bytes_of_piece
            else:
                taken = self._fetch.take(self.position, end, chunk - rows, BATCH_BYTES - size)
                rows, size, fetched = rows + taken.rows, size + taken.size, fetched + taken.rows
                if taken.position > self.position:
                    self.position = taken.position
                    deadline = time.monotonic() + timeout_s
                elif time.monotonic() > deadline:
                    raise self._timed_out(end, timeout_s)
            if rows >= chunk or size >= BATCH_BYTES:
                yield self._batch(again, fetched)
                again, rows, size, fetched = [], 0, 0, 0
                deadline = time.monotonic() + timeout_s  # the caller's own time does not count
        if rows:
            yield self._batch(again, fetched)
        if short:
            self._fetch.rest()
            self._fetches = False

    def _batch(self, again: list[pa.RecordBatch], fetched: int) -> pa.RecordBatch:
        pieces = [*again, self._fetch.batch()] if fetched else again
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _again(self, end: int, limit: int, size: int) -> tuple[pa.RecordBatch, int]:
        """Returns the next given-back records and their bytes.

        They are at most `limit`, below `end`, and none follows the one that fills `size` bytes.
        """
        first = self._given_back.pop(0)
        below = int(np.searchsorted(first.column("offset").to_numpy(), end))
        piece = first.slice(0, min(below, limit))
        fitting, size = fitting_rows(piece, size)
        piece, rest = piece.slice(0, fitting), first.slice(min(below, limit, fitting))
        if rest.num_rows:
            self._given_back.insert(0, rest)
            self.position = rest.column("offset")[0].as_py()
        elif self._given_back:
            self.position = self._given_back[0].column("offset")[0].as_py()
        else:
            self.position = self._continues_at
        return piece, size

    def _timed_out(self, end: int, timeout_s: float) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"reading {self.topic}-{self.partition} was stuck at offset {self.position} for {timeout_s:g} s, before "
            f"its end {end}{last_error(self._fetch.trouble)}"
        )


class _OwnCursor(_Cursor):
    """A consumer that is assigned to the cursor's partition alone."""

    def __init__(self, fetch: RecordFetch) -> None:
        super().__init__(fetch.topic, fetch)
        self._consumer = fetch

    def go_to(self, partition: int, start: int) -> None:
        if (partition, start) != (self.partition, self.position):
            self.partition, self.position = partition, start
            self._given_back = []
        elif self._fetches:
            return
        self._consumer.assign(partition, self._continues_at if self._given_back else start)
        self._fetches = True

    def close(self) -> None:
        self._consumer.close()


_readers: PerProcess[tuple[str, frozenset[tuple[str, str]], str], RangeReader] = PerProcess(
    OPEN_READERS, RangeReader.close
)


def open_reader(topic: str, kafka: Mapping[str, str], name: str = "") -> RangeReader:
    """Returns this process's reader of a topic, kept open between calls while it is recently used.

    name   tells readers of one topic apart that read on at offsets of their own
    """
    return _readers.get((topic, frozenset(kafka.items()), name), lambda: RangeReader(topic, kafka))
