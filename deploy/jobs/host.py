"""What a job has of its process: all of it, or a share; and its Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from deploy.jobfile.job import CommonJob
from deploy.watch.supervisor import Supervised, Supervisor
from teacup.base.errors import ExitCode
from teacup.base.logs import worker_environment
from teacup.spark.cluster import Executors
from teacup.spark.java import check_java
from teacup.spark.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from deploy.kinds.job_kind import JobKind


class SparkOfJob(Protocol):
    """A job's own Spark session (`teacup.spark.session.Session`), or its share of one."""

    @property
    def spark(self) -> SparkSession: ...

    def warm_up(self) -> None: ...

    def executors(self) -> Executors: ...

    def give_up(self) -> None: ...

    def ended(self) -> Exception | None: ...


class Host(Protocol):
    """The job's process, its own (`Alone`) or shared (`deploy.jobs.many_jobs`).

    supervisor      is notified of the job's state
    poll_slowdown   multiplier of the poll interval when jobs share a process
    """

    @property
    def supervisor(self) -> Supervised: ...

    @property
    def poll_slowdown(self) -> float: ...

    def session(self, kind: JobKind) -> AbstractContextManager[SparkOfJob]:
        """Opens the job's session; its JVM may still be starting."""
        ...

    def restart_ms(self, code: ExitCode) -> int | None:
        """Returns when this process restarts the job after this exit code; None: it does not."""
        ...


class Alone:
    """The process of one job."""

    poll_slowdown = 1.0

    def __init__(self) -> None:
        self.supervisor = Supervisor()

    def restart_ms(self, code: ExitCode) -> int | None:
        """None: restarts are up to the process's supervisor."""
        return None

    @contextmanager
    def session(self, kind: JobKind) -> Iterator[SparkOfJob]:
        check_java()
        properties = spark_properties(kind.common)
        with closing(
            Session(kind.name, properties, rows_in_jvm=kind.rows_in_jvm, exactly_once=kind.exactly_once)
        ) as session:
            yield session


def spark_properties(
    job: CommonJob, ours: Mapping[str, str] = MappingProxyType({}), *, name: str | None = None
) -> dict[str, str]:
    """Returns the properties of a job's Spark session: `ours` and those for its log, overridden by the job file.

    name   the name that its workers log; None: the job's
    """
    log_as = worker_environment(as_json=job.json_log, job=job.job_name if name is None else name)
    return {**ours, **log_as, **job.spark}
