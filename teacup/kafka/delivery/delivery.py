"""Delivers a bucket's batch to Kafka, exactly once or at least once.

    at least once    an idempotent producer; the batch counts once the brokers have acknowledged every record
    exactly once     records are written in the bucket's own transactions, each of which commits the *receipt*: the
                     offset metadata of the bucket's own group, on partition 0 of the output topic

The order makes it exactly once: a new producer with the bucket's transactional id calls `init_transactions`, and only
then is the receipt read. Initialising fences whatever an earlier attempt still does under that id, and settles its
transaction, so the receipt read afterwards is final. If it were read before, a commit of the earlier attempt could
follow, and its rows would be written twice. The id contains no generation and no batch number: it must fence attempts
of all earlier ones. What a job does before its first batch is in `teacup.kafka.delivery.claim`.

A producer that handled the preceding batch in this process is reused without reading the receipt again: had another
producer been initialised since, its next transaction would fail. After any failure the producer is closed and never
reused. Whether a commit that got no answer took place is seen by the next producer, from the receipt.

Nor is a producer reused after a commit that librdkafka may have sent twice. A commit names its producer but not its
transaction (before KIP-890): if the first of the two arrives late, it would end the next transaction half-way. Nor
after a connection was lost: librdkafka may wait for a coordinator that is not there any more, whatever time it was
given (its issues 5511 and 5456). One that loses it in a transaction is given up once nothing moves.

At its failpoints a crash test can stop the process in order to kill it there; they cost nothing otherwise.

    TEACUP_FAILPOINTS=folder    the first process to reach the point named in folder/armed removes that file, writes
                                its pid to folder/reached, and waits until folder/go exists

    before_produce   the rows are computed, no transaction has begun
    producing        some rows have been handed to the producer
    before_commit    all rows are acknowledged, the receipt has not been sent
    committing       nothing waits here: a thread reports the point while the commit is under way
    after_commit     rows are committed, there were some, and Spark does not know it yet

A job without transactions (a feeder, `kind: dedup`) has the first two and the last, where all rows are acknowledged.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import TopicPartition

from teacup.base.now import wall_ms
from teacup.base.process import PerProcess, begun
from teacup.kafka import client
from teacup.kafka.delivery.fencing import AT_ONCE, COMMIT, FencedProducer, OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import NO_LAG, NOTHING_IN, Batch, Receipt, WrittenSoFar, needed, written_so_far
from teacup.kafka.errors import DeliveryFailed, KafkaIOError
from teacup.kafka.write.producer import Clients, ConnectionWatch
from teacup.kafka.write.writer import Column, Delivered, discard_writer, open_writer

FAILPOINTS = ("before_produce", "producing", "before_commit", "committing", "after_commit")
"""In the order of a delivery."""

PART_BYTES = 64 << 20
PART_OF_TIMEOUT = 0.25
WHOLE_BATCH_TIMEOUT_MS = 300_000
OPEN_PRODUCERS = 128  # a process with more buckets opens a new one for each batch, which costs more than the batch
_STOPPED_AT_MOST_S = 660.0  # longer than a test waits for the attempt that takes over

_failpoints = os.environ.get("TEACUP_FAILPOINTS")


class Delivery(Protocol):
    """The delivery of one batch of one bucket."""

    def written_so_far(self) -> WrittenSoFar:
        """Returns what of the batch is already in the output; those rows must not be written again."""
        ...

    def write(
        self, topic: str, keys: Column, values: Column, headers: Column, timestamps: Column, size: int | None = None
    ) -> int:
        """Hands over records, as `TopicWriter.write`.

        size   the bytes of keys, values and headers; None: computed here, without headers, and not of texts
        """
        ...

    def part_is_full(self) -> bool:
        """Returns whether to `commit` before more rows are written; without more, this part goes with the last ones."""
        ...

    def part_is_due(self, *, gap: bool = False) -> bool:
        """Returns whether to `commit` now: more rows may come too late; gap: they may come much later."""
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
        _check(self._writer.flush(), written)
        if any(written.values()):
            failpoint("after_commit")
        _add(self._sent, written)
        return self._sent

    def abandon(self) -> None:
        discard_writer(self._kafka)


class ExactlyOnce:
    """Delivers exactly once. Opens its producer at once, in the background: that takes as long as the first fetch.

    in_parts   a large or slow batch is split into several transactions. Each rerun must then give the same number of
               rows in the same order. Otherwise the rows may differ, because all or none of them are in the output;
               the single transaction may take long
    producers  None: those of this process
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
        found = written_so_far(self._transactions.receipt, self._batch, str(self._bucket))
        if self._sent is None:
            self._sent = dict(found.sent)
        return found

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
        """Decides by the gap, and by time: slow rows are followed by others that may come after the time-out."""
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
            transactions.handled = (self._batch.generation, self._batch.number)
        return sent

    def abandon(self) -> None:
        self._producers.discard(self._kafka, self._bucket)

    @property
    def _transactions(self) -> TransactionalWriter:
        return self._opening.result()

    def _opened(self) -> Future[TransactionalWriter]:
        return begun(self._open)

    def _open(self) -> TransactionalWriter:
        before = (self._batch.generation, self._batch.number - 1)
        made = self._producers.get(self._kafka, self._bucket, self._in_parts)
        # Another process may have handled a batch since, or a coordinator may have gone.
        if (made.used and made.handled != before) or made.connections.has_lost_one:
            self._producers.discard(self._kafka, self._bucket)
            made = self._producers.get(self._kafka, self._bucket, self._in_parts)
        made.kept, made.used, made.handled = made.used, True, None
        self._committed_ms = self._now_ms()
        return made


class TransactionalWriter(FencedProducer):
    """A bucket's producer, and the receipt it found after it had fenced all earlier ones.

    used, handled       whether a batch has used it; generation and number of the last batch, once that is done
    kept                whether a batch used it before the current one: then a lost connection is a reason to give it up
    connections         what was lost since the last commit, or since it was opened
    perhaps_sent_twice  a request of the last commit may have been: the producer must not begin another transaction

    Raises `KafkaUnavailable`, `Fenced`, `ReceiptRefused`, `KafkaIOError`. After any error it must be closed.
    """

    def __init__(self, kafka: Mapping[str, str], bucket: OutputBucket, clients: Clients = client) -> None:
        super().__init__(kafka, bucket, clients)
        self.used = self.kept = False
        self.handled: tuple[str, int] | None = None
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
            _check(self.writer.flush(self._gives_up), written)
        failpoint("before_commit")
        spot = TopicPartition(self._bucket.topic, 0, NO_LAG + receipt.number, metadata=receipt.to_text())
        producer = self.writer.producer
        began_s = time.monotonic()
        self._in_time(
            "send_offsets_to_transaction",
            self.timeout_s,
            lambda timeout_s: producer.send_offsets_to_transaction([spot], self._group, timeout_s),
            lambda: self.connections.is_stuck(time.monotonic(), "receipt"),  # this call keeps to no time-out
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
        self._leave_alone()  # closing it would wait, too
        return True

    def _read_receipt(self) -> tuple[Receipt | None, Any]:
        return read_receipt(self._kafka, self._bucket, self._clients)


_Key = tuple[frozenset[tuple[str, str]], OutputBucket]


def _key(kafka: Mapping[str, str], bucket: OutputBucket) -> _Key:
    return frozenset(kafka.items()), bucket


class Producers:
    """The transactional producers of one process, by cluster and bucket, kept open between batches."""

    def __init__(self, clients: Clients = client) -> None:
        self._clients = clients
        self._open: PerProcess[_Key, TransactionalWriter] = PerProcess(OPEN_PRODUCERS, TransactionalWriter.close)

    def get(self, kafka: Mapping[str, str], bucket: OutputBucket, in_parts: bool) -> TransactionalWriter:
        """Returns the bucket's producer. A new one gets the properties `kafka`, with more time if not in parts."""
        longer = {} if in_parts else {"transaction.timeout.ms": str(WHOLE_BATCH_TIMEOUT_MS)}
        properties = {**longer, **kafka}
        return self._open.get(_key(kafka, bucket), lambda: TransactionalWriter(properties, bucket, self._clients))

    def open_ahead(self, kafka: Mapping[str, str], buckets: Iterable[OutputBucket], in_parts: bool) -> None:
        """Begins to open the producers of buckets that come later, a few at a time: each takes a few answers.

        Whatever fails is tried again by `get`.
        """
        missing = (bucket for bucket in buckets if _key(kafka, bucket) not in self._open)
        waiting = deque(islice(missing, OPEN_PRODUCERS - 1))

        def open_each() -> None:
            while waiting:
                with suppress(IndexError, KafkaIOError):
                    self.get(kafka, waiting.popleft(), in_parts)

        for _ in range(min(len(waiting), AT_ONCE)):
            begun(open_each)

    def discard(self, kafka: Mapping[str, str], bucket: OutputBucket) -> None:
        """Closes the bucket's producer, if there is one; the next `get` opens a new one."""
        self._open.discard(_key(kafka, bucket))


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


def _size(values: Any) -> int:
    if values is None:
        return 0
    size = getattr(values, "nbytes", None)
    return int(size) if size is not None else sum(len(value) for value in values if value is not None)


def failpoint(point: str) -> None:
    """Stops here if a test asks for it."""
    if _failpoints is not None and _claimed(Path(_failpoints), point):
        deadline = time.monotonic() + _STOPPED_AT_MOST_S
        while not (Path(_failpoints) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


def failpoint_begins(point: str) -> None:
    """Reports to a test that this point begins, and continues."""
    if _failpoints is not None:
        threading.Thread(target=_claimed, args=(Path(_failpoints), point), daemon=True).start()


def _claimed(folder: Path, point: str) -> bool:
    """Returns whether this process is the one that stops. The file gets its final name only once it is complete."""
    armed = folder / "armed"
    try:
        if armed.read_text() != point:
            return False
        mine = folder / f"claimed-{os.getpid()}"
        armed.rename(mine)
    except FileNotFoundError:
        return False
    mine.write_text(str(os.getpid()))
    mine.rename(folder / "reached")
    return True


producers_of_process = Producers()
