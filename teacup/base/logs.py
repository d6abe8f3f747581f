"""The lines that a job logs, in the driver and in the processes that Spark starts: text, or JSON under `log: json`.

A JSON line has a time, a level, the job, and the generation of its checkpoint, as far as the process knows them
(`mention`). On a terminal a text wraps between words.

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
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from teacup.base.times import iso

AS_JSON = "TEACUP_LOG_JSON"
"""Set in the environment of workers that log JSON: to the name of the job, or to `NO_JOB` if there are several."""
NO_JOB = "1"
LIBRDKAFKA = "teacup.kafka.librdkafka"
"""The logger of librdkafka's messages (`teacup.kafka.client`), by name because that module takes long to import."""

_mentioned: dict[str, str] = {}
_here = threading.local()


@contextmanager
def of_job(name: str) -> Iterator[None]:
    """Makes this thread's log lines name a job, one of several in this process; does nothing if `name` is empty."""
    before = getattr(_here, "said", None)
    _here.said = {"job": name} if name else before
    try:
        yield
    finally:
        _here.said = before


def job_here() -> str:
    """Returns the job that this thread works for; empty if the process has only one, or works for all."""
    return _said_here().get("job", "")


def _said_here() -> dict[str, str]:
    said: dict[str, str] | None = getattr(_here, "said", None)
    return said or {}


def mention(**what: str) -> None:
    """Adds `job`, `generation` to the JSON lines of this process, or of this thread if it works for one of several."""
    said = getattr(_here, "said", None)
    (_mentioned if said is None else said).update(what)


def json_line(at_ms: int, level: str, content: Mapping[str, Any]) -> str:
    """Returns an object with what every line has: time, level, and what was mentioned; the content overrides it."""
    said = {"at_ms": at_ms, "time": iso(at_ms), "level": level, **_mentioned, **_said_here()}
    return json.dumps({**said, **content}, sort_keys=True)


class JsonLines(logging.Formatter):
    """Writes a log line as a JSON object; a message that is itself an object keeps its members."""

    def format(self, record: logging.LogRecord) -> str:
        at_ms, level, message = round(record.created * 1000), record.levelname.lower(), record.getMessage()
        if (content := object_in(message)) is not None:
            return json_line(at_ms, level, content)
        line = {"event": "log", "logger": record.name, "message": message}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json_line(at_ms, level, line)


class TextLines(logging.Formatter):
    """Writes text, preceded by the job's name if this thread works for one of several."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        if (job := job_here()) and not record.message.startswith(job):
            record.message = f"{job}: {record.message}"
        return super().formatMessage(record)


class WrappedLines(TextLines):
    """Writes text that wraps between words, at a width that is asked for at each line, as a window may be resized."""

    def __init__(self, width: Callable[[], int]) -> None:
        super().__init__(_TEXT)
        self._width = width

    def formatMessage(self, record: logging.LogRecord) -> str:
        lines = super().formatMessage(record).splitlines()
        return "\n".join(wrapped for line in lines for wrapped in fill(line, self._width()) or [""])


def fill(text: str, width: int) -> list[str]:
    """Returns the lines of a text, broken between words and never within; the further ones are indented."""
    room = max(width, 40)
    return textwrap.wrap(
        text, room, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


INDENT = " " * 10
_TEXT = "%(asctime)s %(levelname)s %(message)s"


def object_in(message: str) -> dict[str, Any] | None:
    """Returns the object in a message, such as a line of a process that Spark has started; None if it is text."""
    try:
        parsed = json.loads(message) if message.startswith("{") else None
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def formatter(*, as_json: bool, width: Callable[[], int] | None = None) -> logging.Formatter:
    """Returns the formatter of every log line of a job; width: of a terminal, if text goes to one."""
    if as_json:
        return JsonLines()
    return TextLines(_TEXT) if width is None else WrappedLines(width)


def worker_environment(*, as_json: bool, job: str = "") -> dict[str, str]:
    """Returns Spark properties with which workers log like the job's driver."""
    return {f"spark.executorEnv.{AS_JSON}": job or NO_JOB} if as_json else {}


def logs_json(properties: Mapping[str, str]) -> bool:
    """Returns whether these Spark properties belong to a job that logs JSON."""
    return f"spark.executorEnv.{AS_JSON}" in properties


def log_like_the_driver() -> None:
    """Sets up the log, unless the process already has one; without it Python prints only the message."""
    handler = logging.StreamHandler()
    if (job := os.environ.get(AS_JSON, NO_JOB)) != NO_JOB:
        mention(job=job)
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
    return _ADDRESS_OR_NUMBER.sub(lambda match: match[1] or "#", _BRACKETS.sub("[]", message))


def sparse(name: str) -> logging.Logger:
    """Returns the logger of this name; each of its lines passes once a minute."""
    log = logging.getLogger(name)
    log.addFilter(Sparse())
    return log


def without_numbers(text: str) -> str:
    """Returns what two warnings have in common that differ only in numbers and durations."""
    return re.sub(r"\d[\d.,]*(?:ms|[smhd])?(?: \d[\d.,]*(?:ms|[smhd]))*", "#", text)
