"""Streaming queries of Spark that end by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException

_TOO_SLOW = "Python worker failed to connect back"


def run_to_its_end(start: Callable[[], Any], within_s: float = 240.0) -> Any:
    """The streaming query that `start` starts, once it has read what there was. Raises what ended it.

    Spark waits ten seconds for the process that plans. If that was too short, the query is started again.
    AssertionError after `within_s`.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        query = start()
        try:
            if query.awaitTermination(max(deadline_s - time.monotonic(), 1.0)):
                return query
        except StreamingQueryException as error:
            if _TOO_SLOW not in str(error) or time.monotonic() > deadline_s:
                raise
            continue
        query.stop()
        raise AssertionError(f"the query is not at its end within {within_s:g} s")
