"""Whoever waits for a slow broker does not take a core from it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from teacup.kafka.write.writer import Delivered, TopicWriter
from tests.support.slowproxy import SlowProxy

ROWS = 200_000
ANSWERS_AFTER_S = 0.2
BATCH_ROWS = {4: 4_000, 64: 2_000}
"""By partitions: more than ten answers, one after the other. A connection has five requests in flight."""


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[tuple[SlowProxy, Broker]]:
    """A broker whose answers can be made late."""
    with SlowProxy() as proxy, Broker(forwarded_from=proxy.port) as broker:
        proxy.forward_to(broker.forwarded_port)
        yield proxy, broker


def spent_s() -> dict[str, float]:
    """CPU time of each thread of this process that talks to brokers for librdkafka."""
    ticks = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith("rdk:broker"):
                user, system = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
                ticks[task.name] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        except OSError:  # the thread has ended
            continue
    return ticks


@pytest.mark.parametrize("partitions", [4, pytest.param(64, marks=pytest.mark.slow)])
def test_a_slow_broker_is_waited_for_at_rest(behind_proxy: tuple[SlowProxy, Broker], partitions: int) -> None:
    """At most 5 % of the time goes into waiting: what the same rows take more than with a fast broker."""
    proxy, broker = behind_proxy
    topic = f"rest-{partitions}-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=30)[topic].result(60)
    others = spent_s()  # clients that other tests have left open
    writer = TopicWriter({"bootstrap.servers": proxy.bootstrap, "batch.num.messages": str(BATCH_ROWS[partitions])})
    values = pa.array([b"x" * 100] * ROWS)
    spread = pa.array([row % partitions for row in range(ROWS)], pa.int32())
    took_s, used_s = [], []
    for answers_after_s in (0.0, ANSWERS_AFTER_S):
        proxy.answers_after_s = answers_after_s
        begun_s, before_s = time.monotonic(), spent_s()

        writer.write(topic, None, values, partitions=spread)
        delivered = writer.flush()

        took_s.append(time.monotonic() - begun_s)
        used_s.append(
            sum(spent - before_s.get(thread, 0.0) for thread, spent in spent_s().items() if thread not in others)
        )
        assert delivered == Delivered(ROWS, ROWS)
    proxy.answers_after_s = 0.0
    writer.close()

    assert took_s[1] > 10 * ANSWERS_AFTER_S
    assert used_s[1] - used_s[0] <= 0.05 * took_s[1], f"{used_s} s of CPU time in {took_s} s"
