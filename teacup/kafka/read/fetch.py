"""What a range reader needs of a consumer on one partition: records from a position on, as Arrow columns.

Two do it: `MessageFetch` with confluent-kafka's messages, `teacup.kafka.read.native_fetch` in C. They give the same
columns and raise the same errors, so a reader does not know which one it has.

Kafka's protocol says that names of headers are UTF-8, and no broker checks it. confluent-kafka shows no header of a
record that has another name. Such a record is read all the same; in place of its headers it has one (`UNREADABLE`).

Costs in Python (150-byte values, ns per record): the message objects 500 - 900, the columns 400. Python's garbage
collector would scan all these objects repeatedly (another 1,200), so it is paused while they exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from teacup.base.process import no_garbage_collection
from teacup.kafka import client
from teacup.kafka.errors import OffsetOutOfRange, TopicMissing
from teacup.kafka.headers import UNREADABLE
from teacup.kafka.records.limits import batch_bytes

# Ranges are short: prefetching far beyond them is wasted work. By default librdkafka would pause for a second after
# a full queue before it fetches again (fetch.queue.backoff.ms). Few, large answers, and a queue that is asked to be
# refilled late, take a third less CPU for each record than answers of 2 MB and a queue of 20,000.
TUNING = {
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.message.max.bytes": 4_000_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
}

AT_ONCE = 20_000  # records taken from librdkafka's queue together
WAIT_MS = 10  # for the first of them


@dataclass(frozen=True, slots=True)
class Taken:
    """What a call of `take` has added to the batch.

    rows       how many records
    size       the bytes of their keys, values and headers
    position   the next offset to read: there is no further record below it
    """

    rows: int
    size: int
    position: int


class PartitionFetch(ABC):
    """A consumer, assigned to one partition at a time; one thread at a time uses it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.partition = -1
        self.trouble: KafkaError | None = None
        """What librdkafka last reported of the whole client, or of a partition, that may pass."""
        self._passed = -1  # from an end-of-partition event: there is no record in [last one seen, _passed)

    def assign(self, partition: int, start: int) -> None:
        """Fetches from an offset on; whatever was fetched before is forgotten."""
        self._assign(partition, start)
        self.partition, self._passed = partition, -1

    @abstractmethod
    def _assign(self, partition: int, start: int) -> None: ...

    @abstractmethod
    def rest(self) -> None:
        """Fetches nothing until the next `assign`. Raises `KafkaException`."""

    @abstractmethod
    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        """Adds records of [position, end) to the batch. Waits a few milliseconds if none is there.

        They are at most `rows`, and none follows the one with which they have `size` bytes or more.

        Raises `OffsetOutOfRange`, `TopicMissing`, `KafkaUnavailable`, `KafkaIOError`.
        """

    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """Returns the records added since the last call, at least one, in the schema of `teacup.kafka.read.fetch`."""

    @abstractmethod
    def ends(self) -> tuple[int, int]:
        """Returns the partition's first offset and its high watermark. Raises `KafkaException`."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the consumer."""

    def _on_error(self, error: KafkaError) -> None:
        """Notes an error of the whole client, which librdkafka reports here, or a topic that does not exist."""
        self.trouble = error

    def _judge(self, error: KafkaError, offset: int, position: int) -> None:
        """Judges an event among the records, which is at this offset."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._passed = offset
        elif client.is_out_of_range(error):
            raise self._out_of_range(position)
        elif client.is_transient(error):
            self.trouble = error
        elif not client.is_about_its_group(error):
            raise client.translate(error, "read", self.topic, self.partition)

    def _out_of_range(self, position: int) -> Exception:
        try:
            start, end = self.ends()
        except KafkaException as error:
            return client.translate(error.args[0], "look for the ends", self.topic, self.partition)
        return OffsetOutOfRange(self.topic, self.partition, position, start, end)


def fitting_rows(piece: pa.RecordBatch, size: int) -> tuple[int, int]:
    """Returns how many of the first records have `size` bytes together, the last one included, and how many bytes."""
    sizes = np.cumsum(batch_bytes(piece))
    if sizes[-1] < size:
        return piece.num_rows, int(sizes[-1])
    fitting = int(np.searchsorted(sizes, size)) + 1
    return fitting, int(sizes[fitting - 1])


HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),  # milliseconds; -1: none
        pa.field("timestamp_type", pa.int8(), nullable=False),  # 0 none, 1 CreateTime, 2 LogAppendTime
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),  # null: none
    ]
)


def to_arrow(partition: int, messages: list[Any]) -> pa.RecordBatch:
    """Returns messages of one partition in the schema `SCHEMA`; at least one is given, none with an error."""
    count = len(messages)
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == count - 1:  # offsets ascend, so there are no gaps
        offsets = np.arange(first, last + 1, dtype=np.int64)
    else:
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count)
    columns = [
        _numbers(np.full(count, partition, np.int32), pa.int32()),
        _numbers(offsets, pa.int64()),
        _numbers(stamps[1::2].copy(), pa.int64()),
        _numbers(stamps[::2].astype(np.int8), pa.int8()),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _headers(_listed(messages)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _numbers(values: np.typing.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Makes a column without a copy, and without importing pandas, as `pa.array` of an ndarray does."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _listed(messages: list[Any]) -> list[list[tuple[str, bytes | None]] | None]:
    """Returns the headers of each message, asked for once.

    For a name that it cannot decode confluent-kafka sets an error and returns a list with holes, as it does without an
    error when it is asked again. `map` looks for the error at each call. The interpreter's own calls may not, once they
    are fast: the error is then raised anywhere later.
    """
    found: list[list[tuple[str, bytes | None]] | None] = []
    one_by_one = map(Message.headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(one_by_one)  # type: ignore[arg-type]
        except (SystemError, UnicodeDecodeError):
            found.append([(UNREADABLE, b"headers")])
    return found


def _headers(headers: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    count = len(headers)
    if headers.count(None) == count:
        return pa.nulls(count, HEADERS)
    lengths = np.fromiter((len(pairs) if pairs else 0 for pairs in headers), np.int32, count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    flat = [pair for pairs in headers if pairs for pair in pairs]
    entries = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(offsets), entries, type=HEADERS, mask=pa.array(lengths == 0))


class MessageFetch(PartitionFetch):
    """Fetches by a consumer of confluent-kafka."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        super().__init__(topic)
        self._ahead: list[Any] = []  # fetched, at or beyond the position
        self._pieces: list[pa.RecordBatch] = []
        self._consumer: Consumer = client.consumer(kafka, TUNING, self._on_error)
        if (refused := client.learn(self._consumer, topic, timeout_s)) is not None:
            self._consumer.close()
            raise client.translate(refused, "read", topic)

    def _assign(self, partition: int, start: int) -> None:
        self._consumer.assign([TopicPartition(self.topic, partition, start)])
        self._ahead, self._pieces = [], []

    def rest(self) -> None:
        self._consumer.unassign()

    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        with no_garbage_collection():
            messages = self._fetch(position, min(end - position, AT_ONCE, rows))
            if messages and messages[-1].offset() >= end:
                cut = bisect_left(messages, end, key=lambda message: message.offset())
                self._ahead = messages[cut:] + self._ahead
                del messages[cut:]
                passed = end
            else:
                passed = messages[-1].offset() + 1 if messages else position
                if self._passed >= end and not self._ahead:
                    passed = end
            if not messages:
                return Taken(0, 0, passed)
            piece = to_arrow(self.partition, messages)
            fitting, size = fitting_rows(piece, size)
            if fitting < len(messages):
                self._ahead = messages[fitting:] + self._ahead
                passed = messages[fitting].offset()
            self._pieces.append(piece.slice(0, fitting))
            messages.clear()
            return Taken(fitting, size, passed)

    def batch(self) -> pa.RecordBatch:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def ends(self) -> tuple[int, int]:
        where = TopicPartition(self.topic, self.partition)
        start, end = self._consumer.get_watermark_offsets(where, timeout=client.REQUEST_TIMEOUT_S)
        return start, end

    def close(self) -> None:
        self._consumer.close()

    def _fetch(self, position: int, limit: int) -> list[Any]:
        """Returns at most `limit` records from the position on; none if none arrived within a few milliseconds."""
        if self._ahead:
            waiting, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return waiting
        try:
            messages: list[Any] = self._consumer.consume(limit, WAIT_MS / 1_000)
            if self.trouble is not None and client.is_missing(self.trouble):
                raise TopicMissing(self.topic, self.partition)
        except KafkaException as error:
            raise client.translate(error.args[0], "read", self.topic, self.partition) from error
        errors = list(map(Message.error, messages))
        if not any(errors):  # (comparing a KafkaError with None sets an exception that nobody sees)
            return messages
        for event, trouble in zip(messages, errors, strict=True):
            if trouble is not None:
                self._judge(trouble, event.offset(), position)
        return [message for message, trouble in zip(messages, errors, strict=True) if trouble is None]
