"""Logs the same line at most once a minute in each process; the next one says how many were suppressed.

If a cluster is down, every client reports it for every broker and each connection attempt: tens of thousands of
identical lines within minutes. Lines count as the same if they differ only in numbers and in the text in brackets (the
client, its thread); broker addresses are distinguished.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

PERIOD_S = 60.0
_SHAPES = 1_000
_BRACKETS = re.compile(r"\[[^]]*\]")
_ADDRESS_OR_NUMBER = re.compile(r"([\w.-]+:\d+)|\d+")


class Sparse(logging.Filter):
    """A filter for a logger or a handler that lets the same line pass once in `period_s` seconds."""

    def __init__(self, period_s: float = PERIOD_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._period_s, self._clock = period_s, clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # -> when one passed, how many did not since
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the line passes."""
        message = record.getMessage()
        key = (record.name, record.levelno, shape(message))
        now_s = self._clock()
        with self._lock:
            passed_s, held = self._seen.get(key, (-self._period_s, 0))
            if now_s - passed_s < self._period_s:
                self._seen[key] = passed_s, held + 1
                return False
            if len(self._seen) >= _SHAPES:
                self._seen.clear()
            self._seen[key] = now_s, 0
        if held:
            record.msg, record.args = f"{message} (and {held} like it since)", ()
        return True


def shape(message: str) -> str:
    """Returns what lines that count as the same have in common."""
    return _ADDRESS_OR_NUMBER.sub(lambda found: found[1] or "#", _BRACKETS.sub("[]", message))


def sparse(name: str) -> logging.Logger:
    """Returns the logger of this name; each of its lines passes once a minute."""
    log = logging.getLogger(name)
    log.addFilter(Sparse())
    return log
