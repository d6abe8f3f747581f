"""A topic that is deleted and created again under its name, as seen by whoever asks the brokers afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from teacup.kafka.errors import TopicMissing
from teacup.kafka.log.broker_log import BrokerLog
from tests.support.waiting import wait_until

DEADLINE_S = 60.0


def recreate(kafka: Mapping[str, str], topic: str, partitions: int = 1) -> None:
    """Returns once it is seen: when the controller has answered, the broker may still know the old one only."""
    admin = AdminClient(dict(kafka))
    with closing(BrokerLog(topic, kafka)) as log:
        was = log.topic_id()
        admin.delete_topics([topic], operation_timeout=30)[topic].result(DEADLINE_S)
        wait_until(_created(admin, topic, partitions), lambda: f"topic {topic} is still being deleted")
        wait_until(_recreated(log, was, partitions), lambda: f"topic {topic} still has the id {was}")


def _created(admin: AdminClient, topic: str, partitions: int) -> Callable[[], bool]:
    """The deletion goes on in the background after it is answered."""

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=30)[topic].result(DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    return created


def _recreated(log: BrokerLog, was: str, partitions: int) -> Callable[[], bool]:
    def seen() -> bool:
        try:
            return log.topic_id() != was and log.partition_count() == partitions == len(log.ends())
        except TopicMissing:
            return False

    return seen
