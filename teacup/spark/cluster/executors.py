"""Whether Spark has executors for a session's tasks, as a master that has none to give says so only in a log.

A Spark job waits for executors as long as it takes: when all cores are in use by another application, when there is no
worker, or when the master was restarted and does not know this application, which never registers again. On a local
master the driver is the executor. With dynamic allocation executors are missed only while tasks wait for one.

The figures come from the driver's own listeners, so asking for them waits for nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from teacup.base.now import Every, wall_ms
from teacup.spark.conf import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 1.0
_DRIVER = 1  # the driver is listed among the executors


@dataclass(frozen=True, slots=True)
class Executors:
    """How many executors there are.

    missing_ms   since when there is none, wall clock; None if there are some, or none is needed
    missing_s    how long there has been none
    """

    count: int
    missing_ms: int | None = None
    missing_s: float = 0.0


class Missing:
    """Tracks since when executors are missing."""

    def __init__(self) -> None:
        self._since: tuple[int, float] | None = None

    def seen(self, count: int, now_ms: int, now_s: float, *, needed: bool = True) -> Executors:
        """Takes a look. now_ms: wall clock; now_s: monotonic clock; needed: whether none is too few."""
        if count or not needed:
            self._since = None
            return Executors(count)
        since_ms, since_s = self._since = self._since or (now_ms, now_s)
        return Executors(0, since_ms, now_s - since_s)


class ExecutorWatch:
    """Looks at the executors of a session, at most once a second. Thread-safe: several jobs may share a session."""

    def __init__(self, spark: SparkSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = spark.sparkContext
        self._local = is_local(str(self._context.master))
        self._dynamic = spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        self._missing, self._clock, self._lock = Missing(), clock, threading.Lock()
        self._look, self._found = Every(LOOK_EVERY_S, at_once=True, clock=clock), Executors(_DRIVER)

    def now(self) -> Executors:
        """Returns how many there are, from a look within the last second."""
        with self._lock:
            if not self._local and self._look.due():
                self._found = self._missing.seen(self._count(), wall_ms(), self._clock(), needed=self._needed())
            return self._found

    def _count(self) -> int:
        tracker = self._context._jsc.sc().statusTracker()
        return max(len(tracker.getExecutorInfos()) - _DRIVER, 0)

    def _needed(self) -> bool:
        return not self._dynamic or bool(self._context.statusTracker().getActiveJobsIds())
