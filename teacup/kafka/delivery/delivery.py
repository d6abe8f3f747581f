"""Delivers a bucket's batch to Kafka, exactly once or at least once.

    at least once    an idempotent producer; the batch counts once the brokers have acknowledged every record
    exactly once     records are written in the bucket's own transactions, each of which commits the *receipt*: the
                     offset metadata of the bucket's own group, on partition 0 of the output topic

The order makes it exactly once: a new producer with the bucket's transactional id calls `init_transactions`, and only
then is the receipt read. Initialising fences whatever an earlier attempt still does under that id, and settles its
transaction, so the receipt is final. If it were read before, the earlier attempt could still commit, and its rows would
be written twice. The id contains no generation and no batch number, as it must fence attempts of all earlier ones.
`teacup.kafka.delivery.claim` has what a job does before its first batch.

A producer that handled the preceding batch in this process is reused without reading the receipt again: if another
producer has been initialised since, its next transaction fails. After any failure the producer is closed and never
reused. If a commit got no answer, the next producer learns from the receipt whether it took place.

Nor is a producer reused after a commit that librdkafka may have sent twice: a commit names its producer but not its
transaction (before KIP-890), so if the first of the two arrives late, it would end the next transaction half-way. Nor
after a connection was lost: librdkafka may wait for a coordinator that is gone, despite its time-out (its issues 5511
and 5456).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from teacup.base.now import wall_ms
from teacup.base.process import begun
from teacup.kafka.delivery.failpoints import failpoint
from teacup.kafka.delivery.fencing import OutputBucket
from teacup.kafka.delivery.receipt import NOTHING_IN, Batch, Receipt, WrittenSoFar, needed, written_so_far
from teacup.kafka.delivery.transactional import Producers, TransactionalWriter, producers_of_process
from teacup.kafka.write.writer import Column, discard_writer, open_writer

PART_BYTES = 64 << 20
PART_OF_TIMEOUT = 0.25


class Delivery(Protocol):
    """The delivery of one batch of one bucket."""

    def written_so_far(self) -> WrittenSoFar:
        """Returns what of the batch is already in the output; those rows must not be written again."""
        ...

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        """Hands over records, as `TopicWriter.write`.

        size   the bytes of keys, values and headers; None: computed here, without headers and texts
        """
        ...

    def part_is_full(self) -> bool:
        """Returns whether to `commit` before more rows are written; if none follow, this part is the last one."""
        ...

    def part_is_due(self, *, gap: bool = False) -> bool:
        """Returns whether to `commit` now, as more rows may come too late; gap: much later."""
        ...

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        """Makes what was written since the last commit durable. Returns the batch's rows in the output, by topic.

        rows      of the batch so far, including those that were already in the output
        reached   what the last of these rows is about, for `WrittenSoFar.check_reached`
        written   by topic, since the last commit: compared with what was acknowledged, before anything commits
        """
        ...

    def abandon(self) -> None:
        """Gives up after a failure: nothing of the open part may count."""
        ...


class AtLeastOnce:
    """Delivers at least once: what a failed attempt wrote stays in the topic, and is written again."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._writer = open_writer(kafka)
        self._sent: dict[str, int] = {}

    def written_so_far(self) -> WrittenSoFar:
        return NOTHING_IN

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        count = self._writer.write(topic, keys, values, headers, timestamps)
        failpoint("producing")
        return count

    def part_is_full(self) -> bool:
        return False

    def part_is_due(self, *, gap: bool = False) -> bool:
        return False

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        self._writer.flush().check(written)
        if any(written.values()):
            failpoint("after_commit")
        _add(self._sent, written)
        return self._sent

    def abandon(self) -> None:
        discard_writer(self._kafka)


class ExactlyOnce:
    """Delivers exactly once. Opens its producer at once, in the background: that takes as long as the first fetch.

    in_parts   split a large or slow batch into several transactions; each rerun must then give the same number of rows
               in the same order. Otherwise rows may differ, as all or none of them are in the output, but the single
               transaction may take long
    producers  None: this process's producers
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        bucket: OutputBucket,
        batch: Batch,
        now_ms: Callable[[], int] = wall_ms,
        *,
        in_parts: bool = True,
        producers: Producers | None = None,
    ) -> None:
        self._kafka, self._bucket, self._in_parts = kafka, bucket, in_parts
        self._batch, self._now_ms = batch, now_ms
        self._producers = producers or producers_of_process
        self._bytes, self._committed_ms = 0, now_ms()  # or opened: rows that waited for that were not slow
        self._opening = self._opened()
        self._sent: dict[str, int] | None = None

    def written_so_far(self) -> WrittenSoFar:
        written = written_so_far(self._transactions.receipt, self._batch, str(self._bucket))
        if self._sent is None:
            self._sent = dict(written.sent)
        return written

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        count = self._transactions.write(topic, keys, values, headers, timestamps)
        self._bytes += _size(keys) + _size(values) if size is None else size
        failpoint("producing")
        return count

    def part_is_full(self) -> bool:
        """Decides by size."""
        return self._in_parts and self._bytes >= PART_BYTES

    def part_is_due(self, *, gap: bool = False) -> bool:
        """Decides by the gap and by time: after slow rows, others may come after the time-out."""
        since_ms = self._now_ms() - self._committed_ms
        slow = since_ms > PART_OF_TIMEOUT * 1_000 * self._transactions.timeout_s
        return self._in_parts and self._transactions.begun and (slow or gap)

    def commit(self, rows: int, written: Mapping[str, int], *, done: bool, reached: str = "") -> Mapping[str, int]:
        transactions, was = self._transactions, self.written_so_far()
        sent = self._sent = {**(self._sent or {})}
        _add(sent, written)
        now_ms = self._now_ms()
        empty = not transactions.begun and rows == was.rows
        nothing_to_say = empty and rows == 0 and not needed(transactions.receipt, now_ms)
        if not was.done and not nothing_to_say:
            of = self._batch
            receipt = Receipt(of.generation, of.number, of.digest, rows, done, sent, now_ms, reached, of.term)
            transactions.commit(receipt, written)
            self._bytes, self._committed_ms = 0, self._now_ms()
        if transactions.perhaps_sent_twice:
            self._producers.discard(self._kafka, self._bucket)
            if not done:
                self._opening = self._opened()
        elif done:
            transactions.kept, transactions.handled = True, (self._batch.generation, self._batch.number)
        return sent

    def abandon(self) -> None:
        self._producers.discard(self._kafka, self._bucket)

    @property
    def _transactions(self) -> TransactionalWriter:
        return self._opening.result()

    def _opened(self) -> Future[TransactionalWriter]:
        return begun(self._open)

    def _open(self) -> TransactionalWriter:
        before = self._batch.before
        made = self._producers.get(self._kafka, self._bucket, self._in_parts, before)
        # Another process may have handled a batch since, or a coordinator may have gone.
        if made.handled != before or made.connections.has_lost_one:
            self._producers.discard(self._kafka, self._bucket)
            made = self._producers.get(self._kafka, self._bucket, self._in_parts, before)
        made.handled = None
        self._committed_ms = self._now_ms()
        return made


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for topic, count in more.items():
        total[topic] = total.get(topic, 0) + count


def _size(values: Any) -> int:
    if values is None:
        return 0
    size = getattr(values, "nbytes", None)
    return int(size) if size is not None else sum(len(value) for value in values if value is not None)
