"""The part of a Kafka client that delivery needs: `teacup.kafka.client` gives real ones, a simulation its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaError, TopicPartition


class Producer(Protocol):
    """As `confluent_kafka.Producer`; calls raise `KafkaException`."""

    def __len__(self) -> int: ...

    def produce(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        callback: None,
        on_delivery: None,
        timestamp: int,
        headers: Any,
        /,
    ) -> None: ...

    def poll(self, timeout: float, /) -> int: ...

    def flush(self, timeout: float, /) -> int: ...

    def purge(self) -> None: ...

    def close(self) -> object: ...

    def list_topics(self, topic: str, timeout: float, /) -> Any: ...

    def init_transactions(self, timeout: float, /) -> None: ...

    def begin_transaction(self) -> None: ...

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group: Any, timeout: float, /) -> None: ...

    def commit_transaction(self, timeout: float, /) -> None: ...


class Consumer(Protocol):
    """As `confluent_kafka.Consumer`, but used only for committed offsets."""

    def committed(self, partitions: list[TopicPartition], timeout: float, /) -> list[TopicPartition]: ...

    def consumer_group_metadata(self) -> Any: ...

    def close(self) -> None: ...


class Clients(Protocol):
    """Creates clients from librdkafka properties; see `teacup.kafka.client`."""

    def producer(
        self,
        kafka: Mapping[str, str],
        tuning: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        on_delivery: Callable[[KafkaError | None, Any], None],
        transactional_id: str | None = None,
        /,
    ) -> Producer: ...

    def consumer(
        self, kafka: Mapping[str, str], tuning: Mapping[str, Any], on_error: Callable[[KafkaError], None], /
    ) -> Consumer: ...
