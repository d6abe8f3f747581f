"""Real clients for writing and delivery: confluent-kafka's, whose producers C knows, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer

from teacup.kafka import client
from teacup.kafka.native import rdkafka
from teacup.kafka.write.native_producer import NativeProducer

_PLUGINS = "plugin.library.paths"


def producer(
    kafka: Mapping[str, str],
    tuning: Mapping[str, Any],
    on_error: Callable[[KafkaError], None],
    transactional_id: str | None = None,
) -> tuple[Producer, NativeProducer]:
    """Makes a producer as `teacup.kafka.client` does, and the one that hands columns to it. Raises `LibraryMissing`."""
    functions = rdkafka.bound()
    plugins = [kafka[_PLUGINS]] if kafka.get(_PLUGINS) else []
    properties = {**kafka, _PLUGINS: ";".join([*plugins, functions.teacup._name])}
    made = client.producer(properties, tuning, on_error, transactional_id)
    return made, NativeProducer(functions)


consumer = client.consumer
