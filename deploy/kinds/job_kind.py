"""What a kind of job gives to the runner, to `teacup check --connect` and to `teacup status`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from deploy.check.checks import Checks
from deploy.check.uses import Named
from deploy.jobfile.job import CommonJob
from deploy.jobfile.kinds import KINDS, NO_CONSENT, Consent
from deploy.kinds.event_time_lag import EventTimeLag
from deploy.watch.backlog import Positions
from deploy.watch.listener import Report
from deploy.watch.measures import Measured
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.log.groups import Commit
from teacup.kafka.log.topic_log import Ends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from teacup.spark.batches.jobs import Stream


class JobKind(ABC):
    """What each kind of job provides to the runner, and to `teacup check --connect`.

    summary       the class of a task's report
    rows_in_jvm   whether rows, not only summaries, pass through the JVM
    exactly_once  whether rows are written in transactions
    consent       what the operator agrees to (`kind_of`)

    Every call may raise; an error of Teacup's own ends the job with its exit code.
    """

    summary: type[Any]
    rows_in_jvm = False
    exactly_once = False
    consent = NO_CONSENT

    def __init__(self, common: CommonJob, kafka: Mapping[str, str]) -> None:
        self.common, self.name, self.kafka = common, common.job_name, kafka

    @abstractmethod
    def opening(self) -> str:
        """Returns what the job does, in one line."""

    def settings(self) -> Mapping[str, Any]:
        """Returns the settings that the page and `/v1/job` show; `output`: where rows go. Optional hook."""
        return {}

    @abstractmethod
    def topics(self) -> list[Named]:
        """Returns the topics that the job reads or writes; each must exist."""

    def fields(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the known fields of its topics: by topic, names and types. Optional hook."""
        return {}

    @abstractmethod
    def checks(self) -> Checks:
        """Returns what `teacup check --connect` checks besides the topics."""

    def find_checkpoint(self) -> None:  # noqa: B027 - optional
        """Sets `common.checkpoint` to the folder in which the job goes on. Optional hook."""

    def read_checkpoint(self) -> None:  # noqa: B027 - optional
        """Reads the checkpoint, before any broker is contacted. Optional hook."""

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Waits until the job's inputs answer, or `stopped()`. Raises `KafkaUnavailable`, `ConfigError`."""
        wait_for_brokers(self.kafka, stopped, self.common.brokers_answer_within_ms / 1000)

    def prepare(self) -> None:  # noqa: B027 - optional
        """Runs the checks that need brokers but not Spark, and claims the output. Optional hook."""

    @abstractmethod
    def stream(self, spark: SparkSession, stopping: Callable[[], bool]) -> Stream:
        """Returns how batches are carried out, whose tasks report rows of `SUMMARY_SCHEMA`.

        Nothing more is planned once it is `stopping`.
        """

    @abstractmethod
    def report(self, summaries: Sequence[Any], seconds: float, at_ms: int) -> Report:
        """Adds up the summaries of a batch. Raises `AccountsDiffer` if one is missing or occurs twice."""

    def keep(self, summaries: Sequence[Any]) -> None:  # noqa: B027 - optional
        """Stores what the next plan needs of a completed batch. Optional hook."""

    def zeros(self) -> Iterable[Measured]:
        """Returns the labelled counters of reports, as 0. Optional hook."""
        return ()

    @abstractmethod
    def positions(self, end: Mapping[str, Any]) -> Positions:
        """Returns how far a batch has read. end: as in the checkpoint."""

    def event_time_lag(
        self, end: Mapping[str, Any], ends: Mapping[str, Mapping[int, Ends]], now_ms: int
    ) -> EventTimeLag:
        """Returns how far a batch got in event time, and what holds the job. Optional hook.

        end    of a batch, as in the checkpoint
        ends   where the topics end now
        """
        return EventTimeLag()

    def group_offsets(self, end: Mapping[str, Any]) -> Commit:
        """Returns what a batch commits to the job's consumer group. Optional hook."""
        return {}, ""


def kind_of(job: CommonJob, consent: Consent = NO_CONSENT) -> JobKind:
    """Returns what carries out a job. Raises `ValueError` for a kind that is not registered."""
    if job.kind not in KINDS:
        raise ValueError(
            f"{job.kind!r} is not a kind of job; registered are {', '.join(KINDS)} (deploy/jobfile/kinds.py)"
        )
    make: Callable[..., JobKind] = resolve_name(KINDS[job.kind].kind_at)
    made = make(job)
    made.consent = consent
    return made
