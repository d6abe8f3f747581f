"""Transactions on a broker: committed, aborted, open."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Producer

from teacup.kafka.log.broker_log import BrokerLog
from tests.support.waiting import wait_until

BASE_MS = 1_700_000_000_000
Send = Callable[..., None]


class Transactions:
    """Produces inside transactions; a producer whose transaction has ended serves the next one.

    (A new one would first wait for its coordinator, half a second each time.)
    """

    def __init__(self, kafka: dict[str, str]) -> None:
        self._kafka = kafka
        self._idle: list[Producer] = []

    @contextmanager
    def open(self, topic: str, commit: bool) -> Iterator[Send]:
        """`send(value, timestamp_ms, partition=0, key=None)`; visible or aborted after the block."""
        producer = self._idle.pop() if self._idle else self._another()
        producer.begin_transaction()

        def send(value: bytes, timestamp_ms: int, partition: int = 0, key: bytes | None = None) -> None:
            producer.produce(topic, value, key, partition, timestamp=timestamp_ms)
            producer.flush(30)

        yield send
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        with closing(BrokerLog(topic, self._kafka)) as log:  # markers are written after the answer
            wait_until(lambda: all(at.settled for at in log.ends().values()), lambda: f"open on {topic}")
        self._idle.append(producer)

    def _another(self) -> Producer:
        made = Producer({**self._kafka, "transactional.id": f"test-{uuid.uuid4().hex}"})
        made.init_transactions(30)
        return made
