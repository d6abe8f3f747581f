"""Whether librdkafka knows a property and accepts its value, found out without connecting to anything."""

from __future__ import annotations

import logging
import re

from confluent_kafka import KafkaException, Producer

_silent = logging.getLogger("teacup.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

_TELLING = {
    "No such configuration property": "librdkafka knows no such property; its names are in CONFIGURATION.md there",
    "Invalid value": "librdkafka does not take this value",
    "outside allowed range": "librdkafka takes {range}",
}


def unknown_or_invalid(key: str, value: str) -> str | None:
    """What is wrong with one property by itself; None if librdkafka accepts it.

    A producer without brokers opens no connection. Faults that involve other properties (a SASL mechanism without its
    security protocol) are found when the job connects.
    """
    try:
        Producer({key: value}, logger=_silent)
    except KafkaException as error:
        told = error.args[0].str()
        limits = re.search(r"allowed range (\S+)", told)
        for sign, problem in _TELLING.items():
            if sign in told:
                return problem.format(range=limits[1] if limits else "a smaller range")
    return None
