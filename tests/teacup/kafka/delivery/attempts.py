"""Attempts at delivering a batch, and what a reader of committed records then sees."""

from __future__ import annotations

from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.read.range_reader import RangeReader
from tests.support.waiting import wait_until

BATCH = Batch("g", 1, "d")
MARKED_WITHIN_S = 30.0  # less than a transaction of the tests may last


def committed(kafka, topic):
    """The values that a reader of committed records sees once no transaction is open.

    A commit is answered before its markers are in all partitions.
    """
    wait_until(lambda: is_settled(kafka, topic), within_s=MARKED_WITHIN_S)
    return visible(kafka, topic)


def visible(kafka, topic):
    """The values that a reader of committed records sees now."""
    log, reader = BrokerLog(topic, kafka), RangeReader(topic, kafka)
    try:
        return [
            value
            for p, ends in log.ends().items()
            for batch in reader.read(p, ends.start, ends.stable)
            for value in batch.column("value").to_pylist()
        ]
    finally:
        log.close()
        reader.close()


def is_settled(kafka, topic):
    """Whether no transaction is open."""
    log = BrokerLog(topic, kafka)
    try:
        return all(ends.stable == ends.high for ends in log.ends().values())
    finally:
        log.close()


def attempt(kafka, bucket, number, values, generation="g", parts=1, digest="d", term=0, keyed=False):
    """One attempt at a batch of these values, as a task makes it; returns how many it wrote.

    keyed   each value is its own key, so that all partitions get some
    """
    delivery = ExactlyOnce(kafka, bucket, Batch(generation, number, digest, term=term))
    try:
        was = delivery.written_so_far()
        rest = [] if was.done else values[was.rows :]
        done = was.rows
        for part in range(parts):
            some = rest[part * len(rest) // parts : (part + 1) * len(rest) // parts]
            if some:
                delivery.write(bucket.topic, some if keyed else None, some, None, [0] * len(some))
            done += len(some)
            last = part == parts - 1
            delivery.commit(len(values) if last else done, {bucket.topic: len(some)} if some else {}, done=last)
        return len(rest)
    except BaseException:
        delivery.abandon()
        raise
