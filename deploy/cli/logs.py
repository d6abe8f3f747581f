"""What commands log to standard error."""

from __future__ import annotations

import logging
import math
import sys
from typing import TextIO

from kafkaio.sparselog import Sparse
from sparkio.workerlog import formatter


def log_job(*, as_json: bool, progress: bool = True) -> None:
    """Logs what needs a look, and of our own code also progress."""
    handler = StandardError()
    handler.setFormatter(formatter(as_json=as_json))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("teacup").setLevel(logging.INFO if progress else logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a batch's error is reported once the query has ended
    handler.addFilter(lambda record: record.module != "java_gateway")  # py4j's, too: it logs what it then raises


def log_each_line_once(level: int) -> None:
    """Logs each line of a library once: cron mails the output, and an unreachable broker would fill the screen."""
    handler, once = logging.StreamHandler(), Sparse(period_s=math.inf)
    ours = logging.Filter(logging.getLogger("teacup.datadelay").name)
    handler.addFilter(lambda record: ours.filter(record) or once.filter(record))
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])


class StandardError(logging.StreamHandler[TextIO]):
    """Looks for standard error at each line: a live status line on a terminal takes its place meanwhile."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # a property in place of an attribute
        return sys.stderr
