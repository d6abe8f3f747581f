"""A reader of committed records that runs beside everything, as a user's would: of the output and all side topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from teacup.kafka.log.topic_log import Ends

SILENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a reader of committed records sees it."""

    topic: str
    partition: int
    offset: int
    headers: Mapping[str, str]


class CommittedReader:
    """Reads topics from the start, continuously; continues when the broker is back.

    After a silence it reconnects: a librdkafka consumer sometimes never reconnects to a broker that was restarted.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        self.seen: list[Seen] = []
        self.trouble: KafkaError | None = None
        self._properties = {
            "bootstrap.servers": bootstrap,
            "group.id": "crash-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        self._next = dict.fromkeys(((topic, p) for topic in topics for p in range(partitions)), 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def of(self, topic: str) -> list[Seen]:
        """What was seen of one topic so far."""
        return [record for record in list(self.seen) if record.topic == topic]

    def has_read(self, topic: str, ends: Mapping[int, Ends]) -> bool:
        """Everything that was in the topic at these ends has been read; transaction markers are passed, too."""
        return all(self._next[topic, p] >= end.stable for p, end in ends.items())

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.is_set():
            consumer = Consumer(self._properties)
            consumer.assign([TopicPartition(topic, p, offset) for (topic, p), offset in self._next.items()])
            silent_from = time.monotonic()
            while not self._ended.is_set() and time.monotonic() - silent_from < SILENCE_S:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error, at = message.error(), (message.topic(), message.partition())
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    self._next[at] = message.offset()
                    continue
                if error is not None:
                    self.trouble = error  # the broker is down
                    continue
                silent_from = time.monotonic()
                headers = {name: (value or b"").decode() for name, value in message.headers() or ()}
                self.seen.append(Seen(*at, message.offset(), headers))
                self._next[at] = message.offset() + 1  # last, so that `seen` already holds what was read
            consumer.close()
