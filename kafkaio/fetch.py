"""What a range reader needs of a consumer on one partition: records from a position on, as Arrow columns.

Two do it: `kafkaio.messagefetch` with confluent-kafka's messages, `kafkaio.native.recordfetch` in C. They give the same
columns and raise the same errors, so a reader does not know which one it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from kafkaio import client
from kafkaio.errors import OffsetOutOfRange
from kafkaio.producible import batch_bytes

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
        """Returns the records added since the last call, at least one, in the schema of `kafkaio.messages`."""

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
        else:
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
