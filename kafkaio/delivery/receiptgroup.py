"""Reads a bucket's receipt: the offset metadata of the bucket's group, on partition 0 of the output topic.

The bucket's transactions write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkaio import client
from kafkaio.delivery.fencing import OutputBucket, access_refused
from kafkaio.delivery.receipt import Receipt
from kafkaio.errors import KafkaIOError
from kafkaio.protocols import Clients


def read_receipt(
    kafka: Mapping[str, str], bucket: OutputBucket, clients: Clients = client
) -> tuple[Receipt | None, Any]:
    """Returns the current receipt, and what a transaction needs to commit the next one.

    Raises `KafkaUnavailable`, `ReceiptRefused`, `KafkaIOError`.
    """
    consumer = clients.consumer(client.of_group(kafka, bucket.group), {}, lambda _: None)

    def ask() -> TopicPartition:
        try:
            found = consumer.committed([TopicPartition(bucket.topic, 0)], client.REQUEST_TIMEOUT_S)[0]
        except KafkaException as error:
            raise _translated(error.args[0], bucket) from error
        if found.error is not None:
            raise _translated(found.error, bucket)
        return found

    try:
        found = client.retried(ask, kafka)
        receipt = Receipt.from_text(found.metadata) if found.offset >= 0 and found.metadata else None
        return receipt, consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _translated(error: KafkaError, bucket: OutputBucket) -> KafkaIOError:
    return access_refused(bucket, error) or client.translate(error, "look-up of the receipt", bucket.topic)
