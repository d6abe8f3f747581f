"""A log filter that lets every message through once: libraries tell the same failure at each of their attempts.

librdkafka, for one, logs each connection that is refused, a thousand lines a minute, and in the same words but for the
milliseconds that it took. The first line says why; numbers are therefore left out of the comparison.
"""

from __future__ import annotations

import logging
import re

_NUMBER = re.compile(r"\d+")


class OncePerMessage(logging.Filter):
    """For a short-lived command, which remembers all that was told. The loggers of `ours` are never muted."""

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
