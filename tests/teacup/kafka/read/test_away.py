"""Consumers that rest while the broker is away do not look for it all the time: it needs the machine to start."""

from __future__ import annotations

import socket
import time
from contextlib import closing
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from deploy.broker.lifeline import HOST
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter

PARTITIONS = 4
AWAY_S = 5.0
ATTEMPTS_A_SECOND = 25
"""Of a consumer."""


def attempts(port: int, within_s: float) -> int:
    """How often somebody connects to a port, and is turned away."""
    found = 0
    with socket.create_server((HOST, port), backlog=1_000) as server:
        server.settimeout(0.1)
        ends_s = time.monotonic() + within_s
        while time.monotonic() < ends_s:
            try:
                server.accept()[0].close()
                found += 1
            except TimeoutError:
                continue
    return found


def test_consumers_at_rest_seldom_look_for_a_broker_that_is_away() -> None:
    topic = f"away-{uuid4().hex[:8]}"
    with Broker() as broker:
        kafka = {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
        admin = AdminClient(kafka)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=30)[topic].result(60)
        del admin
        with closing(TopicWriter(kafka)) as writer:
            writer.write(topic, None, [b"x"] * PARTITIONS, partitions=list(range(PARTITIONS)))
            writer.flush()
        with closing(RangeReader(topic, kafka)) as reader:
            assert sum(batch.num_rows for p in range(PARTITIONS) for batch in reader.read(p, 0, 1)) == PARTITIONS
            broker.kill()

            found = attempts(broker.port, AWAY_S)

    assert 0 < found <= ATTEMPTS_A_SECOND * PARTITIONS * AWAY_S
