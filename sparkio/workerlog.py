"""The lines that a job logs, in the driver and in the processes that Spark starts: text, or JSON under `log: json`."""

from __future__ import annotations

import json
import logging
import os

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


def log_like_the_driver() -> None:
    """Sets up the log, unless the process has one already; without one Python prints the message alone."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(as_json=AS_JSON in os.environ))
    logging.basicConfig(handlers=[handler])
