"""Transactions on a broker: committed, aborted, open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from kafkaio.brokerlog import BrokerLog

BASE_MS = 1_700_000_000_000
Send = Callable[..., None]


class Transactions:
    """Produces inside transactions, one transactional id after another."""

    def __init__(self, kafka: dict[str, str]) -> None:
        self._kafka = kafka
        self._count = 0

    @contextmanager
    def open(self, topic: str, commit: bool) -> Iterator[Send]:
        """`send(value, timestamp_ms, partition=0, key=None)`; visible or aborted after the block."""
        self._count += 1
        producer = Producer({**self._kafka, "transactional.id": f"{topic}-{self._count}"})
        producer.init_transactions(30)
        producer.begin_transaction()

        def send(value: bytes, timestamp_ms: int, partition: int = 0, key: bytes | None = None) -> None:
            producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
            producer.flush(30)

        yield send
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        log, deadline = BrokerLog(topic, self._kafka), time.monotonic() + 30
        while not all(at.settled for at in log.ends().values()):  # markers are written after the answer
            assert time.monotonic() < deadline, f"the transaction on {topic} was not ended"
        log.close()
