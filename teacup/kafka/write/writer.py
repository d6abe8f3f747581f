"""Writes Arrow batches to topics: idempotent, acknowledged by all replicas, and no failure goes unnoticed.

Columns go to librdkafka in C (`teacup.kafka.write.native_producer`), which counts every record as acknowledged or
failed, so success costs no Python callback.

A full queue blocks the caller; `teacup.kafka.write.producer` says how the wait works. After a failure the writer is
broken, because librdkafka may no longer keep the order of later records: open a new one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from teacup.base.process import PerProcess, within
from teacup.kafka import client
from teacup.kafka.client import last_error, said_with_name
from teacup.kafka.errors import (
    DeliveryFailed,
    DeliveryRefused,
    KafkaUnavailable,
    NotEnoughReplicas,
    ProducerFailed,
)
from teacup.kafka.log.replicas import why_not_taken
from teacup.kafka.write import clients as real
from teacup.kafka.write.native_producer import NO_MEMORY
from teacup.kafka.write.producer import Clients, Drain, Producer, RecordColumns, RecordCounts
from teacup.kafka.write.templates import MadeHeaders, MadeTexts

log = logging.getLogger("teacup.kafka.write.writer")

TUNING: Mapping[str, Any] = {
    "batch.size": 250_000,  # with a million the rate to Kafka was 0.81 of this (docs/performance.md)
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
}
MESSAGE_MAX_BYTES = 1_000_000  # librdkafka's default of `message.max.bytes`
_ANY_PARTITION = -1
_LINGER, _LINGER_IN_TRANSACTION = 0.5, 0.95
"""Shares of the time after which librdkafka gives up a record: records wait for a full batch, or for a `flush` (see
`teacup.kafka.write.producer`). Outside transactions a record for which neither comes is still sent in time."""
_LONGEST_LINGER_MS = 900_000  # librdkafka's
_FLUSH_GRACE_S = 30.0  # librdkafka gives up every record by itself; this is for when it does not
_ASK_AFTER_S = 5.0  # whether the topics have enough replicas
_CLOSE_WITHIN_S = 2.0  # the next attempt waits for it; a longer close goes on in the background
_PURGED_WITHIN_S = 0.1
_OPEN_WRITERS = 4
_DEFAULT_DELIVERY_TIMEOUT_MS = 300_000  # librdkafka's

Column: TypeAlias = "pa.Array | pa.ChunkedArray | pl.Series | MadeTexts | MadeHeaders | Sequence[Any] | None"


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one `flush` guarantees: every record `sent` since the previous flush was acknowledged."""

    sent: int
    acknowledged: int

    def check(self, written: Mapping[str, int]) -> None:
        """Raises `DeliveryFailed` unless both counts equal the number of records to be written, given by topic."""
        expected = sum(written.values())
        if self.sent != expected or self.acknowledged != expected:
            raise DeliveryFailed(
                ", ".join(written) or "none",
                -1,
                f"{expected} records were to be written, {self.sent} were sent, {self.acknowledged} "
                "acknowledged; these must be the same, and nothing is committed",
                expected - self.acknowledged,
            )


class TopicWriter:
    """Writes to any topics of one cluster; used by one thread at a time."""

    def __init__(self, kafka: Mapping[str, str], transactional_id: str | None = None, clients: Clients = real) -> None:
        timeout_ms = client.delivery_timeout_ms(kafka, _DEFAULT_DELIVERY_TIMEOUT_MS)
        linger = _LINGER if transactional_id is None else _LINGER_IN_TRANSACTION
        tuning = {**TUNING, "linger.ms": min(int(timeout_ms * linger), _LONGEST_LINGER_MS)}
        self._producer, self._native = clients.producer(kafka, tuning, self._on_error, transactional_id)
        self._drain = Drain(self._producer, self._native.in_flight)
        self._kafka, self._id = kafka, transactional_id
        self._topics: dict[str, None] = {}  # the topics written to
        self._codes: set[int] = set()
        self._flush_timeout_s = timeout_ms / 1000 + _FLUSH_GRACE_S
        self._sent = 0
        self._acknowledged_before = 0  # at the last flush
        self._failed = 0
        self._first_failure: DeliveryFailed | None = None
        self._trouble: KafkaError | None = None

    def write(
        self,
        topic: str,
        keys: Column,
        values: Column,
        headers: Column = None,
        timestamps: Column = None,
        partitions: Column = None,
    ) -> int:
        """Hands records to the producer and returns how many. They are safe only after `flush`.

        All columns have the same length. `None` means a column of nulls; keys or values must be given.

            keys, values   binary or strings
            headers        list<struct<key, value>> as from `RangeReader`, or lists of (key, value); null: no headers
            timestamps     int64 milliseconds; null and 0 mean now (`teacup.kafka.records.limits`)
            partitions     int32; null: chosen by the partitioner (murmur2 of the key, as in the Java client)

        Values and headers may also be made of texts (`teacup.kafka.write.templates`).

        Raises `DeliveryFailed` if an earlier record of this writer failed, `ProducerFailed` if the producer has ended,
        `KafkaUnavailable` if the queue stays full, `NotEnoughReplicas`.
        """
        rows = self._native.rows(keys, values, headers, timestamps, partitions)
        self._check_failures()
        self._topics[topic] = None
        self._produce(topic, rows)
        self._sent += rows.count
        with self._fatal_error_raised():
            self._producer.poll(0)
        self._check_failures()
        return rows.count

    @property
    def failed_with(self) -> set[int]:
        """Error codes of failed records, and of the error that ended the producer."""
        return self._codes | self._native.counts().codes

    def _produce(self, topic: str, rows: RecordColumns) -> None:
        taken = 0
        while taken < rows.count:
            more, code = self._native.produce(topic, rows, taken)
            taken += more
            if code == NO_MEMORY:
                raise MemoryError(f"no memory for the text of a record to topic {topic!r}")
            if code == KafkaError._QUEUE_FULL:
                self._wait_for_room()
            elif code:
                self._codes.add(code)
                error = KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}")
                raise DeliveryFailed(topic, rows.partition_of(taken), said_with_name(error), 1)

    def flush(self, gives_up: Callable[[int], bool] = lambda _: False) -> Delivered:
        """Waits until every record is acknowledged or failed.

        gives_up   whether to stop waiting for this many records

        Raises `DeliveryFailed`, `ProducerFailed`, `KafkaUnavailable`, `NotEnoughReplicas`.
        """
        began_s = time.monotonic()
        deadline, ask_s = began_s + self._flush_timeout_s, began_s + _ASK_AFTER_S
        with self._fatal_error_raised():
            self._drain.begin(at_once=True)
            while waits_for := len(self._producer):
                self._drain.poll()
                if gives_up(waits_for):
                    self._producer.purge()  # or they stay in memory as long as the producer does
                    self._producer.poll(_PURGED_WITHIN_S)
                    raise KafkaUnavailable(
                        f"a connection was lost, and none of {waits_for} records was acknowledged since"
                        f"{last_error(self._trouble)}"
                    )
                if time.monotonic() > ask_s:
                    ask_s = deadline
                    if (why := self.why_not_taken()) is not None:
                        log.warning("%d records wait to be acknowledged: %s", waits_for, why)
                if time.monotonic() > deadline:
                    raise KafkaUnavailable(
                        f"{len(self._producer)} records were neither acknowledged nor failed within "
                        f"{self._flush_timeout_s:g} s{last_error(self._trouble)}"
                    )
        self._native.settled()
        self._check_failures()
        delivered = Delivered(self._sent, self._acknowledged())
        self._sent = 0
        if delivered.acknowledged != delivered.sent:
            raise DeliveryFailed(
                "any",
                _ANY_PARTITION,
                f"{delivered.sent} records were sent, {delivered.acknowledged} acknowledged, and none has failed",
                delivered.sent - delivered.acknowledged,
            )
        return delivered

    def _acknowledged(self) -> int:
        """Returns how many records were acknowledged since the last flush; none has failed."""
        total = self._native.counts().acknowledged
        since, self._acknowledged_before = total - self._acknowledged_before, total
        return since

    def connections_lost(self) -> int:
        """Returns how many connections to brokers were lost or could not be made."""
        return self._native.connections_lost()

    @property
    def producer(self) -> Producer:
        """The underlying producer, for transactions."""
        return self._producer

    def close(self) -> None:
        """Closes the producer; records that were not flushed are dropped.

        Closing aborts an open transaction. librdkafka has no time-out for that, and sometimes never returns if the
        broker was unreachable meanwhile. A producer that does not close in time is abandoned; the next one with the
        same transactional id aborts its transaction.
        """
        try:
            within(_CLOSE_WITHIN_S, self._close)
        except TimeoutError:
            log.warning("a producer did not close within %g s, and is abandoned", _CLOSE_WITHIN_S)

    def _close(self) -> None:
        self._native.shut()
        self._producer.purge()
        try:
            with self._fatal_error_raised():
                self._producer.flush(_CLOSE_WITHIN_S)
                self._producer.close()  # also aborts an open transaction
                self._native.free()
        except ProducerFailed as error:
            log.info("a producer was closed with its transaction open: %s", error)

    def _wait_for_room(self) -> None:
        """Serves the producer, whose queue is full, until the queue is shorter.

        Raises `KafkaUnavailable` once it has been full for longer than librdkafka keeps any record.
        """
        deadline, full = time.monotonic() + self._flush_timeout_s, len(self._producer)
        self._drain.begin()
        while full and len(self._producer) >= full:
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"the producer's queue of {len(self._producer)} records has been full for "
                    f"{self._flush_timeout_s:g} s{last_error(self._trouble)}"
                )
            with self._fatal_error_raised():
                self._drain.poll()
            self._check_failures()

    @contextmanager
    def _fatal_error_raised(self) -> Iterator[None]:
        """Raises `ProducerFailed` for an error that ends the producer.

        confluent-kafka raises the error from any call that serves callbacks, and keeps calling back while it is
        pending. Python then raises a SystemError, with the error as its cause or without any trace of it.
        """
        try:
            yield
        except (KafkaException, SystemError) as error:
            cause: BaseException | None = error
            while isinstance(cause, SystemError):
                cause = cause.__cause__
            message = str(error)
            if isinstance(cause, KafkaException):
                self._codes.add(cause.args[0].code())
                message = said_with_name(cause.args[0])
            raise ProducerFailed(f"the producer cannot continue: {message}") from error

    def _check_failures(self) -> None:
        self._count_failures(self._native.counts())
        if self._first_failure is not None:
            first = self._first_failure
            failure = type(first)(first.topic, first.partition, first.reason, self._failed)
            timed_out = KafkaError._MSG_TIMED_OUT in self.failed_with
            raise (self.why_not_taken() if timed_out else None) or failure

    def why_not_taken(self, *topics: str) -> NotEnoughReplicas | None:
        """Returns which of these topics, those written to, or the coordinators' has too few replicas in sync."""
        return why_not_taken(self._kafka, self._producer, {**self._topics, **dict.fromkeys(topics)}, self._id)

    def _count_failures(self, counts: RecordCounts) -> None:
        self._failed = counts.failed
        if counts.code and self._first_failure is None:
            error = KafkaError(counts.code)
            self._first_failure = self._failure(counts.topic, counts.partition, error)

    def _failure(self, topic: str, partition: int, error: KafkaError) -> DeliveryFailed:
        kind = DeliveryRefused if client.lacks_acl(error.code()) else DeliveryFailed
        return kind(topic, partition, f"{said_with_name(error)}{last_error(self._trouble)}", 1)

    def _on_error(self, error: KafkaError) -> None:
        self._trouble = error
        if error.fatal():
            self._codes.add(error.code())


_writers: PerProcess[frozenset[tuple[str, str]], TopicWriter] = PerProcess(_OPEN_WRITERS, TopicWriter.close)


def open_writer(kafka: Mapping[str, str]) -> TopicWriter:
    """Returns this process's writer to a cluster, kept open between calls while it is recently used."""
    return _writers.get(frozenset(kafka.items()), lambda: TopicWriter(kafka))


def discard_writer(kafka: Mapping[str, str]) -> None:
    """Closes this process's writer, as required after `DeliveryFailed`. The next `open_writer` opens another."""
    _writers.discard(frozenset(kafka.items()))
