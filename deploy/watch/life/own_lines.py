"""What a job has logged itself: its warnings, and the error that ended it. One rule for page, probes and `teacup
status`.

    librdkafka's     never: it reports its own attempts, and the job itself reports what comes of them
    another job's    never, in a process with many jobs
    everybody's      warnings only: an error of the process does not end a job without an error of its own
    Spark's          warnings only: with `log: json` the driver logs the lines of the processes that Spark starts, each
                     an object, of which the message, level and job count
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from teacup.base.logs import LIBRDKAFKA, job_here, object_in

LONGEST = 2_000
_LEVELS = {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}


class OwnLines(logging.Handler):
    """Passes the lines of one job to `take`, with their text; `logging` makes one call at a time."""

    def __init__(self, job: str, level: int, take: Callable[[logging.LogRecord, str], None]) -> None:
        """`job` is a name as in `job_here`; `level` is the lowest one to take."""
        super().__init__(level)
        self._job, self._take = job, take

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line if it belongs to the job."""
        text, here, level = record.getMessage(), job_here(), record.levelno
        if (line := object_in(text)) is not None and isinstance(line.get("message"), str):
            text, level = line["message"], min(level, _LEVELS.get(str(line.get("level")), level))
            here = here or (self._job and str(line.get("job", "")))  # the only job of a process owns all lines
        everybodys = not here and level < logging.ERROR
        if level >= self.level and record.name != LIBRDKAFKA and (here == self._job or everybodys):
            self._take(record, text[:LONGEST])
