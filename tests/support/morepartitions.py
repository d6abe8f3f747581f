"""A topic that gets more partitions while it is read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka.admin import AdminClient, NewPartitions

from teacup.kafka.log.broker_log import BrokerLog

DEADLINE_S = 60.0


def add_partitions(kafka: Mapping[str, str], topic: str, count: int) -> None:
    """Returns once the topic is seen with `count` partitions, and each of them has a leader."""
    admin = AdminClient(dict(kafka))
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(DEADLINE_S)
    deadline = time.monotonic() + DEADLINE_S
    with closing(BrokerLog(topic, kafka)) as log:
        while log.partition_count() < count or len(log.ends()) < count:
            assert time.monotonic() < deadline, f"{topic} still has {log.partition_count()} partitions"
            time.sleep(0.05)
