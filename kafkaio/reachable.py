"""Whether the brokers answer at all, asked before anything else: a mistyped address is one line, within seconds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafkaio import client
from kafkaio.errors import KafkaUnavailable

log = logging.getLogger("teacup.kafkaio.reachable")
_silent = logging.getLogger("teacup.kafkaio.reachable.librdkafka")
_silent.disabled = True  # what it says of each attempt is in our own line

SAY_AFTER_S = 3.0
GIVE_UP_AFTER_S = 60.0
_ONE_TRY_S = 1.0


def wait_for_brokers(
    kafka: Mapping[str, str], stopped: Callable[[], bool] = lambda: False, give_up_after_s: float = GIVE_UP_AFTER_S
) -> None:
    """Return once a broker has answered, or `stopped()`; one warning after 3 s, `KafkaUnavailable` in the end.

    Raises `ConfigError` for properties that librdkafka does not accept.
    """
    troubles: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            troubles[:] = [error.str()]

    admin = client.admin(kafka, note, _silent)
    began = time.monotonic()
    warned = False
    while not stopped():
        problem = _problem(admin)
        if problem is None:
            return
        spent_s = time.monotonic() - began
        why = troubles[0] if troubles else problem
        servers = kafka.get("bootstrap.servers") or kafka.get("metadata.broker.list")
        if spent_s > give_up_after_s:
            raise KafkaUnavailable(
                f"no broker of bootstrap.servers {servers!r} has answered for {spent_s:.0f} s ({why}): correct the "
                "address, or start the broker"
            )
        if spent_s > SAY_AFTER_S and not warned:
            warned = True
            log.warning(
                "no broker of bootstrap.servers %r answers (%s); tried for up to %d s: correct the address, or start "
                "the broker",
                servers,
                why,
                give_up_after_s,
            )


def _problem(admin: AdminClient) -> str | None:
    try:
        admin.list_topics(timeout=_ONE_TRY_S)
    except KafkaException as error:
        admin.poll(0)
        return str(error.args[0].str())
    return None
