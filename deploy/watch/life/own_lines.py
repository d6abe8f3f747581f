"""What a job has logged itself: its warnings, and the error that it ended for. One rule for page, probes and `teacup
status`.

    librdkafka's     never: it reports its own attempts, and what comes of them the job says itself
    another job's    never, where a process has several
    everybody's      warnings only: a job does not end for an error of the process without one of its own
    Spark's          warnings only: under `log: json` the driver logs the lines of the processes that Spark starts, each
                     an object; its message, level and job count, not the line
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from teacup.base.logs import LIBRDKAFKA, job_here, object_in

LONGEST = 2_000
_LEVELS = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}


class OwnLines(logging.Handler):
    """Hands the lines of one job to `take`, with their text; `logging` calls one at a time."""

    def __init__(self, job: str, level: int, take: Callable[[logging.LogRecord, str], None]) -> None:
        """job: as `job_here` names it; level: from which on."""
        super().__init__(level)
        self._job, self._take = job, take

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line, if it is one of the job's."""
        text, here, level = record.getMessage(), job_here(), record.levelno
        if (line := object_in(text)) is not None and isinstance(line.get("message"), str):
            text, level = line["message"], min(level, _LEVELS.get(str(line.get("level")), level))
            here = here or (self._job and str(line.get("job", "")))  # the only job is that of all lines
        everybodys = not here and level < logging.ERROR
        if level >= self.level and record.name != LIBRDKAFKA and (here == self._job or everybodys):
            self._take(record, text[:LONGEST])
