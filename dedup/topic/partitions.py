"""Whether a record can keep its partition: both topics have as many."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from dedup.errors import PartitionsDiffer
from kafkaio.brokerlog import BrokerLog


def check_partitions(source: str, output: str, kafka: Mapping[str, str]) -> None:
    """Asks the brokers. Raises `PartitionsDiffer`, `KafkaIOError`."""
    counts = {}
    for topic in (source, output):
        with closing(BrokerLog(topic, kafka)) as log:
            counts[topic] = log.partition_count()
    compare_partitions(source, counts[source], output, counts[output])


def compare_partitions(source: str, of_source: int, output: str, of_output: int) -> None:
    """Raises `PartitionsDiffer`."""
    if of_source != of_output:
        raise PartitionsDiffer(
            f"{source!r} has {of_source} partitions and {output!r} has {of_output}: records keep their partition, give "
            "both the same number"
        )
