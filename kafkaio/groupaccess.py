"""Finds out whether the broker refuses us access to the receipt groups, when they cannot be read and no error says why.

A consumer without access to its group gets no error: it looks for the coordinator until its time-out. The admin client
gets the error at once, but a failed librdkafka assertion ends its process if a broker goes down during the call. So it
runs in a process of its own, and only if a receipt does not arrive.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from confluent_kafka import KafkaError, KafkaException

from kafkaio import client
from kafkaio.delivery.fencing import OutputBucket, access_refused

log = logging.getLogger("teacup.kafkaio.groupaccess")

ANSWERED_WITHIN_S = 10.0
_STARTED_WITHIN_S = 20.0


def check_access(kafka: Mapping[str, str], buckets: Sequence[OutputBucket]) -> None:
    """Raises the `KafkaIOError` that names group and ACL if the broker refuses one; returns if nobody answers."""
    by_group = {bucket.group: bucket for bucket in buckets}
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    try:
        codes = pool.submit(_codes, dict(kafka), list(by_group)).result(ANSWERED_WITHIN_S + _STARTED_WITHIN_S)
    except (TimeoutError, BrokenProcessPool) as error:
        log.info("whether the groups of receipts may be read is not known: %r", error)
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for group, code in codes.items():
        refused = access_refused(by_group[group], KafkaError(code))
        if refused is not None:
            raise refused


def _codes(kafka: Mapping[str, str], groups: list[str]) -> dict[str, int]:
    """The error code of each group whose description failed."""
    admin = client.admin(kafka)  # kept alive: its calls end with it
    asked = admin.describe_consumer_groups(groups, request_timeout=ANSWERED_WITHIN_S)
    found = {}
    for group, answer in asked.items():
        try:
            answer.result()
        except KafkaException as error:
            found[group] = error.args[0].code()
    return found
