"""An attempt that was overtaken is fenced, and says so, whatever it does next."""

from __future__ import annotations

from contextlib import suppress

import pytest
from confluent_kafka import TopicPartition

from teacup.kafka.delivery.fencing import settle
from teacup.kafka.delivery.receipt import Receipt, written_so_far
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import Fenced, KafkaIOError
from tests.teacup.kafka.delivery.attempts import BATCH, attempt, committed


def test_an_attempt_that_is_still_writing_is_fenced(kafka, bucket):
    """A zombie: it holds an open transaction while the next attempt delivers the batch, and then continues."""
    zombie = TransactionalWriter(kafka, bucket)
    zombie.write(bucket.topic, None, [b"zombie"], None, [0])
    zombie.writer.flush()

    attempt(kafka, bucket, 1, [b"row"])

    with pytest.raises(KafkaIOError, match="took over"):
        zombie.commit(Receipt("g", 1, "d", 1, True), {})
    zombie.close()
    assert committed(kafka, bucket.topic) == [b"row"]


def test_an_attempt_that_is_fenced_between_its_records_says_so(kafka, bucket):
    """Whatever it is doing: handing over records, waiting for them, closing."""
    zombie = TransactionalWriter(kafka, bucket)
    zombie.write(bucket.topic, None, [b"zombie"] * 1_000, None, [0] * 1_000)

    attempt(kafka, bucket, 1, [b"row"])

    def go_on():
        for _ in range(20):
            zombie.write(bucket.topic, None, [b"zombie"] * 100_000, None, [0] * 100_000)
            zombie.commit(Receipt("g", 1, "d", 1, True), {})

    for _ in range(2):
        with pytest.raises(Fenced, match="took over"):
            go_on()
    zombie.close()
    assert committed(kafka, bucket.topic) == [b"row"]


def _sends(zombie, topic):
    spot = TopicPartition(topic, 0, 1, metadata="")
    zombie._call("send", lambda: zombie.writer.producer.send_offsets_to_transaction([spot], zombie._group, 10))


def _commits(zombie, topic):
    zombie._call("commit", lambda: zombie.writer.producer.commit_transaction(10))


@pytest.mark.parametrize(
    "path",
    [
        lambda zombie, topic: zombie.write(topic, None, [b"more"], None, [0]),
        lambda zombie, topic: zombie._call("flush", zombie.writer.flush),
        _sends,
        _commits,
    ],
    ids=["write", "flush", "send_offsets", "commit_transaction"],
)
@pytest.mark.parametrize("unsent", [True, False], ids=["records on their way", "all acknowledged"])
def test_whatever_a_fenced_attempt_does_next_says_so_with_the_same_advice(kafka, bucket, path, unsent):
    """Each call raises an error of its own for it."""
    zombie = TransactionalWriter(kafka, bucket)
    zombie.write(bucket.topic, None, [b"zombie"], None, [0])
    if not unsent:
        zombie.writer.flush()
    settle(kafka, [bucket])

    with pytest.raises(Fenced, match="second job"):  # noqa: PT012 - a write alone is reported later
        path(zombie, bucket.topic)
        zombie.commit(Receipt("g", 1, "d", 1, True), {})

    zombie.close()


def test_a_begin_after_fencing_is_reported_when_something_is_sent(kafka, bucket):
    """librdkafka begins without asking the broker."""
    zombie = TransactionalWriter(kafka, bucket)
    settle(kafka, [bucket])

    with pytest.raises(Fenced, match="second job"):
        zombie.commit(Receipt("g", 1, "d", 0, True), {})

    zombie.close()


@pytest.mark.parametrize(("fences_first", "rows"), [(True, [b"row"]), (False, [b"row", b"row"])])
def test_reading_the_receipt_before_fencing_makes_duplicates_and_after_it_does_not(kafka, bucket, fences_first, rows):
    """The obvious order is wrong: a commit of the previous attempt may follow the read."""
    earlier = TransactionalWriter(kafka, bucket)
    earlier.write(bucket.topic, None, [b"row"], None, [0])

    def earlier_goes_on():
        """It commits at the worst moment: when the next attempt has just read the receipt."""
        with suppress(KafkaIOError):  # it is fenced
            earlier.commit(Receipt("g", 1, "d", 1, True), {bucket.topic: 1})

    class Overtaken(TransactionalWriter):
        def _read_receipt(self):
            read = super()._read_receipt()
            earlier_goes_on()
            return read

    if fences_first:
        writer = Overtaken(kafka, bucket)
        receipt = writer.receipt
    else:
        receipt, _ = earlier._read_receipt()
        earlier_goes_on()
        writer = TransactionalWriter(kafka, bucket)

    if not written_so_far(receipt, BATCH, "bucket").done:
        writer.write(bucket.topic, None, [b"row"], None, [0])
        writer.commit(Receipt("g", 1, "d", 1, True), {bucket.topic: 1})

    writer.close()
    earlier.close()
    assert committed(kafka, bucket.topic) == rows
