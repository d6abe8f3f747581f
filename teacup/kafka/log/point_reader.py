"""Reads single records at given offsets, of many partitions at once, for searches and collectors.

One consumer is kept open and fetches little. A broker returns whole record batches (about 100 KB if producers
batch), so a fetch limit below that saves nothing and costs much: only the first partition of a fetch gets a
batch above the limit, and each of the others needs a fetch of its own. With the limit at about one batch, all
partitions of a call are answered at once, and the time depends on the number of rounds, not of partitions. Nothing
is assigned between calls, so nothing is fetched in the background.

Records after the first one of an open transaction cannot be read until it ends: when its producer commits or aborts it,
or at its time-out (the producer's `transaction.timeout.ms`). `wait_until_readable` waits for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from teacup.base.now import Every
from teacup.kafka import client
from teacup.kafka.client import last_error
from teacup.kafka.errors import KafkaUnavailable, OffsetOutOfRange, TopicMissing
from teacup.kafka.headers import UNREADABLE
from teacup.kafka.log.topic_log import Ends, TopicLog

log = logging.getLogger("teacup.kafka.log.point_reader")

TUNING: Mapping[str, object] = {
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 131_072,  # per partition
    "fetch.wait.max.ms": 5,  # a partition at its end must not delay the others for long
    "fetch.queue.backoff.ms": 1,
    "socket.nagle.disable": True,
}
_POLL_S = 0.1
SAY_EVERY_S = 5.0
_POLL_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is in the log.

    timestamp_ms    None if it has none
    timestamp_type  0 none, 1 CreateTime, 2 LogAppendTime
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class PointReader:
    """Reads single records of one topic (`read_committed` unless configured otherwise)."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float = client.REQUEST_TIMEOUT_S) -> None:
        self.topic = topic
        self._timeout_s = timeout_s
        self._trouble: KafkaError | None = None
        self._consumer = client.consumer(kafka, TUNING, self._on_error)
        self._lock = threading.Lock()
        self._knows_leaders = False

    def take(self, spans: Mapping[int, tuple[int, int]], count: int = 1) -> dict[int, list[Record]]:
        """Reads the first records of [from, to) in each partition, at most `count`. An empty range costs nothing.

        The log must have reached the ends (at most the last stable offset). Raises `OffsetOutOfRange`, `TopicMissing`,
        `KafkaUnavailable`.
        """
        records: dict[int, list[Record]] = {partition: [] for partition in spans}
        open_spans = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        if not open_spans:
            return records
        with self._lock:
            if not self._knows_leaders:
                client.learn(self._consumer, self.topic, self._timeout_s)
                self._knows_leaders = True
            try:
                spots = [TopicPartition(self.topic, p, span[0]) for p, span in open_spans.items()]
                self._consumer.incremental_assign(spots)
                self._fill(open_spans, count, records)
            except KafkaException as error:
                raise client.translate(error.args[0], "read of single records", self.topic) from error
            finally:
                if left := self._consumer.assignment():
                    self._consumer.incremental_unassign(left)
        return records

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def _fill(self, spans: Mapping[int, tuple[int, int]], count: int, records: dict[int, list[Record]]) -> None:
        waiting = set(spans)
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            message: Any = self._consumer.poll(_POLL_S)
            if self._trouble is not None and client.is_missing(self._trouble):
                self._trouble = None
                raise TopicMissing(self.topic)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._timed_out(waiting)
                continue
            partition = message.partition()
            if partition not in waiting:
                continue
            start, end = spans[partition]
            error = message.error()
            if error is not None:
                if self._at_end(message, error, start) >= end:
                    self._done(partition, waiting)
                continue
            deadline = time.monotonic() + self._timeout_s
            if message.offset() < end:
                records[partition].append(_record(message))
            if message.offset() >= end - 1 or len(records[partition]) == count:
                self._done(partition, waiting)

    def _done(self, partition: int, waiting: set[int]) -> None:
        """Finishes the partition. Records fetched beyond it are discarded unread, which is cheaper."""
        waiting.discard(partition)
        self._consumer.incremental_unassign([TopicPartition(self.topic, partition)])

    def _at_end(self, event: Any, error: KafkaError, position: int) -> int:
        """Returns the offset up to which the partition was read without a record; -1 if the event does not say."""
        if error.code() == KafkaError._PARTITION_EOF:
            return int(event.offset())
        partition = event.partition()
        if client.is_out_of_range(error):
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), timeout=self._timeout_s
            )
            raise OffsetOutOfRange(self.topic, partition, position, low, high)
        if client.is_about_its_group(error):
            return position
        if not client.is_transient(error):
            raise client.translate(error, "read of single records", self.topic, partition)
        self._trouble = error
        return -1

    def _timed_out(self, waiting: set[int]) -> KafkaUnavailable:
        return KafkaUnavailable(
            f"partitions {sorted(waiting)} of {self.topic} returned no record for {self._timeout_s:g} s"
            f"{last_error(self._trouble)}"
        )

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error


def _record(message: Any) -> Record:
    kind, stamp = message.timestamp()
    time_ms = stamp if kind else None
    try:
        # confluent-kafka sets an error without raising it; `map` looks for it, the interpreter's own call may not
        (pairs,) = map(Message.headers, (message,))
        headers: Any = tuple(pairs or ())
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8: as in `teacup.kafka.read.fetch`
        headers = ((UNREADABLE, b"headers"),)
    return Record(message.partition(), message.offset(), time_ms, kind, message.key(), message.value(), headers)


def wait_until_readable(topic: TopicLog, listed: Mapping[int, Ends], timeout_s: float) -> dict[int, Ends]:
    """Waits until everything that was below the high watermarks in `listed` can be read. Returns the ends at that time.

    Raises `KafkaUnavailable` if that takes longer than `timeout_s`.
    """
    started, report = time.monotonic(), Every(SAY_EVERY_S)
    ends = dict(listed)
    while hidden := [p for p, end in listed.items() if ends[p].stable < end.high]:
        if time.monotonic() - started > timeout_s:
            raise KafkaUnavailable(
                f"an open transaction in partitions {hidden} of {topic.topic!r} has hidden the records behind it for "
                f"{timeout_s:g} s; what is needed may be among them. It ends with its time-out "
                "(`transaction.timeout.ms` of its producer): retry then, or end its producer"
            )
        if report.due():
            log.warning("waits for an open transaction in partitions %s of %s", hidden, topic.topic)
        time.sleep(_POLL_EVERY_S)
        ends = {p: now for p, now in topic.ends().items() if p in listed}
    return ends
