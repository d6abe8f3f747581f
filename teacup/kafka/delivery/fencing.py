"""A bucket's transactional producer, and the receipt that its transactions write.

Once initialised, a producer has fenced every earlier one of its bucket and settled its transaction. Its calls are
bounded in time. A producer that is stuck in a call can be neither closed nor freed: it is abandoned, and the bucket's
next one fences it.

The receipt is the offset metadata of the bucket's group, on partition 0 of the output topic.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from teacup.base.process import within
from teacup.kafka import client
from teacup.kafka.client import said_with_name
from teacup.kafka.delivery.receipt import Receipt
from teacup.kafka.errors import (
    AccessRefused,
    DeliveryFailed,
    Fenced,
    KafkaIOError,
    KafkaUnavailable,
    ProducerFailed,
    TopicMissing,
)
from teacup.kafka.grants import Grant
from teacup.kafka.log.groups import committed
from teacup.kafka.write import clients as real
from teacup.kafka.write.producer import Clients
from teacup.kafka.write.writer import TopicWriter

log = logging.getLogger("teacup.kafka.delivery")

AT_ONCE = 8
"""How many buckets' producers or receipts are opened at the same time."""
INIT_TIMEOUT_S = 60.0
RETRY_BACKOFF_MS = 250
_LEAST_OF_BACKOFF = 0.8  # librdkafka varies it by 20 %
_GRACE_S = 2.0
TAKEN_OVER = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
    }
)
COMMIT = "commit_transaction"
TAKEN_OVER_IN_COMMIT = TAKEN_OVER | {KafkaError.UNKNOWN}
"""A coordinator that is fencing a producer may answer its commit with UNKNOWN."""

PREFIX = "teacup."
"""Prefix of all transactional ids and receipt groups, for ACLs. Job and topic follow: only starts of one job meet."""


_left_alone: list[TopicWriter] = []


@dataclass(frozen=True, slots=True)
class OutputBucket:
    """A job's bucket whose rows are delivered, and the topic of its receipt.

    others   the other topics that its transactions may write to, checked for replicas if one cannot be ended

    Its transactional id, also the name of its receipt's group, contains neither generation nor batch, as it must fence
    attempts of all earlier ones.
    """

    job: str
    number: int
    topic: str
    others: tuple[str, ...] = field(default=(), compare=False)

    @property
    def transactional_id(self) -> str:
        """The same for all generations and batches of this bucket."""
        return f"{PREFIX}{self.job}/{self.topic}/{self.number}"

    @property
    def group(self) -> str:
        """The consumer group whose offset metadata is the receipt."""
        return self.transactional_id

    @property
    def grants(self) -> tuple[Grant, Grant]:
        """The grants that a user needs for the receipts and transactions of all buckets of the job."""
        prefix = f"{PREFIX}{self.job}/"
        return Grant("group", prefix, ("Read",), True), Grant("transactional-id", prefix, ("Write",), True)

    def __str__(self) -> str:
        return f"bucket {self.number} of job {self.job!r} to {self.topic!r}"


class FencedProducer:
    """A producer initialised with its bucket's transactional id: earlier producers with that id can no longer write.

    timeout_s        the brokers abort a transaction after this time
    sent_once_for_s  a request that was answered within this time was sent only once, as librdkafka waits longer before
                     it repeats one

    Raises `KafkaUnavailable`, `KafkaIOError`. After any error it must be closed.
    """

    def __init__(self, kafka: Mapping[str, str], bucket: OutputBucket, clients: Clients = real) -> None:
        self._kafka, self._bucket, self._clients = kafka, bucket, clients
        self._stuck = False
        properties = transactional(kafka)
        self.timeout_s = int(properties["transaction.timeout.ms"]) / 1000
        self.sent_once_for_s = _LEAST_OF_BACKOFF * int(properties["retry.backoff.ms"]) / 1000
        self.writer = TopicWriter(properties, bucket.transactional_id, clients)
        try:
            self._connect()
            self._in_time("init_transactions", INIT_TIMEOUT_S, self.writer.producer.init_transactions)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the producer and aborts its open transaction; a stuck producer is left alone."""
        if not self._stuck:
            self.writer.close()

    def _leave_alone(self) -> None:
        """Makes `close` do nothing: the bucket's next producer ends the transaction."""
        if not self._stuck:
            self._stuck = True
            _left_alone.append(self.writer)

    def _connect(self) -> None:
        """Waits until a broker is connected, because without one `init_transactions` retries only half a second later.

        The first answer comes from a bootstrap address, which librdkafka then drops for the brokers that it has learnt
        about; the second from one of those.
        """
        for _ in range(2):
            client.learn(self.writer.producer, self._bucket.topic, INIT_TIMEOUT_S)

    def _in_time(
        self,
        what: str,
        timeout_s: float,
        call: Callable[[float], object],
        gives_up: Callable[[], bool] | None = None,
    ) -> None:
        """Does `_call` but always returns in time: librdkafka exceeds its time-out if the broker restarts meanwhile."""
        began_s = time.monotonic()
        try:
            within(timeout_s + _GRACE_S, lambda: self._call(what, lambda: call(timeout_s)), gives_up)
        except TimeoutError:
            self._leave_alone()
            took_s = time.monotonic() - began_s
            self._check_replicas()
            raise KafkaUnavailable(f"{what} of {self._bucket} was not answered in {took_s:.0f} s") from None

    def _call(self, what: str, call: Callable[[], object]) -> None:
        with self._errors_translated(what):
            call()

    @contextmanager
    def _errors_translated(self, doing: str) -> Iterator[None]:
        """Translates all errors of the producer: the one place that decides what they mean and what to do."""
        try:
            yield
        except KafkaException as error:
            raise self._translated(error.args[0], doing) from error
        except (ProducerFailed, DeliveryFailed) as error:
            if (self.writer.failed_with | self._fatal()) & TAKEN_OVER:
                raise self._fenced(f"{doing} of {self._bucket} failed: {error}") from error
            if isinstance(error, DeliveryFailed) and self.writer.failed_with:
                self._check_topic(error.topic)
                if KafkaError._MSG_TIMED_OUT in self.writer.failed_with:
                    self._warn_of_the_timeout()
            raise

    def _translated(self, error: KafkaError, doing: str) -> KafkaIOError:
        message = f"{doing} of {self._bucket} failed: {said_with_name(error)}"
        taken_over = TAKEN_OVER_IN_COMMIT if doing == COMMIT else TAKEN_OVER
        if ({error.code()} | self.writer.failed_with | self._fatal()) & taken_over:
            return self._fenced(message)
        if client.is_missing(error):
            return TopicMissing(self._bucket.topic)
        if error.code() == KafkaError.CONCURRENT_TRANSACTIONS or client.is_transient(error):
            self._check_replicas()
        return access_refused(self._bucket, error) or client.failure(error, message)

    def _fatal(self) -> set[int]:
        """Returns the code of the error that ended the producer, if one has.

        Most calls only report that there was one (`_FATAL`); transactional calls give its code. Beginning a transaction
        does no harm, as the producer is then closed.
        """
        try:
            self.writer.producer.begin_transaction()
        except KafkaException as error:
            return {error.args[0].code()}
        return set()

    def _fenced(self, message: str) -> Fenced:
        return Fenced(
            f"{message}; another attempt at the bucket took over, or the transaction was open for longer than "
            f"`transaction.timeout.ms` ({self.timeout_s * 1000:.0f}): if this continues, raise it under "
            "`output.kafka`, or look for a second job of this name"
        )

    def _warn_of_the_timeout(self) -> None:
        log.warning(
            "%s: the brokers did not acknowledge all records within transaction.timeout.ms (%d); the batch is tried "
            "again. If this continues, raise it under `output.kafka`",
            self._bucket,
            self.timeout_s * 1000,
        )

    def _check_replicas(self) -> None:
        """Raises `NotEnoughReplicas` if a written topic, or a coordinator's, has too few."""
        if (why := self.writer.why_not_taken(self._bucket.topic, *self._bucket.others)) is not None:
            raise why

    def _check_topic(self, topic: str) -> None:
        """Raises `TopicMissing` if the topic was deleted, as records for it would only time out."""
        try:
            topic_metadata = self.writer.producer.list_topics(topic, client.LEARN_TIMEOUT_S).topics[topic]
        except KafkaException:
            return  # the first failure is reported
        if topic_metadata.error is not None and client.is_missing(topic_metadata.error):
            raise TopicMissing(topic)


def access_refused(bucket: OutputBucket, error: KafkaError) -> AccessRefused | None:
    """Returns the error that names the missing ACL; None if the broker refused something else, or nothing."""
    group, transactions = bucket.grants
    needed = {
        KafkaError.GROUP_AUTHORIZATION_FAILED: group,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: transactions,
    }.get(error.code())
    if needed is None:
        return None
    return AccessRefused(f"{bucket}: the broker refuses the user ({error.name()}): grant {needed}")


def settle(kafka: Mapping[str, str], buckets: Sequence[OutputBucket], clients: Clients = real) -> None:
    """Fences every earlier writer of these buckets and aborts its open transaction, as a job does before it begins.

    Otherwise readers of committed records would wait until that transaction times out.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda bucket: FencedProducer(kafka, bucket, clients).close(), buckets))


def transactional(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the user's properties, with a transaction time-out that no record outlives.

    The pause before a request is repeated is longer than most commits take (see `FencedProducer`).
    """
    timeout_ms = int(kafka.get("transaction.timeout.ms", client.TRANSACTION_TIMEOUT_MS))
    asked_ms = client.delivery_timeout_ms(kafka, timeout_ms)
    rest = {key: value for key, value in kafka.items() if key not in ("delivery.timeout.ms", "message.timeout.ms")}
    return {
        "retry.backoff.ms": str(RETRY_BACKOFF_MS),
        **rest,
        "transaction.timeout.ms": str(timeout_ms),
        "message.timeout.ms": str(min(asked_ms, timeout_ms)),
    }


def read_receipt(kafka: Mapping[str, str], bucket: OutputBucket, clients: Clients = real) -> tuple[Receipt | None, Any]:
    """Returns the current receipt, and what a transaction needs to commit the next one.

    Raises `KafkaUnavailable`, `ReceiptRefused`, `KafkaIOError`.
    """
    consumer = clients.consumer(client.of_group(kafka, bucket.group), {}, lambda _: None)

    def ask() -> TopicPartition:
        try:
            (partition,) = committed(consumer, [TopicPartition(bucket.topic, 0)])
        except KafkaException as error:
            raise _translated(error.args[0], bucket) from error
        if partition.error is not None:
            raise _translated(partition.error, bucket)
        return partition

    try:
        committed_at = client.retried(ask, kafka)
        receipt = (
            Receipt.from_text(committed_at.metadata) if committed_at.offset >= 0 and committed_at.metadata else None
        )
        return receipt, consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _translated(error: KafkaError, bucket: OutputBucket) -> KafkaIOError:
    return access_refused(bucket, error) or client.translate(error, "look-up of the receipt", bucket.topic)
