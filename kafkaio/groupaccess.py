"""Finds out whether the broker refuses us access to consumer groups, when they cannot be read and no error says why.

A consumer without access to its group gets no error: it looks for the coordinator until its time-out. The admin client
gets the error at once, but a failed librdkafka assertion ends its process if a broker goes down during the call. So it
runs in a process of its own, and only if a group cannot be read.
"""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafkaio import client

log = logging.getLogger("teacup.kafkaio.groupaccess")

ANSWERED_WITHIN_S = 10.0
_STARTED_WITHIN_S = 20.0
_PAUSE_S = 0.5
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def error_codes(kafka: Mapping[str, str], groups: Sequence[str], *, reading: bool = False) -> dict[str, int] | None:
    """Returns the error code of each group that could not be described, as librdkafka's numbers; None: no answer.

    reading   a group that may be described, but not read, counts as refused too
    """
    spawned = multiprocessing.get_context("spawn")
    answer, answering = spawned.Pipe(duplex=False)
    asked = spawned.Process(target=_answer, args=(answering, dict(kafka), list(groups), reading), daemon=True)
    asked.start()
    answering.close()  # so that its end, too, ends the waiting
    try:
        if not answer.poll(ANSWERED_WITHIN_S + _STARTED_WITHIN_S):
            log.info("whether the groups may be read is not known: nobody answered in time")
            return None
        codes: dict[str, int] = answer.recv()
        return codes
    except EOFError:
        log.info("whether the groups may be read is not known: the process that asked has ended without an answer")
        return None
    finally:
        asked.kill()
        asked.join()
        answer.close()


def _answer(answering: Connection, kafka: Mapping[str, str], groups: list[str], reading: bool) -> None:
    answering.send(_codes(kafka, groups, reading))


def _codes(kafka: Mapping[str, str], groups: list[str], reading: bool) -> dict[str, int]:
    """Returns the error code of each group whose description failed, or which may not be read."""
    admin = client.admin(kafka)  # kept alive: its calls end with it
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    found = _described(admin, groups, reading)
    # Brokers without any group yet have no coordinator for a moment.
    while reading and time.monotonic() < deadline and (rest := [g for g, c in found.items() if c in _PASSING]):
        time.sleep(_PAUSE_S)
        found = {g: code for g, code in found.items() if g not in rest} | _described(admin, rest, reading)
    return found


def _described(admin: AdminClient, groups: list[str], reading: bool) -> dict[str, int]:
    asked = admin.describe_consumer_groups(
        groups, request_timeout=ANSWERED_WITHIN_S, include_authorized_operations=reading
    )
    found = {}
    for group, answer in asked.items():
        try:
            allowed = answer.result().authorized_operations
        except KafkaException as error:
            found[group] = error.args[0].code()
        else:
            if reading and allowed and "READ" not in {operation.name for operation in allowed}:
                found[group] = KafkaError.GROUP_AUTHORIZATION_FAILED
    return found
