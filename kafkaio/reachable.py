"""Whether the brokers answer at all, asked before anything else: a mistyped address is one line, within seconds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException

from kafkaio import client
from kafkaio.errors import KafkaUnavailable
from kafkaio.said import said

_silent = logging.getLogger("teacup.kafkaio.reachable.librdkafka")
_silent.disabled = True  # what it says of each attempt is in our own line

_ONE_TRY_S = 1.0


def wait_for_brokers(
    kafka: Mapping[str, str],
    stopped: Callable[[], bool] = lambda: False,
    give_up_after_s: float | None = None,
) -> None:
    """Returns once a broker has answered, or `stopped()`; one warning after 3 s, `KafkaUnavailable` in the end.

    Raises `ConfigError` for properties that librdkafka does not accept.
    """
    troubles: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            troubles[:] = [said(error)]

    admin = client.admin(kafka, note, _silent)

    def ask() -> None:
        if stopped():
            return
        try:
            admin.list_topics(timeout=_ONE_TRY_S)
        except KafkaException as error:
            admin.poll(0)
            why = troubles[0] if troubles else said(error.args[0])
            raise KafkaUnavailable(
                f"no broker answered ({why}): correct bootstrap.servers, or start the broker"
            ) from error

    client.retried(ask, kafka, give_up_after_s)
