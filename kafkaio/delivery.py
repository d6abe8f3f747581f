"""Delivery of a bucket's batch to Kafka, exactly once or at least once.

    at least once    an idempotent producer; the batch counts when the brokers have acknowledged every record
    exactly once     the records stand in transactions of the bucket's own, each of which commits the *receipt*: the
                     offset metadata of a group of the bucket's own, on partition 0 of the output topic

What makes it exactly once is the order: a new producer with the bucket's transactional id, `init_transactions`, and
only then the receipt is read. Initialising fences whatever an earlier attempt still does under that id, and settles
its transaction, so that the receipt read afterwards is the last word. Read before, it may be followed by a commit of
the earlier attempt, and its rows are written twice. The id holds no generation and no batch number: it must fence
attempts of every earlier one.

A producer that had the batch before this one, in this process, is used again without asking: had another one
been initialised since, its next transaction would fail. After any failure the producer is let go, never tried again:
whether a commit that was not answered took place is seen from the receipt by the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkaio import client, failpoint
from kafkaio.bounded import within
from kafkaio.errors import DeliveryFailed, KafkaIOError, KafkaUnavailable
from kafkaio.perprocess import PerProcess
from kafkaio.receipt import Receipt, Standing, needed, standing
from kafkaio.writer import Column, Delivered, TopicWriter, discard_writer, open_writer

log = logging.getLogger("kafkaio.delivery")

PART_BYTES = 64 << 20
WHOLE_BATCH_TIMEOUT_MS = 300_000
OPEN_PRODUCERS = 128  # a process that has more buckets opens one anew for each batch, which costs more than the batch
INIT_TIMEOUT_S = 60.0
_GRACE_S = 2.0
_TAKEN_OVER = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Whose rows are delivered: the bucket of a job, with the topic that its receipt is about."""

    job: str
    number: int
    topic: str

    @property
    def transactional_id(self) -> str:
        return f"{self.job}-{self.number}"

    @property
    def group(self) -> str:
        return f"{self.job}.receipt.{self.number}"

    def __str__(self) -> str:
        return f"bucket {self.number} of job {self.job!r}"


class Delivery(Protocol):
    """One batch of one bucket on its way."""

    def standing(self) -> Standing:
        """What is in of the batch already; those rows must not be written again."""
        ...

    def write(self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column) -> int: ...

    def part_is_full(self) -> bool:
        """It is time for `commit`, although rows will follow."""
        ...

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool) -> Mapping[str, int]:
        """Make what was written since the last commit durable; returns the batch's rows by topic that are in.

        rows      of the batch so far, those that were in already included
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
        return Standing(0, False, {})

    def write(self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column) -> int:
        count = self._writer.write(topic, keys, values, headers, timestamps)
        failpoint.reach("producing")
        return count

    def part_is_full(self) -> bool:
        return False

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool) -> Mapping[str, int]:
        _check(self._writer.flush(), written)
        failpoint.reach("after_commit")
        _add(self._sent, written)
        return self._sent

    def abandon(self) -> None:
        discard_writer(self._kafka)


class ExactlyOnce:
    """Begins to open its producer at once, in the background: it takes as long as fetching the first records.

    in_parts   a large batch goes in several transactions. Whenever it runs again it must then have as many rows, in the
               same order; without it they may differ, as all or none of them are in, and its one transaction may last
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        bucket: Bucket,
        generation: str,
        number: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        *,
        in_parts: bool = True,
    ) -> None:
        self._kafka, self._bucket, self._in_parts = kafka, bucket, in_parts
        self._generation, self._number, self._now_ms = generation, number, now_ms
        self._key = (frozenset(kafka.items()), bucket)
        self._opening: Future[TransactionalWriter] = Future()
        threading.Thread(target=self._open, daemon=True).start()
        self._bytes = 0
        self._sent: dict[str, int] | None = None

    def standing(self) -> Standing:
        found = standing(self._transactions.receipt, self._generation, self._number, str(self._bucket))
        if self._sent is None:
            self._sent = dict(found.sent)
        return found

    def write(self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column) -> int:
        transactions = self._transactions
        transactions.begin()
        count = transactions.writer.write(topic, keys, values, headers, timestamps)
        self._bytes += _size(values)
        failpoint.reach("producing")
        return count

    def part_is_full(self) -> bool:
        return self._in_parts and self._bytes >= PART_BYTES

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool) -> Mapping[str, int]:
        transactions, was = self._transactions, self.standing()
        sent = self._sent = {**(self._sent or {})}
        _add(sent, written)
        now_ms = self._now_ms()
        empty = not transactions.begun and rows == was.rows
        nothing_to_say = empty and rows == 0 and not needed(transactions.receipt, self._generation, now_ms)
        if not was.done and not nothing_to_say:
            transactions.commit(Receipt(self._generation, self._number, rows, done, sent, now_ms), written)
            self._bytes = 0
        if done:
            transactions.handled = (self._generation, self._number)
        return sent

    def abandon(self) -> None:
        _transactions.discard(self._key)

    @property
    def _transactions(self) -> TransactionalWriter:
        return self._opening.result()

    def _open(self) -> None:
        try:
            made = _transactions.get(self._key, self._make)
            if made.used and made.handled != (self._generation, self._number - 1):  # another process may have, since
                _transactions.discard(self._key)
                made = _transactions.get(self._key, self._make)
            made.used, made.handled = True, None
            self._opening.set_result(made)
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._opening.set_exception(error)

    def _make(self) -> TransactionalWriter:
        longer = {} if self._in_parts else {"transaction.timeout.ms": str(WHOLE_BATCH_TIMEOUT_MS)}
        return TransactionalWriter({**longer, **self._kafka}, self._bucket)


class TransactionalWriter:
    """A producer that has fenced all earlier ones of its bucket, and the receipt that stood then.

    used, handled   whether a batch has had it; generation and number of the last one, once that is done

    Raises `KafkaUnavailable`, `ReceiptRefused`, `KafkaIOError`. After any error it must be closed.
    """

    def __init__(self, kafka: Mapping[str, str], bucket: Bucket) -> None:
        self._kafka, self._bucket = kafka, bucket
        self.used = False
        self.handled: tuple[str, int] | None = None
        self.begun = False
        self._stuck = False
        properties = transactional(kafka)
        # After that the brokers have aborted it: a new producer learns sooner what became of it.
        self._timeout_s = int(properties["transaction.timeout.ms"]) / 1000
        self.writer = TopicWriter(properties, bucket.transactional_id)
        try:
            _connect(self.writer, bucket.topic)
            self._in_time("init_transactions", INIT_TIMEOUT_S, self.writer.producer.init_transactions)
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

    def commit(self, receipt: Receipt, written: Mapping[str, int]) -> None:
        """Commit what was written together with the receipt; `written` must be what was acknowledged."""
        self.begin()
        _check(self.writer.flush(), written)
        failpoint.reach("before_commit")
        spot = TopicPartition(self._bucket.topic, 0, receipt.number, metadata=receipt.to_text())
        producer = self.writer.producer
        self._in_time(
            "send_offsets_to_transaction",
            self._timeout_s,
            lambda timeout_s: producer.send_offsets_to_transaction([spot], self._group, timeout_s),
        )
        failpoint.begin("committing")
        self._in_time("commit_transaction", self._timeout_s, producer.commit_transaction)
        self.begun = False
        self.receipt = receipt
        failpoint.reach("after_commit")

    def close(self) -> None:
        if not self._stuck:
            self.writer.close()

    def _read_receipt(self) -> tuple[Receipt | None, Any]:
        """The receipt that stands now, and what a transaction needs to commit the next one."""
        mine = {"group.id": self._bucket.group, "isolation.level": "read_committed"}  # which asks for stable offsets
        consumer = client.consumer({**self._kafka, **mine}, {}, lambda _: None)

        def ask() -> TopicPartition:
            try:
                found = consumer.committed([TopicPartition(self._bucket.topic, 0)], client.REQUEST_TIMEOUT_S)[0]
            except KafkaException as error:
                raise client.translate(error.args[0], "look-up of the receipt", self._bucket.topic) from error
            if found.error is not None:
                raise client.translate(found.error, "look-up of the receipt", self._bucket.topic)
            return found

        try:
            found = client.retried(ask, self._kafka)
            receipt = Receipt.from_text(found.metadata) if found.offset >= 0 and found.metadata else None
            return receipt, consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _in_time(self, what: str, timeout_s: float, call: Callable[[float], object]) -> None:
        """As `_call`, and it returns: librdkafka's own time-out is not kept to where the broker restarts meanwhile.

        A producer that is stuck in such a call cannot be closed either, nor freed: it is left alone.
        """
        try:
            within(timeout_s + _GRACE_S, lambda: self._call(what, lambda: call(timeout_s)))
        except TimeoutError:
            self._stuck = True
            _left_alone.append(self.writer)
            raise KafkaUnavailable(f"{what} of {self._bucket} was not answered in {timeout_s:g} s") from None

    def _call(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            cause = error.args[0]
            told = f"{what} of {self._bucket} failed: {cause.str()} ({cause.name()})"
            if cause.code() in _TAKEN_OVER:
                told += (
                    "; another attempt at the bucket took over, or the transaction was open for longer than "
                    f"`transaction.timeout.ms` ({self._timeout_s * 1000:.0f}): where this goes on, raise it under "
                    "`output.kafka`, or look for a second job of this name"
                )
            raise (KafkaUnavailable(told) if client.is_transient(cause) else KafkaIOError(told)) from error


def settle(kafka: Mapping[str, str], buckets: list[Bucket]) -> None:
    """Fence every earlier writer of these buckets and abort what it left open, as a job does before it begins.

    Readers of committed records wait for an open transaction; without this until it times out.
    """

    def initialise(bucket: Bucket) -> None:
        writer = TopicWriter(transactional(kafka), bucket.transactional_id)
        try:
            _connect(writer, bucket.topic)
            writer.producer.init_transactions(INIT_TIMEOUT_S)
        except KafkaException as error:
            cause = error.args[0]
            raise client.translate(cause, f"init_transactions of {bucket}, writer", bucket.topic) from error
        finally:
            writer.close()

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(initialise, buckets))


def _connect(writer: TopicWriter, topic: str) -> None:
    """Wait until a broker is connected: `init_transactions` that finds none looks again only half a second later.

    The first answer comes from a bootstrap address, which librdkafka then drops for the brokers that it has learnt of;
    the second one comes from one of those.
    """
    for _ in range(2):
        client.learn(writer.producer, topic, INIT_TIMEOUT_S)


def transactional(kafka: Mapping[str, str]) -> dict[str, str]:
    """The user's properties with a time-out for transactions; no record may outlive its transaction."""
    timeout_ms = int(kafka.get("transaction.timeout.ms", client.TRANSACTION_TIMEOUT_MS))
    asked_ms = kafka.get("delivery.timeout.ms", kafka.get("message.timeout.ms", str(timeout_ms)))
    rest = {key: value for key, value in kafka.items() if key not in ("delivery.timeout.ms", "message.timeout.ms")}
    return {
        **rest,
        "transaction.timeout.ms": str(timeout_ms),
        "message.timeout.ms": str(min(int(asked_ms), timeout_ms)),
    }


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


_transactions: PerProcess[tuple[frozenset[tuple[str, str]], Bucket], TransactionalWriter] = PerProcess(
    OPEN_PRODUCERS, TransactionalWriter.close
)
_left_alone: list[TopicWriter] = []
