"""Whether librdkafka knows a property and accepts its value. Asks librdkafka, without connecting to anything.

This is an edge: each property is tried on a producer of its own, which has no broker, and so opens no connection.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

from confluent_kafka import KafkaException, Producer

from kafkaio import client
from kafkaio.errors import ConfigError

_silent = logging.getLogger("teacup.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

_MEANINGS = {
    "No such configuration property": "librdkafka knows no such property; its names are in CONFIGURATION.md there",
    "Invalid value": "librdkafka does not take this value",
    "outside allowed range": "librdkafka takes {range}",
}


def problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each property that we refuse, or that librdkafka does not accept by itself, and why.

    Faults that involve several properties (a SASL mechanism without its security protocol) are found when the job
    connects.
    """
    for key, value in given.items():
        if key == "bootstrap.servers":
            continue
        try:
            client.validate({"bootstrap.servers": "one:9092", key: value})
        except ConfigError as error:
            yield key, str(error).removeprefix(f"{key}: {value!r} is refused: ")
            continue
        if problem := _refusal(key, value):
            yield key, problem


def _refusal(key: str, value: str) -> str | None:
    try:
        Producer({key: value}, logger=_silent)
    except KafkaException as error:
        message = error.args[0].str()
        limits = re.search(r"allowed range (\S+)", message)
        for sign, problem in _MEANINGS.items():
            if sign in message:
                return problem.format(range=limits[1] if limits else "a smaller range")
    return None
