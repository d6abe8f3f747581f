"""What a session needs of a cluster: a master that accepts a connection, and executors.

**Master.** It is asked before its JVM tries to, with hundreds of lines in a minute.

**Executors.** A Spark job waits for executors as long as it takes: when all cores are in use by another application,
when there is no worker, or when the master was restarted and does not know this application, which never registers
again. The master says so only in a log. On a local master the driver is the executor. With dynamic allocation executors
are missed only while tasks wait for one. The figures come from the driver's own listeners, so asking for them waits for
nothing.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from teacup.base.now import Every, wall_ms
from teacup.spark.conf import is_local
from teacup.spark.errors import MasterUnreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTED_WITHIN_S = 5.0
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:,/\s]+):(\d+)")
_BY_ADDRESS = ("spark://", "k8s://")

Connect = Callable[[tuple[str, int], float], socket.socket]
POLL_EVERY_S = 1.0
_DRIVER = 1  # the driver is listed among the executors


def addresses_of(master: str) -> list[tuple[str, int]]:
    """Returns host and port of each address of a master; nothing for `local[…]` and `yarn`."""
    if not master.startswith(_BY_ADDRESS):
        return []
    return [(host.strip("[]"), int(port)) for host, port in _ADDRESS.findall(master)]


def check_master(master: str, connect: Connect = socket.create_connection) -> None:
    """Raises `MasterUnreachable` if no address of the master (standbys have others) accepts a connection."""
    why = []
    for address in addresses_of(master):
        try:
            connect(address, CONNECTED_WITHIN_S).close()
        except OSError as error:
            why.append(f"{address[0]}:{address[1]}: {error.strerror or error}")
        else:
            return
    if why:
        raise MasterUnreachable(
            f"Spark's master {master} does not accept a connection ({'; '.join(why)}): start it, or correct "
            "`spark.master`"
        )


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
        self._look, self._executors = Every(POLL_EVERY_S, at_once=True, clock=clock), Executors(_DRIVER)

    def now(self) -> Executors:
        """Returns how many there are, from a look within the last second."""
        with self._lock:
            if not self._local and self._look.due():
                self._executors = self._missing.seen(self._count(), wall_ms(), self._clock(), needed=self._needed())
            return self._executors

    def _count(self) -> int:
        tracker = self._context._jsc.sc().statusTracker()
        return max(len(tracker.getExecutorInfos()) - _DRIVER, 0)

    def _needed(self) -> bool:
        return not self._dynamic or bool(self._context.statusTracker().getActiveJobsIds())
