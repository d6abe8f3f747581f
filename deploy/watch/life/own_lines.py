"""What a job has logged itself: its warnings, and the error that it ended for. One rule for page, probes and `teacup
status`.

    librdkafka's     never: it reports its own attempts, and what comes of them the job says itself
    another job's    never, where a process has several
    everybody's      warnings only: a job does not end for an error of the process without one of its own
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from teacup.base.logs import LIBRDKAFKA, job_here

LONGEST = 2_000


class OwnLines(logging.Handler):
    """Hands the lines of one job to `take`, with their text; `logging` calls one at a time."""

    def __init__(self, job: str, level: int, take: Callable[[logging.LogRecord, str], None]) -> None:
        """job: as `job_here` names it; level: from which on."""
        super().__init__(level)
        self._job, self._take = job, take

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line, if it is one of the job's."""
        here = job_here()
        everybodys = not here and record.levelno < logging.ERROR
        if record.name != LIBRDKAFKA and (here == self._job or everybodys):
            self._take(record, record.getMessage()[:LONGEST])
