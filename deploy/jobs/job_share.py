"""A job's share of a process with many jobs: its part of the Spark session, and its restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.jobs.host import SparkOfJob, spark_properties
from deploy.jobs.stopping import StopRequest
from deploy.kinds.job_kind import JobKind
from deploy.watch.metrics import STANDS_STILL_S
from deploy.watch.supervisor import Supervised
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.spark.cluster import Executors
from teacup.spark.java import check_java
from teacup.spark.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIED_AGAIN = frozenset({ExitCode.FAILED, ExitCode.UNREACHABLE})
WAITS_S = (2.0, 60.0)
"""The pause before a restart after a failure: the first, doubled each time, and the longest."""
JOBS_AT_FULL_PACE, MOST_SLOWDOWN = 5, 6.0


class SharedSession:
    """The session of many jobs, from here to `close`."""

    def __init__(self, kinds: Sequence[JobKind], files: int) -> None:
        """files: how many jobs there are if all files are valid. Raises what `Session` raises."""
        check_java()
        jobs = [kind.common for kind in kinds]
        self.properties = jobs[0].spark
        self.poll_slowdown = min(max(files / JOBS_AT_FULL_PACE, 1.0), MOST_SLOWDOWN)
        self.session = Session(
            "teacup",
            spark_properties(jobs[0], {"spark.scheduler.mode": "FAIR"}, name=""),
            rows_in_jvm=any(kind.rows_in_jvm for kind in kinds),
            exactly_once=all(kind.exactly_once for kind in kinds),
            jobs=files,
        )
        self._lock, self._warm = threading.Lock(), False
        self.given_up = False

    @property
    def gone(self) -> bool:
        """Whether no job can start in it: its JVM has ended, or executors have been missing for too long."""
        return self.session.gone or self.given_up

    def close(self) -> None:
        """Stops Spark."""
        self.session.close()

    def spark(self, name: str) -> SparkSession:
        """Returns a session for a job, with its own settings and scheduler pool."""
        with self._lock:
            shared = self.session.spark
        shared.sparkContext.setLocalProperty("spark.scheduler.pool", name)  # a property of this thread
        return shared.newSession()

    def warm_up(self) -> None:
        """Starts a worker, once."""
        with self._lock:
            if not self._warm:
                self._warm = True
                self.session.warm_up()


class JobShare:
    """One run's share of a process (`deploy.jobs.host.Host`), and its reports to the supervisor.

    due_s   once it has ended: when the job is started again, by the monotonic clock; None: never
    next_s  the pause before the next restart, if that start fails
    """

    def __init__(self, session: SharedSession, request: StopRequest, wait_s: float) -> None:
        """wait_s: the pause before the next start, if this run fails soon."""
        self._session, self._request, self._wait_s = session, request, wait_s
        self.is_ready, self._turned_s, self._began_s = False, 0.0, time.monotonic()
        self.due_s: float | None = None
        self.next_s = wait_s

    @property
    def poll_slowdown(self) -> float:
        return self._session.poll_slowdown

    @property
    def supervisor(self) -> Supervised:
        return self

    def ready(self) -> None:
        self.is_ready, self._turned_s = True, time.monotonic()

    def alive(self, *, stops: bool = False) -> None:
        self._turned_s = time.monotonic()

    @property
    def stands_still(self) -> bool:
        """Whether its loop should run, but does not."""
        return self.is_ready and time.monotonic() - self._turned_s > STANDS_STILL_S

    def restart_ms(self, code: ExitCode) -> int | None:
        """Decides whether and when the job is started again, and returns when, by the wall clock."""
        if code not in TRIED_AGAIN or self._request.asked or self._session.gone:
            return None
        now_s = time.monotonic()
        wait_s = WAITS_S[0] if now_s - self._began_s > WAITS_S[1] else self._wait_s
        self.due_s, self.next_s = now_s + wait_s, min(2 * wait_s, WAITS_S[1])
        return wall_ms() + round(wait_s * 1000)

    @contextmanager
    def session(self, kind: JobKind) -> Iterator[SparkOfJob]:
        try:
            yield _SessionShare(self._session, kind.name)
        finally:
            self.is_ready = False


class _SessionShare:
    """The session as one job sees it."""

    def __init__(self, shared: SharedSession, name: str) -> None:
        self._shared, self._name = shared, name
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            self._spark = self._shared.spark(self._name)
        return self._spark

    def warm_up(self) -> None:
        self._shared.warm_up()

    def executors(self) -> Executors:
        return self._shared.session.executors()

    def give_up(self) -> None:
        """Ends all jobs, as all lack what this one lacks."""
        self._shared.given_up = True

    def ended(self) -> Exception | None:
        return self._shared.session.ended()
