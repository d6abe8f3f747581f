"""A log filter that lets every message through once: libraries report the same failure at each attempt.

librdkafka, for example, logs every refused connection, a thousand lines a minute, which differ only in the milliseconds
that the attempt took. The first line says why, so numbers are ignored in the comparison.
"""

from __future__ import annotations

import logging
import re

_NUMBER = re.compile(r"\d+")


class OncePerMessage(logging.Filter):
    """For a short-lived command; it remembers every message. Loggers whose names start with `ours` are never muted."""

    def __init__(self, *ours: str) -> None:
        super().__init__()
        self._ours = ours
        self._told: set[tuple[str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(self._ours):
            return True
        told = record.name, _NUMBER.sub("0", record.getMessage())
        if told in self._told:
            return False
        self._told.add(told)
        return True
