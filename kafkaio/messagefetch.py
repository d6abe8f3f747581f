"""Records as confluent-kafka's messages, made into Arrow columns in Python: where the C library is not there.

Costs (150-byte values, ns per record): the message objects 500 - 900, the columns 400. Python's garbage collector would
scan all these objects repeatedly (another 1,200), so it is paused while they exist.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from kafkaio import client
from kafkaio.errors import TopicMissing
from kafkaio.fetch import AT_ONCE, TUNING, WAIT_MS, PartitionFetch, Taken, fitting_rows
from kafkaio.gcpause import no_garbage_collection
from kafkaio.messages import to_arrow


class MessageFetch(PartitionFetch):
    """Fetches by a consumer of confluent-kafka."""

    def __init__(self, topic: str, kafka: Mapping[str, str], timeout_s: float) -> None:
        super().__init__(topic)
        self._ahead: list[Any] = []  # fetched, at or beyond the position
        self._pieces: list[pa.RecordBatch] = []
        self._consumer: Consumer = client.consumer(kafka, TUNING, self._on_error)
        client.learn(self._consumer, topic, timeout_s)

    def _assign(self, partition: int, start: int) -> None:
        self._consumer.assign([TopicPartition(self.topic, partition, start)])
        self._ahead, self._pieces = [], []

    def rest(self) -> None:
        self._consumer.unassign()

    def take(self, position: int, end: int, rows: int, size: int) -> Taken:
        with no_garbage_collection():
            messages = self._fetch(position, min(end - position, AT_ONCE, rows))
            if messages and messages[-1].offset() >= end:
                cut = bisect_left(messages, end, key=lambda message: message.offset())
                self._ahead = messages[cut:] + self._ahead
                del messages[cut:]
                passed = end
            else:
                passed = messages[-1].offset() + 1 if messages else position
                if self._passed >= end and not self._ahead:
                    passed = end
            if not messages:
                return Taken(0, 0, passed)
            piece = to_arrow(self.partition, messages)
            fitting, size = fitting_rows(piece, size)
            if fitting < len(messages):
                self._ahead = messages[fitting:] + self._ahead
                passed = messages[fitting].offset()
            self._pieces.append(piece.slice(0, fitting))
            messages.clear()
            return Taken(fitting, size, passed)

    def batch(self) -> pa.RecordBatch:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def ends(self) -> tuple[int, int]:
        where = TopicPartition(self.topic, self.partition)
        start, end = self._consumer.get_watermark_offsets(where, timeout=client.REQUEST_TIMEOUT_S)
        return start, end

    def close(self) -> None:
        self._consumer.close()

    def _fetch(self, position: int, limit: int) -> list[Any]:
        """Returns at most `limit` records from the position on; none if none arrived within a few milliseconds."""
        if self._ahead:
            waiting, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return waiting
        try:
            messages: list[Any] = self._consumer.consume(limit, WAIT_MS / 1_000)
            if self.trouble is not None and client.is_missing(self.trouble):
                raise TopicMissing(self.topic, self.partition)
        except KafkaException as error:
            raise client.translate(error.args[0], "read", self.topic, self.partition) from error
        errors = list(map(Message.error, messages))
        if not any(errors):  # (comparing a KafkaError with None sets an exception that nobody sees)
            return messages
        for event, trouble in zip(messages, errors, strict=True):
            if trouble is not None:
                self._judge(trouble, event.offset(), position)
        return [message for message, trouble in zip(messages, errors, strict=True) if trouble is None]
