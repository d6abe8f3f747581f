"""Jobs as plain, validated data: what a job file says, and what `deploy.jobs.runner` carries out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from dedup.identity import Identity
from dedup.replay_range import DedupConfig
from joins.lookup.feed.spec import FeedSpec
from joins.outcome import SIDE_TOPICS
from joins.spec import RECORDS_PER_BATCH, JoinSpec, OnDataLoss, Wait
from teacup.base.errors import ExitCode
from teacup.base.fields import Between, Count, local_folder

Port = Annotated[int, Between("a port, from 0 to 65535", least=0, most=65_535)]


@dataclass(frozen=True, kw_only=True)
class Select:
    """Spark SQL expressions over the columns of `joins.window_join` for what is written to the output topic.

    value   one expression, or those of the fields of a JSON object, by name
    """

    key: str = "key"
    value: str | Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """How results that a replay repeats are recognised in the output.

    header      the header whose value identifies a result; None: the left record's position does (policy `all`: both)
    expression  Spark SQL whose value identifies a result, written as the header `teacup.id`
    """

    header: str | None = None
    expression: str | None = None
    config: DedupConfig = field(default_factory=DedupConfig)


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where rows go. Side topics are optional; a dead letter without a topic stops the job.

    kafka   librdkafka properties of the producer, overriding those of the join
    select  None: the JSON envelope
    exactly_once  rows are written in transactions, and a `read_committed` reader sees each once; if not, at least once
    deduplicate   with at least once: how to drop what a replay repeats; None: it is written again
    """

    topic: str
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    select: Select | None = None
    exactly_once: bool = True
    deduplicate: Deduplicate | None = None
    dead_letter: str | None = None
    late: str | None = None
    unmatched: str | None = None
    unjoined: str | None = None

    @property
    def side_topics(self) -> dict[str, str]:
        """The side topics that are named, by outcome."""
        named = ((outcome, getattr(self, outcome)) for outcome in SIDE_TOPICS)
        return {str(outcome): topic for outcome, topic in named if topic is not None}


@dataclass(frozen=True, kw_only=True)
class MetricsAt:
    """Where a running job serves metrics and probes.

    port   0: any free one, which the log names
    otlp   `http(s)://host:port` of an OpenTelemetry receiver that also gets the metrics
    """

    port: Port = 9464
    host: str = "127.0.0.1"
    otlp: str | None = None


@dataclass(frozen=True, kw_only=True)
class LineageTo:
    """Where a running job reports what it reads and writes, as OpenLineage events.

    url         None: as the OpenLineage client is configured (`OPENLINEAGE_URL`, `openlineage.yml`)
    namespace   the job's namespace
    every_ms    how often a running job reports
    """

    url: str | None = None
    namespace: str = "teacup"
    every_ms: Wait = 60_000


@dataclass(frozen=True, kw_only=True)
class CommonJob:
    """What jobs of every kind have in common.

    kind        what a job file calls it (`deploy.jobfile.kinds`)
    checkpoint  folder or URL, used by this job only
    trigger_ms  how often a batch is tried; 0: as soon as the last one is done; None: until the topic (of a join: left)
                is read to its present end, then stop
    spark       `master` and any Spark property
    brokers_answer_within_ms   how long a start waits for brokers that do not answer
    executors_within_ms        how long the job waits for executors while Spark has none for it
    json_log    JSON lines instead of text
    metrics     None: nowhere
    lineage     None: nowhere
    """

    kind: str
    checkpoint: str
    trigger_ms: int | None = 0
    spark: Mapping[str, str] = field(default_factory=dict)
    brokers_answer_within_ms: Wait = 30_000
    executors_within_ms: Wait = 600_000
    json_log: bool = False
    metrics: MetricsAt | None = None
    lineage: LineageTo | None = None

    @property
    def job_name(self) -> str:
        """Returns the job's name."""
        raise NotImplementedError

    @property
    def stopped(self) -> ExitCode:
        """Returns the exit code of a run that is asked to stop: a job that reads all and ends is not done then."""
        return ExitCode.STOPPED if self.trigger_ms is None else ExitCode.DONE


@dataclass(frozen=True, kw_only=True)
class JoinJob(CommonJob):
    """A join from two topics to a third.

    window_folder  where slices are kept on each machine; None: the temporary folder
    window_backup  whether they are copied to the checkpoint; None: if that is not a folder of this machine
    home           the checkpoint that the file names, if the job was rewound and goes on in a folder of it
    until          the offset of each left partition at which the job ends; None: it does not
    """

    spec: JoinSpec
    output: Output
    window_folder: Path | None = None
    window_backup: bool | None = None
    home: str | None = None
    until: Mapping[int, int] | None = None

    @property
    def locked(self) -> str:
        """Returns the checkpoint that is locked."""
        return self.home or self.checkpoint

    @property
    def job_name(self) -> str:
        return self.spec.name

    @property
    def written_with(self) -> dict[str, str]:
        """Returns the properties that the output and the side outputs are written with."""
        return {**self.spec.kafka, **self.output.kafka}

    @property
    def window_backup_folder(self) -> str | None:
        """Returns the folder or URL that slices are copied to; None: they are not copied."""
        folder = local_folder(self.checkpoint)
        if self.spec.right.source.is_stored or not (
            folder is None if self.window_backup is None else self.window_backup
        ):
            return None
        return f"{self.checkpoint.rstrip('/') if folder is None else folder.absolute()}/slices"

    @property
    def facts_folder(self) -> Path | None:
        """The folder where the driver keeps facts: in a local checkpoint, so that they live as long."""
        checkpoint = local_folder(self.checkpoint)
        return self.window_folder if checkpoint is None else checkpoint / "facts"

    @property
    def facts_folders(self) -> tuple[Path | None, ...]:
        """The folders where facts may be: tasks keep theirs with the window."""
        return self.facts_folder, self.window_folder


@dataclass(frozen=True, kw_only=True)
class DedupJob(CommonJob):
    """One topic deduplicated into another.

    kafka, producer   librdkafka properties for both topics; for the producer, overriding those
    window_ms         how far back, in record times of the output, ids are known
    on_data_loss      "stop", or "continue" with what is left of the source and count the loss
    """

    name: str
    source: str
    output: str
    kafka: Mapping[str, str] = field(repr=False)
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: Identity
    window_ms: Wait = 600_000
    config: DedupConfig = field(default_factory=DedupConfig)
    start: str = "earliest"
    on_data_loss: OnDataLoss = JoinSpec.on_data_loss
    max_records: Count = RECORDS_PER_BATCH

    @property
    def job_name(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class FeederJob(CommonJob):
    """A job that stores right's records for lookup joins."""

    spec: FeedSpec

    @property
    def job_name(self) -> str:
        return self.spec.name
