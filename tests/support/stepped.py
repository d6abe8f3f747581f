"""A consumer that is stepped by hand, and what the collector sees of it on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing

from confluent_kafka import Consumer, Producer, TopicPartition

from datadelay.collector.observe import observe
from datadelay.collector.reports import Rules, submission
from datadelay.model import Submission
from datadelay.positions.group import ConsumerGroup
from teacup.base.now import wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from teacup.kafka.records.record import TimeOf

DEADLINE_S = 60.0


def produce(
    kafka: Mapping[str, str], topic: str, times_ms: Sequence[int], partition: int = 0, *, key: bytes | None = None
) -> None:
    """Produce a record for each time, which is both Kafka's timestamp and in the payload."""
    producer = Producer({**kafka, "linger.ms": 0})
    for number, at in enumerate(times_ms):
        producer.produce(
            topic, b'{"at": %d}' % at, key or b"k%d" % number, partition, timestamp=at if at > 0 else wall_ms()
        )
    assert producer.flush(DEADLINE_S) == 0


class Stepped:
    """A feeder with its own group; it reads on request, and commits what it has read."""

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.group = f"feeder-{uuid.uuid4().hex[:8]}"
        self._offsets = GroupOffsets(self.group, kafka)
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )

    def read(self, partition: int, count: int) -> list[int]:
        """Read up to `count` more records of a partition and commit; returns their times. Stops at the end."""
        begin = self._offsets.read([(self.topic, partition)])[self.topic, partition] or 0
        self._consumer.assign([TopicPartition(self.topic, partition, begin)])
        times: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(times) < count:
            assert time.monotonic() < deadline, f"{self.topic}-{partition} gives nothing"
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                break
            times.append(message.timestamp()[1])
        reached = self._consumer.position([TopicPartition(self.topic, partition)])[0].offset
        self.commit(partition, max(reached, begin))  # if nothing was read yet, the position is negative
        return times

    def commit(self, partition: int, offset: int) -> None:
        """Commit this position, unchecked."""
        self._offsets.commit({(self.topic, partition): offset})

    def collected(self, rules: Rules, time_path: str = "kafka") -> Submission:
        """What a collector would submit now."""
        positions = ConsumerGroup(self.group, self.kafka)
        with closing(BrokerLog(self.topic, self.kafka, TimeOf(time_path))) as log:
            seen = observe(log, positions, rules, wall_ms)
        return submission(
            consumer="feeder",
            topic=self.topic,
            listed_ms=seen.listed_ms,
            generation=seen.generation,
            store_generation=None,
            partitions=seen.partitions,
            rules=rules,
        )

    def close(self) -> None:
        self._consumer.close()
