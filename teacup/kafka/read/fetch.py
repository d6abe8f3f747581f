"""What a range reader needs of a consumer on one partition: records from a position on, as Arrow columns, made in C.

No Python object is made for a record. By Kafka's protocol the names of headers are UTF-8, but no broker checks that. A
record with a header of another name is read all the same; one header (`UNREADABLE`) replaces its headers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from teacup.kafka import client
from teacup.kafka.errors import OffsetOutOfRange, TopicMissing
from teacup.kafka.native import rdkafka
from teacup.kafka.read.consumer import OwnConsumer

# Ranges are short, so prefetching far beyond them is wasted work. By default librdkafka would pause for a second after
# a full queue before it fetches again (fetch.queue.backoff.ms). Few, large answers, and a queue that asks late to be
# refilled, take a third less CPU per record than answers of 2 MB and a queue of 20,000.
TUNING = {
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.message.max.bytes": 4_000_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
}

AT_ONCE = 20_000  # records taken from librdkafka's queue together
WAIT_MS = 10  # for the first record
KEPT_BYTES = 256 << 10  # of records of a partition that came beyond its range


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


_NOTHING = (-1, -1)
"""Offsets [start, end) of which a fetch keeps all records."""

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


_MORE, _BEYOND, _LIMIT, _EVENT, _MEMORY = range(5)
"""Why a call stopped: `tc_stopped` in fetch.c."""


class _Taken(ctypes.Structure):
    """`tc_taken` in fetch.c."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("text", ctypes.c_char_p),
        ("error", ctypes.c_int32),
        ("stopped", ctypes.c_int32),
    )


class _ArrowArray(ctypes.Structure):
    """`struct ArrowArray` of Arrow's C data interface; only its size matters here."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    )


class FetchingConsumer:
    """A consumer, with its library, that notes errors which may pass.

    trouble   the last error that librdkafka reported of the whole client, or of a partition, and that may pass
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        """Raises `LibraryMissing`, `ConfigError`, `KafkaUnavailable`, `AccessRefused`, `TopicMissing`."""
        functions = rdkafka.bound()
        self.topic, self.teacup = topic, functions.teacup
        self.trouble: KafkaError | None = None
        self.consumer = OwnConsumer(functions, kafka, TUNING, self._on_error)
        if (refused := self.consumer.learn(topic, timeout_s)) is not None:
            self.consumer.close()
            raise client.translate(refused, "read", topic)

    def _on_error(self, error: KafkaError) -> None:
        """Notes an error of the whole client, which librdkafka reports here, or that a topic does not exist."""
        self.trouble = error


class PartitionFetch:
    """Takes records of one partition at a time from a queue; only one thread at a time may use it."""

    def __init__(self, of: FetchingConsumer, queue: int, partition: int = -1) -> None:
        self.topic, self.partition = of.topic, partition
        self._of, self._consumer, self._teacup = of, of.consumer, of.teacup
        self._passed = -1  # from an end-of-partition event: there is no record in [last one seen, _passed)
        self._taken = _Taken()
        self._before = Taken(0, 0, -1)
        self._position = -1  # the next offset to read
        self._kept = _NOTHING
        self._fetch: int | None = self._teacup.tc_fetch_new(queue)
        if self._fetch is None:
            raise self._no_memory()

    @property
    def trouble(self) -> KafkaError | None:
        """The consumer's."""
        return self._of.trouble

    def forget(self) -> None:
        """Forgets everything fetched before, because the partition is assigned again."""
        self._teacup.tc_fetch_clear(self._fetch)
        self._before, self._passed, self._kept = Taken(0, 0, -1), -1, _NOTHING

    def keep(self) -> None:
        """Keeps what has come and was not taken, before the partition is no longer assigned."""
        self._kept = (self._position, self._teacup.tc_fetch_keep(self._fetch, KEPT_BYTES))
        self._passed = -1

    def resume(self, start: int) -> int:
        """Returns from where to fetch if reading goes on at `start`: behind what was kept from there on, if anything.

        Otherwise forgets what was fetched before.
        """
        self._position = start
        kept_from, kept_to = self._kept
        if start == kept_from and start < kept_to:
            return kept_to
        self.forget()
        return start

    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        """Adds records of [position, end) to the batch. Waits a few milliseconds if there are none.

        It adds at most `rows`, and none after the one that makes them `size` bytes or more.

        Raises `OffsetOutOfRange`, `TopicMissing`, `KafkaUnavailable`, `KafkaIOError`.
        """
        before, taken = self._before, self._taken
        self._kept = _NOTHING
        wanted = min(end - position, AT_ONCE, rows)
        self._teacup.tc_fetch_take(
            self._fetch, end, before.rows + rows, before.size + size, wanted, WAIT_MS, ctypes.byref(taken)
        )
        if taken.rows == before.rows:
            self.poll_client()
        if self.trouble is not None and client.is_missing(self.trouble):
            raise TopicMissing(self.topic, self.partition)
        if taken.last >= 0:
            position = taken.last + 1
        if taken.stopped == _EVENT:
            self._judge(KafkaError(taken.error, (taken.text or b"").decode(errors="replace")), taken.offset, position)
        elif taken.stopped == _MEMORY:
            raise self._no_memory()
        if taken.stopped == _BEYOND or (taken.stopped in (_MORE, _EVENT) and self._passed >= end):
            position = end
        self._position = position
        self._before = Taken(taken.rows, taken.size, position)
        return Taken(taken.rows - before.rows, taken.size - before.size, position)

    def batch(self) -> pa.RecordBatch:
        """Returns the records added since the last call, at least one, in the schema `SCHEMA`."""
        columns = (_ArrowArray * len(SCHEMA))()
        if self._teacup.tc_fetch_columns(self._fetch, self.partition, columns):
            raise self._no_memory()
        self._before = Taken(0, 0, -1)
        return imported(columns)

    def ends(self) -> tuple[int, int]:
        """Returns the partition's first offset and its high watermark. Raises `KafkaException`."""
        return self._consumer.ends(self.topic, self.partition, client.REQUEST_TIMEOUT_S)

    def poll_client(self) -> None:
        """Handles what is about the whole client, if that does not come with the records."""

    def poll(self) -> None:
        """Handles what waits in a queue without records. Raises `KafkaUnavailable`, `KafkaIOError`."""
        taken = self._taken
        self._teacup.tc_fetch_take(self._fetch, 0, 1, 1, 1, 0, ctypes.byref(taken))
        if taken.stopped == _EVENT:
            self._judge(KafkaError(taken.error, (taken.text or b"").decode(errors="replace")), taken.offset, 0)

    def rest(self) -> None:
        """Fetches nothing until the partition is assigned again. Raises `KafkaException`."""
        raise NotImplementedError

    def free(self) -> None:
        """Releases what was taken; before the consumer is closed."""
        if self._fetch is not None:
            self._teacup.tc_fetch_free(self._fetch)
            self._fetch = None

    def _judge(self, error: KafkaError, offset: int, position: int) -> None:
        """Judges an event among the records, at this offset."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._passed = offset
        elif client.is_out_of_range(error):
            raise self._out_of_range(position)
        elif client.is_transient(error):
            self._of.trouble = error
        elif not client.is_about_its_group(error):
            raise client.translate(error, "read", self.topic, self.partition)

    def _out_of_range(self, position: int) -> Exception:
        try:
            start, end = self.ends()
        except KafkaException as error:
            return client.translate(error.args[0], "look for the ends", self.topic, self.partition)
        return OffsetOutOfRange(self.topic, self.partition, position, start, end)

    def _no_memory(self) -> MemoryError:
        return MemoryError(f"no memory for the records of {self.topic}-{self.partition}")


class RecordFetch(PartitionFetch):
    """A consumer that is assigned to one partition at a time; only one thread at a time may use it."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        """Raises `LibraryMissing`, `ConfigError`, `KafkaUnavailable`, `AccessRefused`, `TopicMissing`."""
        of = FetchingConsumer(topic, kafka, timeout_s)
        try:
            super().__init__(of, of.consumer.queue)
        except BaseException:
            of.consumer.close()
            raise

    def assign(self, partition: int, start: int) -> None:
        """Fetches from an offset on; everything fetched before is forgotten."""
        self.forget()
        self._consumer.assign(self.topic, {partition: start})
        self.partition = partition

    def rest(self) -> None:
        """Fetches nothing until the next `assign`. Raises `KafkaException`."""
        self._consumer.unassign()

    def close(self) -> None:
        """Releases the consumer."""
        if self._fetch is not None:
            self.free()
            self._consumer.close()

    def __del__(self) -> None:
        consumer = getattr(self, "_consumer", None)  # none if the properties were refused
        if consumer is not None and consumer.mine:
            self.close()


class SharedFetch:
    """A consumer that is assigned to many partitions; only one thread at a time may use it and its partitions.

    Each partition has a queue of its own. What is about the whole client (errors, log lines, requests for a token)
    stays in the consumer's; whoever finds no records looks at it.
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        """Raises `LibraryMissing`, `ConfigError`, `KafkaUnavailable`, `AccessRefused`, `TopicMissing`."""
        self._of = FetchingConsumer(topic, kafka, timeout_s)
        self._client = PartitionFetch(self._of, self._of.consumer.queue)
        self._partitions: dict[int, _Member] = {}
        self._assigned: frozenset[int] = frozenset()
        self._unread: set[int] = set()  # of those assigned

    def of(self, partition: int) -> PartitionFetch:
        """Returns the fetch of a partition, which is to be assigned."""
        if partition not in self._partitions:
            queue = self._of.consumer.queue_of(self._of.topic, partition)
            self._partitions[partition] = _Member(self._of, queue, partition, self)
        return self._partitions[partition]

    def assign(self, starts: Mapping[int, int]) -> None:
        """Fetches from these offsets on, by partition, and nothing else. Raises `KafkaException`.

        starts   as their `resume` says
        """
        self._of.consumer.assign(self._of.topic, starts)
        self._assigned, self._unread = frozenset(starts), set(starts)

    def is_read(self, partition: int) -> None:
        """Says that a partition's range is read.

        Once those of all that are assigned are, nothing is fetched, and what has come beyond them is kept.
        Raises `KafkaException`.
        """
        if partition not in self._unread:  # its range had been kept
            self._partitions[partition].keep()
            return
        self._unread.discard(partition)
        if not self._unread:
            for assigned in self._assigned:
                self._partitions[assigned].keep()
            self._of.consumer.unassign()

    def poll_client(self) -> None:
        """Handles what has come about the whole client. Raises `KafkaUnavailable`, `KafkaIOError`."""
        self._client.poll()

    def close(self) -> None:
        """Releases the consumer."""
        for fetch in (self._client, *self._partitions.values()):
            fetch.free()
        self._of.consumer.close()

    def __del__(self) -> None:
        of = getattr(self, "_of", None)  # none if the properties were refused
        if of is not None and of.consumer.mine:
            self.close()


class _Member(PartitionFetch):
    def __init__(self, of: FetchingConsumer, queue: int, partition: int, shared: SharedFetch) -> None:
        super().__init__(of, queue, partition)
        self._shared = shared

    def rest(self) -> None:
        self._shared.is_read(self.partition)

    def poll_client(self) -> None:
        self._shared.poll_client()


def imported(columns: ctypes.Array[_ArrowArray]) -> pa.RecordBatch:
    """Returns a batch of the exported columns, which now own their memory: each is freed with its last user."""
    first, size = ctypes.addressof(columns), ctypes.sizeof(_ArrowArray)
    arrays = [pa.Array._import_from_c(first + at * size, field.type) for at, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
