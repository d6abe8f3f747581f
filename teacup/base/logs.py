"""The lines that a job logs, in the driver and in the processes that Spark starts: text, or JSON under `log: json`.

A logger from `sparse` logs the same line at most once a minute in each process; the next one says how many were
suppressed. If a cluster is down, every client reports it for every broker and each connection attempt: tens of
thousands of identical lines within minutes. Lines count as the same if they differ only in numbers and in the text in
brackets (the client, its thread); broker addresses are distinguished.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping

AS_JSON = "TEACUP_LOG_JSON"
"""Set in the environment of workers that log JSON."""


class JsonLines(logging.Formatter):
    """Writes a log line as a JSON object; a message that is one stays as it is."""

    def format(self, record: logging.LogRecord) -> str:
        if _is_object(message := record.getMessage()):
            return message
        line = {"event": "log", "at_ms": round(record.created * 1000), "level": record.levelname.lower()}
        line |= {"logger": record.name, "message": message}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, sort_keys=True)


def _is_object(message: str) -> bool:
    try:
        return message.startswith("{") and isinstance(json.loads(message), dict)
    except ValueError:
        return False


def formatter(*, as_json: bool) -> logging.Formatter:
    """Returns the formatter of every log line of a job."""
    return JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")


def worker_environment(*, as_json: bool) -> dict[str, str]:
    """Returns Spark properties with which workers log like the driver."""
    return {f"spark.executorEnv.{AS_JSON}": "1"} if as_json else {}


def logs_json(properties: Mapping[str, str]) -> bool:
    """Returns whether these Spark properties are of a job that logs JSON."""
    return f"spark.executorEnv.{AS_JSON}" in properties


def log_like_the_driver() -> None:
    """Sets up the log, unless the process has one already; without one Python prints the message alone."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(as_json=AS_JSON in os.environ))
    logging.basicConfig(handlers=[handler])


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
