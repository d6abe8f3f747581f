"""Exactly once, on a real broker: what a reader of committed records sees, whatever an earlier attempt did."""

from __future__ import annotations

from contextlib import closing

import pytest

from teacup.kafka.delivery.delivery import PART_BYTES, AtLeastOnce, ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket, settle
from teacup.kafka.delivery.receipt import Batch, Receipt
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import BatchDiffers, DeliveryFailed, KafkaIOError, ReceiptRefused, TopicMissing
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from tests.support.waiting import wait_until
from tests.teacup.kafka.delivery.attempts import BATCH, attempt, committed, is_settled


def test_a_batch_that_is_tried_again_is_written_once(kafka, bucket):
    """The driver died after the commit and before Spark's own."""
    values = [b"%d" % i for i in range(100)]

    wrote = [attempt(kafka, bucket, 1, values), attempt(kafka, bucket, 1, values)]

    assert wrote == [100, 0]
    assert committed(kafka, bucket.topic) == values


def test_batches_follow_each_other_in_order(kafka, bucket):
    """The producer that committed the last batch is reused."""
    for number in (1, 2, 3):
        attempt(kafka, bucket, number, [b"%d" % number] * 3)

    assert committed(kafka, bucket.topic) == [b"1"] * 3 + [b"2"] * 3 + [b"3"] * 3


def test_a_receipt_is_no_lag_and_one_at_an_earlier_offset_counts_as_well(kafka, bucket, monkeypatch):
    """Tools compare a group's offset with the end of its topic; versions before committed the number of the batch."""
    monkeypatch.setattr("teacup.kafka.delivery.transactional.NO_LAG", 0)
    attempt(kafka, bucket, 1, [b"1"] * 50)
    monkeypatch.undo()

    assert attempt(kafka, bucket, 1, [b"1"] * 50) == 0
    attempt(kafka, bucket, 2, [b"2"] * 50)
    attempt(kafka, bucket, 3, [b"3"])

    spot = (bucket.topic, 0)
    with closing(BrokerLog(bucket.topic, kafka)) as log:
        assert GroupOffsets(bucket.group, kafka).read([spot])[spot] > log.ends()[0].high
    assert committed(kafka, bucket.topic) == [*[b"1"] * 50, *[b"2"] * 50, b"3"]


def test_parts_that_are_in_are_skipped(kafka, bucket):
    """A large batch is written in several transactions; after a crash behind the first, the next attempt continues."""
    values = [b"%d" % i for i in range(10)]
    first = ExactlyOnce(kafka, bucket, BATCH)
    first.write(bucket.topic, None, values[:4], None, [0] * 4)
    first.commit(4, {bucket.topic: 4}, done=False)
    first.write(bucket.topic, None, values[4:7], None, [0] * 3)
    first.abandon()

    wrote = attempt(kafka, bucket, 1, values, parts=2)

    assert wrote == 6
    assert committed(kafka, bucket.topic) == values


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_batch_that_may_differ_when_it_runs_again_goes_in_one_transaction(kafka, bucket, in_parts):
    """Skipping rows by their number requires that the rows are the same each time."""
    delivery = ExactlyOnce(kafka, bucket, BATCH, in_parts=in_parts)

    delivery.write(bucket.topic, None, [bytes(PART_BYTES // 100)] * 101, None, [0] * 101)

    assert delivery.part_is_full() == in_parts
    delivery.abandon()


def test_rows_that_come_slowly_go_in_several_transactions(kafka, bucket):
    """The brokers abort a long transaction: with a slow store a large batch would never be delivered."""
    clock_ms = [0]
    delivery = ExactlyOnce({**kafka, "transaction.timeout.ms": "10000"}, bucket, BATCH, lambda: clock_ms[0])
    due = []

    assert not delivery.written_so_far().done  # its producer is open
    for row in range(4):
        clock_ms[0] += 2_000
        delivery.write(bucket.topic, None, [b"%d" % row], None, [0])
        due.append(delivery.part_is_due())
        if due[-1]:
            delivery.commit(row + 1, {bucket.topic: 2}, done=row == 3)

    assert due == [False, True, False, True]
    assert committed(kafka, bucket.topic) == [b"0", b"1", b"2", b"3"]


def test_rows_by_topic_add_up_over_the_attempts(kafka, bucket):
    """The summary of a batch counts all rows that are in, whichever attempt wrote them."""
    first = ExactlyOnce(kafka, bucket, BATCH)
    first.write(bucket.topic, None, [b"a", b"b"], None, [0, 0])
    first.commit(2, {bucket.topic: 2}, done=False)
    first.abandon()
    second = ExactlyOnce(kafka, bucket, BATCH)
    second.write(bucket.topic, None, [b"c"], None, [0])

    sent = second.commit(3, {bucket.topic: 1}, done=True)

    assert sent == {bucket.topic: 3}


def test_an_output_topic_that_was_deleted_is_named(kafka, bucket, admin):
    """Records to it only time out, which would not point to the topic."""
    writer = TransactionalWriter({**kafka, "transaction.timeout.ms": "3000"}, bucket)
    admin.delete_topics([bucket.topic])[bucket.topic].result(30)

    with pytest.raises(TopicMissing, match=bucket.topic):  # noqa: PT012 - where it is noticed depends on what was sent
        writer.write(bucket.topic, None, [b"row"], None, [0])
        writer.commit(Receipt("g", 1, "d", 1, True), {bucket.topic: 1})

    writer.close()


def test_a_transaction_that_lasts_too_long_is_reported_with_its_remedy(kafka, bucket):
    """The broker aborts it; the next attempt may be just as slow."""
    slow = TransactionalWriter({**kafka, "transaction.timeout.ms": "3000"}, bucket)
    slow.write(bucket.topic, None, [b"row"], None, [0])
    slow.writer.flush()
    wait_until(lambda: is_settled(kafka, bucket.topic), lambda: "the broker leaves the transaction open")

    with pytest.raises(KafkaIOError, match=r"transaction.timeout.ms` \(3000\)"):
        slow.commit(Receipt("g", 1, "d", 1, True), {})

    slow.close()
    assert committed(kafka, bucket.topic) == []


def test_rows_of_several_topics_are_in_together_or_not_at_all(kafka, bucket, topic_factory):
    """Side topics are written in the same transaction."""
    other = topic_factory(1, prefix="other")
    given_up = ExactlyOnce(kafka, bucket, BATCH)
    for topic in (bucket.topic, other):
        given_up.write(topic, None, [b"given up"], None, [0])
    given_up.abandon()
    delivery = ExactlyOnce(kafka, bucket, BATCH)
    for topic in (bucket.topic, other):
        delivery.write(topic, None, [b"row"], None, [0])

    sent = delivery.commit(2, {bucket.topic: 1, other: 1}, done=True)

    assert sent == {bucket.topic: 1, other: 1}
    assert committed(kafka, bucket.topic) == committed(kafka, other) == [b"row"]


def test_a_batch_that_was_planned_again_is_not_taken_for_the_one_that_is_in(kafka, bucket):
    """They have the same number: after a power loss took its plan, the batch reads something else."""
    attempt(kafka, bucket, 1, [b"row"], digest="before")

    with pytest.raises(BatchDiffers, match="another batch 1"):
        attempt(kafka, bucket, 1, [b"row", b"more"], digest="after")

    assert committed(kafka, bucket.topic) == [b"row"]


def test_jobs_of_one_name_with_other_outputs_leave_each_other_alone(kafka, bucket, topic_factory):
    """They used to fence each other for ever."""
    other = OutputBucket(bucket.job, bucket.number, topic_factory(1, prefix="other"))
    mine = TransactionalWriter(kafka, bucket)
    mine.write(bucket.topic, None, [b"mine"], None, [0])

    attempt(kafka, other, 1, [b"its own"])
    mine.commit(Receipt("g", 1, "d", 1, True), {bucket.topic: 1})

    mine.close()
    assert committed(kafka, bucket.topic) == [b"mine"]
    assert committed(kafka, other.topic) == [b"its own"]


def test_a_first_batch_without_rows_leaves_a_receipt(kafka, bucket):
    """Otherwise a lost receipt would look like one that never existed."""
    attempt(kafka, bucket, 1, [])

    assert attempt(kafka, bucket, 2, [b"row"]) == 1


def test_a_lost_receipt_stops_the_bucket(kafka, bucket):
    """Then it is not known what is in the output."""
    with pytest.raises(ReceiptRefused, match="Start a new checkpoint"):
        attempt(kafka, bucket, 2, [b"row"])


def test_a_bucket_may_begin_with_a_later_batch_than_the_job(kafka, bucket):
    """Its partition was added meanwhile. It leaves a receipt even without rows, and is not written twice."""
    first = Batch("g", 7, "d", first=7)

    ExactlyOnce(kafka, bucket, first).commit(0, {}, done=True)

    assert ExactlyOnce(kafka, bucket, first).written_so_far().done
    assert attempt(kafka, bucket, 8, [b"row"]) == 1


def test_later_batches_without_rows_open_no_transaction(kafka, bucket, monkeypatch):
    """A quiet bucket costs nothing; the end of the log does not move."""
    attempt(kafka, bucket, 1, [b"row"])
    log = BrokerLog(bucket.topic, kafka)
    before = log.ends()
    opened = []
    monkeypatch.setattr(TransactionalWriter, "_read_receipt", lambda self: opened.append(self))

    for number in range(2, 6):
        attempt(kafka, bucket, number, [])

    assert log.ends() == before
    assert opened == []  # nor another producer
    log.close()


def test_accounts_that_do_not_add_up_commit_nothing(kafka, bucket):
    """Rows were lost between the join and the producer."""
    delivery = ExactlyOnce(kafka, bucket, BATCH)
    delivery.write(bucket.topic, None, [b"a"], None, [0])

    with pytest.raises(DeliveryFailed, match=r"2 records .*1 were sent"):
        delivery.commit(2, {bucket.topic: 2}, done=True)

    delivery.abandon()
    settle(kafka, [bucket])
    assert is_settled(kafka, bucket.topic)
    assert committed(kafka, bucket.topic) == []


def test_settling_aborts_what_a_dead_job_left_open(kafka, bucket):
    """Readers of committed records wait for an open transaction."""
    dead = TransactionalWriter(kafka, bucket)
    dead.write(bucket.topic, None, [b"half"], None, [0])
    dead.writer.flush()
    assert not is_settled(kafka, bucket.topic)

    settle(kafka, [bucket])

    assert is_settled(kafka, bucket.topic)
    assert committed(kafka, bucket.topic) == []
    dead.close()


def test_at_least_once_writes_again_what_is_tried_again(kafka, bucket):
    """This mode loses nothing and repeats some rows."""
    for _ in range(2):
        delivery = AtLeastOnce(kafka)
        delivery.write(bucket.topic, None, [b"row"], None, [0])
        assert delivery.commit(1, {bucket.topic: 1}, done=True) == {bucket.topic: 1}

    assert committed(kafka, bucket.topic) == [b"row", b"row"]
