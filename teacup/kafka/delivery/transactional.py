"""The transactional producers of a process: one for each bucket, fenced when it is opened, and kept between batches.

A producer that lost a connection is given up once nothing moves: librdkafka may wait for a coordinator that is gone,
despite its time-out (its issues 5511 and 5456).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from confluent_kafka import TopicPartition

from teacup.base.process import PerProcess, begun
from teacup.kafka.delivery.failpoints import failpoint, failpoint_begins
from teacup.kafka.delivery.fencing import AT_ONCE, COMMIT, FencedProducer, OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import NO_LAG, Receipt
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.write import clients as real
from teacup.kafka.write.producer import Clients, ConnectionWatch
from teacup.kafka.write.writer import Column

OPEN_PRODUCERS = 128  # a process with more buckets opens a new one for each batch, which costs more than the batch
IN_USE = 9  # at most: the bucket being written, and those whose last transactions are being committed
WHOLE_BATCH_TIMEOUT_MS = 300_000

Handled = tuple[str, int]
"""Generation and number of a batch."""


class TransactionalWriter(FencedProducer):
    """A bucket's producer, and the receipt it found after it had fenced all earlier ones.

    handled             the batch that it handled last, or the one before that for which it was opened: only the next
                        batch can rely on the receipt; None: it is in use
    kept                whether it has handled a batch: from then on a lost connection is a reason to give it up
    connections         connections lost since the last commit, or since it was opened
    perhaps_sent_twice  a request of the last commit may have been sent twice: it must not begin another transaction

    Raises `KafkaUnavailable`, `Fenced`, `ReceiptRefused`, `KafkaIOError`. After any error it must be closed.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        bucket: OutputBucket,
        clients: Clients = real,
        handled: Handled | None = None,
    ) -> None:
        super().__init__(kafka, bucket, clients)
        self.kept = False
        self.handled = handled
        self.begun = self.perhaps_sent_twice = False
        try:
            self.receipt, self._group = self._read_receipt()
        except BaseException:
            self.close()
            raise
        self.connections = ConnectionWatch(self.writer.connections_lost)

    def begin(self) -> None:
        """Begins a transaction if none is open."""
        if not self.begun:
            failpoint("before_produce")
            self._call("begin_transaction", self.writer.producer.begin_transaction)
            self.begun = True

    def write(self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column) -> int:
        """Writes as `TopicWriter.write`, in the transaction."""
        self.begin()
        with self._errors_translated("the write"):
            return self.writer.write(topic, keys, values, headers, timestamps)

    def commit(self, receipt: Receipt, written: Mapping[str, int]) -> None:
        """Commits what was written, together with the receipt; `written` must equal what was acknowledged."""
        self.begin()
        with self._errors_translated("the flush"):
            self.writer.flush(self._gives_up).check(written)
        failpoint("before_commit")
        spot = TopicPartition(self._bucket.topic, 0, NO_LAG + receipt.number, metadata=receipt.to_text())
        producer = self.writer.producer
        began_s = time.monotonic()
        self._in_time(
            "send_offsets_to_transaction",
            self.timeout_s,
            lambda timeout_s: producer.send_offsets_to_transaction([spot], self._group, timeout_s),
            lambda: self.connections.is_stuck(time.monotonic(), "receipt"),  # this call keeps no time-out
        )
        failpoint_begins("committing")
        self._in_time(COMMIT, self.timeout_s, producer.commit_transaction, lambda: self._gives_up(COMMIT))
        self.begun = False
        self.connections.begin()
        self.perhaps_sent_twice = time.monotonic() - began_s > self.sent_once_for_s
        self.receipt = receipt
        if any(written.values()):
            failpoint("after_commit")

    def _gives_up(self, state: object) -> bool:
        if not self.kept or not self.connections.is_stuck(time.monotonic(), state):
            return False
        self._leave_alone()  # closing it would wait too
        return True

    def _read_receipt(self) -> tuple[Receipt | None, Any]:
        return read_receipt(self._kafka, self._bucket, self._clients)


_Key = tuple[frozenset[tuple[str, str]], OutputBucket]


def _key(kafka: Mapping[str, str], bucket: OutputBucket) -> _Key:
    return frozenset(kafka.items()), bucket


class Producers:
    """The transactional producers of one process, by cluster and bucket, kept open between batches."""

    def __init__(self, clients: Clients = real) -> None:
        self._clients = clients
        self._open: PerProcess[_Key, TransactionalWriter] = PerProcess(OPEN_PRODUCERS, TransactionalWriter.close)

    def get(
        self, kafka: Mapping[str, str], bucket: OutputBucket, in_parts: bool, before: Handled
    ) -> TransactionalWriter:
        """Returns the bucket's producer. A new one gets the properties `kafka`, with more time if not in parts.

        before   the batch before the one to be written
        """
        longer = {} if in_parts else {"transaction.timeout.ms": str(WHOLE_BATCH_TIMEOUT_MS)}
        properties = {**longer, **kafka}
        return self._open.get(
            _key(kafka, bucket), lambda: TransactionalWriter(properties, bucket, self._clients, before)
        )

    def open_ahead(
        self, kafka: Mapping[str, str], buckets: Iterable[OutputBucket], in_parts: bool, before: Handled
    ) -> None:
        """Starts opening the producers of later buckets, a few at a time.

        `get` retries what fails. Opens only as many as fit beside the producers in use.
        """
        next_ones = islice(buckets, OPEN_PRODUCERS - IN_USE)
        waiting = deque(bucket for bucket in next_ones if _key(kafka, bucket) not in self._open)

        def open_each() -> None:
            while waiting:
                with suppress(IndexError, KafkaIOError):
                    self.get(kafka, waiting.popleft(), in_parts, before)

        for _ in range(min(len(waiting), AT_ONCE)):
            begun(open_each)

    def discard(self, kafka: Mapping[str, str], bucket: OutputBucket) -> None:
        """Closes the bucket's producer, if there is one; the next `get` opens a new one."""
        self._open.discard(_key(kafka, bucket))


producers_of_process = Producers()
