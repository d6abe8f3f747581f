"""Reads ranges of a partition as Arrow batches: the hot path of every join.

A range [start, end) ends when the *position* reaches `end`, not when the record with the last offset arrives:
compaction, transaction markers and aborted records leave gaps. The position passes `end` with a record at or
beyond it (which is kept for the next range), or with the broker's end-of-partition event.

A reader keeps a few consumers open, each assigned at most one partition. A consumer that has finished a range
has already fetched beyond it. If the next range of its partition starts there, it continues without a seek.
`prepare` starts fetching before `read` is called.

Costs (150-byte values, ns per record): librdkafka's message objects 500 - 900, the columns 400. Python's garbage
collector would scan all these objects repeatedly (another 1,200), so it is paused while they exist.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kafkaio import client
from kafkaio.errors import KafkaUnavailable, OffsetOutOfRange, TopicMissing
from kafkaio.gcpause import no_garbage_collection
from kafkaio.messages import to_arrow
from kafkaio.perprocess import PerProcess
from kafkaio.producible import batch_bytes

# Ranges are short: prefetching far beyond them is wasted work. By default librdkafka would pause for a second after
# a full queue before it fetches again (fetch.queue.backoff.ms).
TUNING: Mapping[str, object] = {
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.message.max.bytes": 2_000_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
}

READ_TIMEOUT_S = 60.0
OPEN_CONSUMERS = 8
_CONSUME_RECORDS = 20_000
_CONSUME_WAIT_S = 0.01
BATCH_BYTES = 32 << 20  # of keys, values and headers: about 100,000 records of 300 bytes


class RangeReader:
    """Reads ranges of one topic. A range is read by one thread at a time."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float = READ_TIMEOUT_S) -> None:
        """`timeout_s`: how long a read waits without progress before it raises `KafkaUnavailable`."""
        client.validate(kafka)
        self.topic = topic
        self._kafka = dict(kafka)
        self._timeout_s = timeout_s
        self._idle: OrderedDict[int, _Cursor] = OrderedDict()  # by partition, least recently used first
        self._lock = threading.Lock()

    def prepare(self, partition: int, start: int) -> None:
        """Start fetching from `start` in the background, so that a `read` from there finds records waiting."""
        self._put_back(self._take(partition, start))

    def read(self, partition: int, start: int, end: int, chunk: int = 100_000) -> Generator[pa.RecordBatch, None, None]:
        """The records of [start, end) in offset order, in batches (`SCHEMA` of `messages`) of at most `chunk` records.

        A batch also ends with the record that brings it to `BATCH_BYTES`. Batch boundaries therefore do not depend on
        how the records arrive: every read of a range gives the same batches, so what is derived from them keeps its
        order.

        The log must have reached `end`; with `read_committed`, `end` is at most the last stable offset.
        Raises `OffsetOutOfRange`, `TopicMissing`, `KafkaUnavailable`.
        """
        if start >= end:
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
        """Put back the last records read from the partition: its next `read` starts with them, without a fetch.

        They are cut into batches just as fetched records would be.
        """
        with self._lock:
            cursor = self._idle.get(partition)
            if cursor is not None:
                cursor.take_back(records)

    def close(self) -> None:
        """Close the consumers that no read uses now."""
        with self._lock:
            cursors, self._idle = list(self._idle.values()), OrderedDict()
        for cursor in cursors:
            cursor.close()

    def _take(self, partition: int, start: int) -> _Cursor:
        with self._lock:
            cursor = self._idle.pop(partition, None)
            if cursor is None and len(self._idle) >= OPEN_CONSUMERS:
                cursor = self._idle.popitem(last=False)[1]
        if cursor is None:
            cursor = _Cursor(self.topic, self._kafka, self._timeout_s)
        cursor.go_to(partition, start)
        return cursor

    def _put_back(self, cursor: _Cursor) -> None:
        with self._lock:
            spare = self._idle.pop(cursor.partition, None)
            self._idle[cursor.partition] = cursor
            if spare is None and len(self._idle) > OPEN_CONSUMERS:
                spare = self._idle.popitem(last=False)[1]
        if spare is not None:
            spare.close()


class _Cursor:
    """One consumer on one partition: its position, and the records fetched beyond it."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        self.topic = topic
        self.partition = -1
        self.position = -1
        self._ahead: list[Any] = []  # fetched, at or beyond `position`
        self._given_back: list[pa.RecordBatch] = []  # from `position` on, before `_ahead`
        self._continues_at = -1  # where the given-back records end
        self._passed = -1  # from an end-of-partition event: there is no record in [last one seen, _passed)
        self._trouble: KafkaError | None = None
        self._consumer: Consumer = client.consumer(kafka, TUNING, self._on_error)
        client.learn(self._consumer, topic, timeout_s)

    def go_to(self, partition: int, start: int) -> None:
        if (partition, start) == (self.partition, self.position):
            return
        self._consumer.assign([TopicPartition(self.topic, partition, start)])
        self.partition, self.position, self._ahead, self._passed = partition, start, [], -1
        self._given_back = []

    def take_back(self, records: list[pa.RecordBatch]) -> None:
        if not records:
            return
        if not self._given_back:
            self._continues_at = self.position
        self._given_back = [*records, *self._given_back]
        self.position = records[0].column("offset")[0].as_py()

    def read(self, end: int, chunk: int, timeout_s: float) -> Generator[pa.RecordBatch, None, None]:
        pieces: list[pa.RecordBatch] = []
        rows = size = 0
        deadline = time.monotonic() + timeout_s
        while self.position < end:
            if self._given_back:
                piece, size = self._again(end, chunk - rows, size)
                pieces.append(piece)
                rows += piece.num_rows
                if rows >= chunk or size >= BATCH_BYTES:
                    yield _joined(pieces)
                    pieces, rows, size = [], 0, 0
                continue
            with no_garbage_collection():
                messages = self._fetch(min(end - self.position, _CONSUME_RECORDS, chunk - rows))
                if messages and messages[-1].offset() >= end:
                    cut = _first_at(messages, end)
                    self._ahead = messages[cut:] + self._ahead
                    del messages[cut:]
                    passed = end
                else:
                    passed = messages[-1].offset() + 1 if messages else self.position
                    if self._passed >= end and not self._ahead:
                        passed = end
                if messages:
                    piece = to_arrow(self.partition, messages)
                    fitting, size = _fitting(piece, size)
                    if fitting < len(messages):
                        self._ahead = messages[fitting:] + self._ahead
                        passed = messages[fitting].offset()
                    pieces.append(piece.slice(0, fitting))
                    rows += fitting
                messages.clear()
            if passed > self.position:
                self.position = passed
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise self._timed_out(end, timeout_s)
            if rows >= chunk or size >= BATCH_BYTES:
                yield _joined(pieces)
                pieces, rows, size = [], 0, 0
                deadline = time.monotonic() + timeout_s  # the caller's own time does not count
        if pieces:
            yield _joined(pieces)

    def close(self) -> None:
        self._consumer.close()

    def _again(self, end: int, limit: int, size: int) -> tuple[pa.RecordBatch, int]:
        """The next given-back records (at most `limit`, below `end`), and the size of the batch with them, in bytes."""
        first = self._given_back.pop(0)
        below = int(np.searchsorted(first.column("offset").to_numpy(), end))
        piece = first.slice(0, min(below, limit))
        fitting, size = _fitting(piece, size)
        piece, rest = piece.slice(0, fitting), first.slice(min(below, limit, fitting))
        if rest.num_rows:
            self._given_back.insert(0, rest)
            self.position = rest.column("offset")[0].as_py()
        elif self._given_back:
            self.position = self._given_back[0].column("offset")[0].as_py()
        else:
            self.position = self._continues_at
        return piece, size

    def _fetch(self, limit: int) -> list[Any]:
        """At most `limit` records from the position on; none if none arrived within a few milliseconds."""
        if self._ahead:
            waiting, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return waiting
        try:
            messages: list[Any] = self._consumer.consume(limit, _CONSUME_WAIT_S)
            if self._trouble is not None and client.is_missing(self._trouble):
                raise TopicMissing(self.topic, self.partition)
        except KafkaException as error:
            raise client.translate(error.args[0], "read", self.topic, self.partition) from error
        errors = list(map(Message.error, messages))
        if not any(errors):  # (comparing a KafkaError with None sets an exception that nobody sees)
            return messages
        for event, trouble in zip(messages, errors, strict=True):
            if trouble is not None:
                self._judge(event, trouble)
        return [message for message, trouble in zip(messages, errors, strict=True) if trouble is None]

    def _judge(self, event: Any, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._passed = event.offset()
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._out_of_range()
        elif client.is_transient(error):
            self._trouble = error
        else:
            raise client.translate(error, "read", self.topic, self.partition)

    def _out_of_range(self) -> Exception:
        try:
            start, end = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, self.partition), timeout=client.REQUEST_TIMEOUT_S
            )
        except KafkaException as error:
            return client.translate(error.args[0], "look for the ends", self.topic, self.partition)
        return OffsetOutOfRange(self.topic, self.partition, self.position, start, end)

    def _timed_out(self, end: int, timeout_s: float) -> KafkaUnavailable:
        last = f"; the last error: {self._trouble.str()}" if self._trouble else ""
        return KafkaUnavailable(
            f"reading {self.topic}-{self.partition} was stuck at offset {self.position} for {timeout_s:g} s, before "
            f"its end {end}{last}"
        )

    def _on_error(self, error: KafkaError) -> None:
        """librdkafka reports errors of the whole client here, and a topic that does not exist."""
        self._trouble = error


def _first_at(messages: list[Any], offset: int) -> int:
    """The index of the first message at or beyond the offset."""
    low, high = 0, len(messages)
    while low < high:
        middle = (low + high) // 2
        if messages[middle].offset() < offset:
            low = middle + 1
        else:
            high = middle
    return low


def _fitting(piece: pa.RecordBatch, size: int) -> tuple[int, int]:
    """How many records fit into a batch that already holds `size` bytes, and the batch's size with them."""
    sizes = size + np.cumsum(batch_bytes(piece))
    if sizes[-1] < BATCH_BYTES:
        return piece.num_rows, int(sizes[-1])
    fitting = int(np.searchsorted(sizes, BATCH_BYTES)) + 1
    return fitting, int(sizes[fitting - 1])


def _joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


_readers: PerProcess[tuple[str, frozenset[tuple[str, str]]], RangeReader] = PerProcess(8, RangeReader.close)


def open_reader(topic: str, kafka: Mapping[str, str]) -> RangeReader:
    """This process's reader of a topic, kept open between calls (the eight most recently used)."""
    return _readers.get((topic, frozenset(kafka.items())), lambda: RangeReader(topic, kafka))
