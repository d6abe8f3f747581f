"""The metrics of jobs: their names, units, labels and meanings. Pure.

Each metric is declared once, here, and a report gives its numbers as samples of these metrics. The documentation, the
dashboard and the alert rules are generated from the same declarations (`deploy.watch.manifests`).

    yield ROWS(report.rows["matched"], outcome="matched", reason="")

Names follow Prometheus' conventions (base units; counters end in `_total`). A label has few values, known in advance:
sides, outcomes, reasons, stages, the topics of the job. Partitions, keys and batches are not labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from teacup.base.stage_times import longest
from teacup.kafka.headers import DEAD_REASONS
from teacup.spark.jvm_errors import TaskRun, restarts, retries

PREFIX = "teacup_"
JOB_LABEL = "teacup_job"
"""The label of every series with the name of the job, because Prometheus itself uses `job`."""


class Type(StrEnum):
    """How samples of a metric are combined: added up, replaced, or counted by size."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    name     without the prefix, but with `_total` for a counter
    labels   the names of its labels, in order
    buckets  the bounds of a histogram, without infinity
    """

    name: str
    type: Type
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = field(default=(), repr=False)

    @property
    def full_name(self) -> str:
        """The name in Prometheus."""
        return f"{PREFIX}{self.name}"

    def __call__(self, value: float, **labels: str) -> Measured:
        """Returns a sample. Raises `KeyError` if a label is missing."""
        return Measured(self, value, tuple(labels[name] for name in self.labels))


@dataclass(frozen=True, slots=True)
class Measured:
    """A value of a metric, with its label values in order."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[str, str]:
        """The label values by their names."""
        return dict(zip(self.metric.labels, self.labels, strict=True))


@dataclass(frozen=True, slots=True)
class Effort:
    """The time and the retries that a batch took.

    stages    seconds by stage, each from the task or bucket where it took longest
    retries   task attempts after a failed one
    restarts  workers that replaced one in which an attempt failed
    """

    stages: Mapping[str, float] = field(default_factory=dict)
    retries: int = 0
    restarts: int = 0

    @classmethod
    def of(cls, times: Iterable[Mapping[str, float]], runs: Iterable[TaskRun]) -> Effort:
        """Combines the values of several summaries."""
        of_tasks = list(runs)
        return cls(longest(times), retries(of_tasks), restarts(of_tasks))

    def samples(self) -> Iterator[Measured]:
        """Yields the values as metrics."""
        yield TASK_RETRIES(self.retries)
        yield WORKER_RESTARTS(self.restarts)
        for stage, seconds in self.stages.items():
            yield STAGE_SECONDS(seconds, stage=stage)

    def for_machines(self) -> dict[str, float]:
        """Returns the seconds of each stage, rounded."""
        return {stage: round(seconds, 6) for stage, seconds in self.stages.items()}


def zeros(sides: Iterable[str], outcomes: Iterable[tuple[str, str]]) -> Iterator[Measured]:
    """Yields zeros for the counters of these sides, of these (outcome, reason) pairs, and of all dead letters."""
    for side in sides:
        yield READ(0, side=side)
        yield LATE(0, side=side)
    for outcome, reason in outcomes:
        yield ROWS(0, outcome=outcome, reason=reason)
    for reason in DEAD_REASONS:
        yield DEAD(0, reason=reason)


def word(reason: str) -> str:
    """Returns the reason of a dead letter without the details for people, because a label has few values."""
    return reason.partition(":")[0]


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return _declared(Metric(f"{name}_total", Type.COUNTER, meaning, labels))


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return _declared(Metric(name, Type.GAUGE, meaning, labels))


def _seconds(name: str, meaning: str, *labels: str) -> Metric:
    return _declared(Metric(f"{name}_seconds", Type.HISTOGRAM, meaning, labels, _SECONDS))


def _declared(metric: Metric) -> Metric:
    _all.append(metric)
    return metric


_all: list[Metric] = []

# The job
BUILD = _gauge("build_info", "Version of Teacup and of what it runs on; always 1", "version", "python")
JOB = _gauge("job_info", "What the job is; always 1", "kind")
STATE = _gauge("state", "Whether the job is in this state (1), or not (0); it is in one of them", "state")
RUNNING = _gauge("running", "Whether the job has claimed its output and runs (1), or not (0)")
HELD = _gauge("held", "Whether this holds the job (1), or not (0)", "reason")
BROKERS = _gauge("brokers_up", "Whether the brokers answered when they were asked last (1), or not, or not yet (0)")
EXECUTORS = _gauge("executors", "Executors that Spark has for the job; on a local master the driver is the only one")
NO_EXECUTOR = _gauge("no_executor_seconds", "How long Spark has had no executor for a job that needs one")
RESTARTS = _counter("restarts", "Starts of the job in this process, after its first one")
LAST_EXIT_CODE = _gauge("last_exit_code", "Exit code of the last run that has ended in this process; 0: it ended well")
WARNINGS = _counter(
    "warnings",
    "Warnings about what was read or is configured, each as it begins or grows tenfold; the log has their texts",
)

# Batches
BATCHES = _counter("batches", "Batches that were carried out")
LAST_BATCH = _gauge(
    "last_batch_timestamp_seconds", "When the last batch was carried out; before the first one, when the job began"
)
BATCH_SECONDS = _seconds("batch_duration", "Duration of a batch, without its plan")
STAGE_SECONDS = _seconds(
    "batch_stage_duration", "Duration of a stage of a batch, of the bucket in which it took longest", "stage"
)
"""A join has plan, fetch (waiting for records), index (adding right to the window), match, produce and commit. A lookup
join looks up instead of indexing, a feeder stores, a deduplication matches ids. The rest of the time is Spark's."""
WAITING = _counter(
    "waiting_seconds", "How long nothing was read although there was something to read, by what was missing", "reason"
)
REASONS_TO_WAIT = (
    *("unread", "open_transaction", "idle_hold", "clock", "data_delay", "delay_unknown"),
    *("brokers", "wrong_clock", "other"),
)
HELD_BY = (*REASONS_TO_WAIT, "executors")
"""What can hold a job: what its plan waits for, or the lack of a Spark executor."""
TASK_RETRIES = _counter("task_retries", "Tasks that were tried again after a failure, of batches that were carried out")
FAILED_ATTEMPTS = _counter("failed_attempts", "Failed task attempts, counted while their batch is under way")
WORKER_RESTARTS = _counter("worker_restarts", "Python workers that replaced one that ended or was killed")

# What comes in
READ = _counter("records_read", "Records that were read", "side")
LATE = _counter("late_records", "Records beyond the disorder of their side", "side")
DISORDER = _gauge("disorder_seconds", "Largest disorder in the last batch", "side")
WATERMARK = _gauge(
    "watermark_timestamp_seconds", "Every unread record has at least this time: of the slowest partition", "side"
)
FASTEST = _gauge("fastest_watermark_timestamp_seconds", "The watermark of the fastest partition", "side")
SLOWEST = _gauge(
    "slowest_partition", "Number of the partition that stands out as the slowest; -1: all are alike", "side"
)
RIGHT_LAG = _declared(
    Metric(
        "right_lag_seconds",
        Type.HISTOGRAM,
        "How long after left's time the right record of a row became readable, by a sample of the rows",
        buckets=(0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0),
    )
)
BEHIND = _gauge("behind_seconds", "How far the job is behind the clock in event time; 0 once all is read")
LAG = _gauge("lag_records", "Records that are readable and not read yet", "side")

# What goes out
ROWS = _counter(
    "rows",
    "Rows, or records that were stored or passed on, by what became of them: what cannot be written is a dead letter",
    *("outcome", "reason"),
)
SENT = _counter("sent_records", "Records in the output, by topic", "topic")
EXPIRED = _counter(
    "expired_records", "Records that a namespace no longer keeps when they are fed, which are sent as well"
)
DEAD = _counter("dead_letters", "Records that could be neither used nor written", "reason")
MISMATCHES = _counter("schema_mismatches", "Rows with a value that is not of the `schema` of its side", "side")
LEFT_OUT = _counter("left_out_rows", "Rows that `join.type` leaves out of the output")
REPLAYED = _counter("receipt_rows", "Rows that a receipt named, so that a repeated batch did not write them again")
DROPPED = _counter("duplicates_dropped", "Rows and records that were in the output already")
FILTERING = _gauge("deduplicator_filtering", "Whether a worker's deduplicator filters (1) or is off (0)")
KNOWN_IDS = _gauge("deduplicator_known_ids", "Ids that a deduplicated topic remembers")
FORGOTTEN = _counter("deduplicator_forgotten_ids", "Ids that were forgotten within the window because of the limit")
SKIPPED = _counter("skipped_records", "Records that retention deleted before they were read")

# The window
WINDOW_RECORDS = _gauge("window_records", "Right records in the window")
WINDOW_BYTES = _gauge("window_bytes", "Size of the window")
RESTORED = _counter("restored_windows", "Windows of a bucket, by where the batch found them", "source")
PRESUMED = _gauge("presumed_records", "Right records of the window that count as joined because it is not known")

METRICS = tuple(_all)
