"""Delivery of a bucket's batch to Kafka, exactly once or at least once.

    at least once    an idempotent producer; the batch counts when the brokers have acknowledged every record
    exactly once     the records stand in transactions of the bucket's own, each of which commits the *receipt*: the
                     offset metadata of a group of the bucket's own, on partition 0 of the output topic

What makes it exactly once is the order: a new producer with the bucket's transactional id, `init_transactions`, and
only then the receipt is read. Initialising fences whatever an earlier attempt still does under that id, and settles
its transaction, so that the receipt read afterwards is the last word. Read before, it may be followed by a commit of
the earlier attempt, and its rows are written twice. The id holds no generation and no batch number: it must fence
attempts of every earlier one. What a job does before its first batch is in `kafkaio.settling`.

A producer that had the batch before this one, in this process, is used again without asking: had another one
been initialised since, its next transaction would fail. After any failure the producer is let go, never tried again:
whether a commit that was not answered took place is seen from the receipt by the next one.

Nor is it used after a commit that librdkafka may have sent twice. A commit says which producer it is of, not which
transaction (before KIP-890): the first of the two, late on its way, would end the next transaction amid its rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import TopicPartition

from kafkaio import client, failpoint
from kafkaio.clients import Clients
from kafkaio.errors import DeliveryFailed
from kafkaio.fenced import Bucket, FencedProducer
from kafkaio.perprocess import PerProcess
from kafkaio.receipt import NOTHING_IN, Batch, Receipt, Standing, needed, standing
from kafkaio.receiptgroup import read_receipt
from kafkaio.writer import Column, Delivered, discard_writer, open_writer

PART_BYTES = 64 << 20
PART_OF_TIMEOUT = 0.25
WHOLE_BATCH_TIMEOUT_MS = 300_000
OPEN_PRODUCERS = 128  # a process that has more buckets opens one anew for each batch, which costs more than the batch


class Delivery(Protocol):
    """One batch of one bucket on its way."""

    def standing(self) -> Standing:
        """What is in of the batch already; those rows must not be written again."""
        ...

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        """Hand records over; size: the bytes of their keys, values and headers; None: counted here, without headers."""
        ...

    def part_is_full(self, *, gap: bool = False) -> bool:
        """It is time for `commit`, although rows will follow; gap: perhaps a long time from now."""
        ...

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        """Make what was written since the last commit durable; returns the batch's rows by topic that are in.

        rows      of the batch so far, those that were in already included
        reached   what the last of these rows is about, for `Standing.check_reached`
        written   by topic, since the last commit: checked against what was acknowledged, before anything commits
        """
        ...

    def abandon(self) -> None:
        """Something failed: nothing of the part that is open may count."""
        ...


class AtLeastOnce:
    """What a failed attempt has written stays, and is written again."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._writer = open_writer(kafka)
        self._sent: dict[str, int] = {}

    def standing(self) -> Standing:
        return NOTHING_IN

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        count = self._writer.write(topic, keys, values, headers, timestamps)
        failpoint.reach("producing")
        return count

    def part_is_full(self, *, gap: bool = False) -> bool:
        return False

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        _check(self._writer.flush(), written)
        failpoint.reach("after_commit")
        _add(self._sent, written)
        return self._sent

    def abandon(self) -> None:
        discard_writer(self._kafka)


class ExactlyOnce:
    """Begins to open its producer at once, in the background: it takes as long as fetching the first records.

    in_parts   a large or slow batch goes in several transactions. Whenever it runs again it must then have as many
               rows, in the same order; without it they may differ, as all or none of them are in, and its one
               transaction may last
    producers  None: those of this process
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        bucket: Bucket,
        batch: Batch,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        *,
        in_parts: bool = True,
        producers: Producers | None = None,
    ) -> None:
        self._kafka, self._bucket, self._in_parts = kafka, bucket, in_parts
        self._batch, self._now_ms = batch, now_ms
        self._producers = producers or _producers
        self._opening = self._opened()
        self._bytes, self._committed_ms = 0, now_ms()
        self._sent: dict[str, int] | None = None

    def standing(self) -> Standing:
        found = standing(self._transactions.receipt, self._batch, str(self._bucket))
        if self._sent is None:
            self._sent = dict(found.sent)
        return found

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        count = self._transactions.write(topic, keys, values, headers, timestamps)
        self._bytes += _size(keys) + _size(values) if size is None else size
        failpoint.reach("producing")
        return count

    def part_is_full(self, *, gap: bool = False) -> bool:
        """By its bytes; or because rows come so slowly that the next ones might come after the time-out."""
        since_ms = self._now_ms() - self._committed_ms
        slow = since_ms > PART_OF_TIMEOUT * 1_000 * self._transactions.timeout_s
        return self._in_parts and self._transactions.begun and (self._bytes >= PART_BYTES or slow or gap)

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        transactions, was = self._transactions, self.standing()
        sent = self._sent = {**(self._sent or {})}
        _add(sent, written)
        now_ms = self._now_ms()
        empty = not transactions.begun and rows == was.rows
        nothing_to_say = empty and rows == 0 and not needed(transactions.receipt, now_ms)
        if not was.done and not nothing_to_say:
            of = self._batch
            receipt = Receipt(of.generation, of.number, of.digest, rows, done, sent, now_ms, reached)
            transactions.commit(receipt, written)
            self._bytes, self._committed_ms = 0, self._now_ms()
        if transactions.perhaps_sent_twice:
            self._producers.discard(self._kafka, self._bucket)
            if not done:
                self._opening = self._opened()
        elif done:
            transactions.handled = (self._batch.generation, self._batch.number)
        return sent

    def abandon(self) -> None:
        self._producers.discard(self._kafka, self._bucket)

    @property
    def _transactions(self) -> TransactionalWriter:
        return self._opening.result()

    def _opened(self) -> Future[TransactionalWriter]:
        opening: Future[TransactionalWriter] = Future()
        threading.Thread(target=self._open, args=(opening,), daemon=True).start()
        return opening

    def _open(self, opening: Future[TransactionalWriter]) -> None:
        longer = {} if self._in_parts else {"transaction.timeout.ms": str(WHOLE_BATCH_TIMEOUT_MS)}
        before = (self._batch.generation, self._batch.number - 1)
        try:
            made = self._producers.get(self._kafka, self._bucket, longer)
            if made.used and made.handled != before:  # another process may have had a batch since
                self._producers.discard(self._kafka, self._bucket)
                made = self._producers.get(self._kafka, self._bucket, longer)
            made.used, made.handled = True, None
            opening.set_result(made)
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            opening.set_exception(error)


class TransactionalWriter(FencedProducer):
    """A bucket's producer, and the receipt that stood when it had fenced all earlier ones.

    used, handled       whether a batch has had it; generation and number of the last one, once that is done
    perhaps_sent_twice  a request of the last commit was: this producer must not begin another transaction

    Raises `KafkaUnavailable`, `Fenced`, `ReceiptRefused`, `KafkaIOError`. After any error it must be closed.
    """

    def __init__(self, kafka: Mapping[str, str], bucket: Bucket, clients: Clients = client) -> None:
        super().__init__(kafka, bucket, clients)
        self.used = False
        self.handled: tuple[str, int] | None = None
        self.begun = self.perhaps_sent_twice = False
        try:
            self.receipt, self._group = self._read_receipt()
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Begin a transaction where none is open."""
        if not self.begun:
            failpoint.reach("before_produce")
            self._call("begin_transaction", self.writer.producer.begin_transaction)
            self.begun = True

    def write(self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column) -> int:
        """As `TopicWriter.write`, in the transaction."""
        self.begin()
        with self._errors_told("the write"):
            return self.writer.write(topic, keys, values, headers, timestamps)

    def commit(self, receipt: Receipt, written: Mapping[str, int]) -> None:
        """Commit what was written together with the receipt; `written` must be what was acknowledged."""
        self.begin()
        with self._errors_told("the flush"):
            _check(self.writer.flush(), written)
        failpoint.reach("before_commit")
        spot = TopicPartition(self._bucket.topic, 0, receipt.number, metadata=receipt.to_text())
        producer = self.writer.producer
        began_s = time.monotonic()
        self._in_time(
            "send_offsets_to_transaction",
            self.timeout_s,
            lambda timeout_s: producer.send_offsets_to_transaction([spot], self._group, timeout_s),
        )
        failpoint.begin("committing")
        self._in_time("commit_transaction", self.timeout_s, producer.commit_transaction)
        self.begun = False
        self.perhaps_sent_twice = time.monotonic() - began_s > self.sent_once_for_s
        self.receipt = receipt
        failpoint.reach("after_commit")

    def _read_receipt(self) -> tuple[Receipt | None, Any]:
        return read_receipt(self._kafka, self._bucket, self._clients)


class Producers:
    """The transactional producers of one process, by cluster and bucket, kept open between batches."""

    def __init__(self, clients: Clients = client) -> None:
        self._clients = clients
        self._open: PerProcess[tuple[frozenset[tuple[str, str]], Bucket], TransactionalWriter] = PerProcess(
            OPEN_PRODUCERS, TransactionalWriter.close
        )

    def get(self, kafka: Mapping[str, str], bucket: Bucket, defaults: Mapping[str, str]) -> TransactionalWriter:
        """That of the bucket; a new one has the properties `kafka` over `defaults`."""
        key = (frozenset(kafka.items()), bucket)
        return self._open.get(key, lambda: TransactionalWriter({**defaults, **kafka}, bucket, self._clients))

    def discard(self, kafka: Mapping[str, str], bucket: Bucket) -> None:
        """Close that of the bucket, if there is one: the next `get` makes a new one."""
        self._open.discard((frozenset(kafka.items()), bucket))


def _check(delivered: Delivered, written: Mapping[str, int]) -> None:
    expected = sum(written.values())
    if delivered.sent != expected or delivered.acknowledged != expected:
        raise DeliveryFailed(
            ", ".join(written) or "none",
            -1,
            f"{expected} records were to be written, {delivered.sent} were sent, {delivered.acknowledged} "
            "acknowledged; these must be the same, and nothing is committed",
            expected - delivered.acknowledged,
        )


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for topic, count in more.items():
        total[topic] = total.get(topic, 0) + count


def _size(values: Column) -> int:
    if values is None:
        return 0
    size = getattr(values, "nbytes", None)
    return int(size) if size is not None else sum(len(value) for value in values if value is not None)


_producers = Producers()
