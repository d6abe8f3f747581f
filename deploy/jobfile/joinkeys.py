"""The keys of a join's job file: types, units, defaults and meanings, defined only here.

The JSON schema, the table in the documentation and the messages of `deploy.jobfile.load` are made from these models.
Defaults are given as people write them (`10s`); values come out in milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from datadelay.progress import Idle
from deploy.jobfile.values import (
    ApiUrl,
    Duration,
    KafkaProperties,
    Name,
    Namespace,
    ProducerProperties,
    SparkProperties,
    SparkWithoutSpeculation,
    Start,
    Text,
    TimePath,
    Topic,
    looked_into,
    spark_without_speculation,
)
from deploy.sparkconf import DEFAULT_MASTER
from joins.spec import Format, Policy
from kafkaio.eventtime import OUTLIERS
from kafkaio.headers import PREFIX
from settings.keys import Keys, as_written, at_keys


class SideKeys(Keys):
    """One of the two topics."""

    topic: Topic = Field(description="Kafka topic")
    time: TimePath = Field(
        default="kafka",
        description="event time: `kafka` is the record's timestamp; else a JSON path into the value (`$.event.time`) "
        "to milliseconds since the epoch or ISO-8601 text with a zone",
    )
    disorder: Duration = Field(
        default=as_written("1s"),
        description="how far below the largest time before it in its partition a record's time may lie; records "
        "beyond it are late",
    )
    format: Format = Field(
        default=Format.BYTES,
        description="how values appear in the envelope: `json` embedded, `text` as text, `bytes` as base64",
    )

    @model_validator(mode="after")
    def _payload_time_is_json(self) -> SideKeys:
        if self.time != "kafka" and self.format is not Format.JSON:
            raise at_keys([("format", f"give json: a time in the value ({self.time}) needs it")])
        return self


class JoinKeys(Keys):
    """Which right records match: keys equal, right.time in [left.time - before, left.time + after]."""

    before: Duration = Field(description="how far before left's time right's may lie, both ends included")
    after: Duration = Field(
        default=as_written("0s"),
        description="how far after left's time right's may lie; left waits that long",
    )
    policy: Policy = Field(
        default=Policy.NEAREST,
        description="which of several matches: nearest in time, first or last give one row per left record; all gives "
        "one row per pair",
    )


class SelectKeys(Keys):
    """Spark SQL expressions over the columns of `joins.window_join`, instead of the envelope."""

    key: Text = Field(description="Spark SQL for the record's key, cast to binary")
    value: Text = Field(description="Spark SQL for the record's value, cast to binary")
    headers: dict[str, Text] = Field(
        default={}, description="header name to Spark SQL, cast to binary; names that begin with `teacup.` are reserved"
    )

    @model_validator(mode="after")
    def _leave_ours_alone(self) -> SelectKeys:
        for name in self.headers:
            if name.startswith(PREFIX):
                raise at_keys([(f"headers.{name}", f"names that begin with {PREFIX!r} are ours; choose another one")])
        return self


class DeduplicateKeys(Keys):
    """After a restart or a retry, results that are already in the output are recognised there and dropped."""

    header: Text | None = Field(
        default=None,
        description="header whose value identifies a result (one of `select.headers`). It must be unique: other rows "
        "with the same value are dropped while filtering. Without it, the position of the left record is the id, with "
        "`policy: all` those of both records. A row without a value goes out and is counted",
    )
    expression: Text | None = Field(
        default=None,
        description="instead of `header`: Spark SQL whose value is unique to a result, such as "
        "`concat('clicks/', left_partition, ':', left_offset)`; written as the header `teacup.id`; needs `select`; a "
        "row without a value goes out and is counted",
    )
    limit: int = Field(default=5_000_000, ge=1, description="the most ids to load, newest first")
    lookback: Duration = Field(
        default=as_written("1m"), description="how much further back than the replay range the output is read"
    )
    quiet: Duration = Field(default=as_written("1m"), description="filtering ends after this long without a duplicate")


class OutputKeys(Keys):
    """Where joined rows go."""

    topic: Topic = Field(description="Kafka topic for the rows")
    kafka: ProducerProperties = Field(
        default={}, description="librdkafka properties of the producer, over those of `kafka`"
    )
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description="exactly-once writes in transactions: readers with `isolation.level=read_committed` see every row "
        "once; at-least-once writes rows again that a retry or restart repeats",
    )
    deduplicate: DeduplicateKeys | None = Field(
        default=None, description="with `at-least-once`: drop what a restart or a retry repeats; `{}` for the defaults"
    )
    select: SelectKeys | None = Field(
        default=None, description="Spark SQL for key, value and headers; without it the JSON envelope is written"
    )

    @model_validator(mode="after")
    def _deduplicate_fits(self) -> OutputKeys:
        asked = self.deduplicate
        if asked is None:
            return self
        if self.delivery != "at-least-once":
            raise at_keys([("deduplicate", "is for delivery: at-least-once; exactly-once output has no duplicates")])
        if asked.header is not None and asked.expression is not None:
            raise at_keys([("deduplicate", "give header or expression, not both")])
        if asked.expression is not None and self.select is None:
            raise at_keys([("deduplicate", "an expression needs select; the envelope is identified by positions")])
        if asked.header is not None and asked.header not in (self.select.headers if self.select else {}):
            raise at_keys([("deduplicate", f"{asked.header!r} is none of select.headers; results would have no id")])
        return self


class TopicsKeys(Keys):
    """Topics for what does not go the usual way; without a topic it is counted but not copied."""

    dead_letter: Topic | None = Field(
        default=None,
        description="bad records (unparsable or future time, invalid JSON), and rows that cannot be written (too "
        "large, a failing `select`), with reason and position; without it such a record stops the job",
    )
    late: Topic | None = Field(default=None, description="copies of records beyond their disorder")
    unmatched: Topic | None = Field(default=None, description="copies of left records without a match")
    unjoined: Topic | None = Field(default=None, description="right records that expired and appear in no output row")


class EveryKeys(Keys):
    """A batch is tried at this interval."""

    every: Duration = Field(
        default=as_written("0s"), description="how often to run a batch; 0s: as soon as the last one is done"
    )


def _trigger_form(value: Any) -> str:
    return "<word>" if isinstance(value, str) else "<mapping>"


Trigger = Annotated[
    Annotated[EveryKeys, Tag("<mapping>")] | Annotated[Literal["available_now"], Tag("<word>")],
    Discriminator(_trigger_form),
]


class SourceKeys(Keys):
    """The topic that is read."""

    topic: Topic = Field(description="Kafka topic to read")


class DedupOutputKeys(Keys):
    """Where records go, unchanged, to the partition that they came from."""

    topic: Topic = Field(description="Kafka topic to write; it needs as many partitions as the source")
    kafka: ProducerProperties = Field(
        default={}, description="librdkafka properties of the producer, over those of `kafka`"
    )


class DedupKeys(Keys):
    """One topic deduplicated into another: a record whose id is already in the output is dropped."""

    name: Name = Field(description="name of the job")
    kind: Literal["dedup"] = Field(description="what the job is")
    kafka: KafkaProperties = Field(
        description="librdkafka properties for both topics; "
        "`bootstrap.servers` is required; TLS and SASL properties are passed on"
    )
    source: SourceKeys = Field(description="the topic that is read")
    output: DedupOutputKeys = Field(description="where records go")
    id: Annotated[str, Field(pattern=r"^(positions|key|header:.+)$")] = Field(
        default="positions",
        description="`positions` (the headers `teacup.batch`, `teacup.left` and `teacup.right` of a join's "
        "at-least-once output), `key`, or `header:NAME`; records without an id go through and are counted",
    )
    window: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("10m"),
        description="how long an id is remembered, in record times of the output; within one batch an id goes out "
        "once, whatever its times",
    )
    limit: int = Field(
        default=5_000_000, ge=4, description="the most ids remembered per partition; the oldest are forgotten first"
    )
    start: Literal["earliest", "latest"] = Field(default="earliest", description="where a new checkpoint begins")
    records_per_batch: int = Field(default=1_000_000, ge=1, description="limit per batch")
    trigger: Trigger = Field(
        default=EveryKeys(), description="`every`, or `available_now`: until the present end, then stop"
    )
    checkpoint: Annotated[Text, AfterValidator(looked_into)] = Field(
        description="folder or URL for positions, used by this job only; a URL needs its fsspec driver (`s3fs` for "
        "`s3a://`), because Python reads it too"
    )
    spark: SparkWithoutSpeculation = Field(
        default={"master": DEFAULT_MASTER},
        description="`master`, and any Spark property; local[n] becomes local[n,4], so that failed tasks are retried",
    )
    log: Literal["people", "json"] = Field(
        default="people", description="one line per batch for people, or one JSON object per line"
    )

    @model_validator(mode="after")
    def _topics_differ(self) -> DedupKeys:
        if self.source.topic == self.output.topic:
            raise at_keys([("output.topic", f"{self.output.topic!r} is also the source: give another topic")])
        return self


class WindowJoinKeys(Keys):
    """An in-memory join of two topics, co-partitioned by key, to a third."""

    name: Name = Field(description="name of the job, and of the consumer group that its positions are committed to")
    kind: Literal["window-join"] = Field(description="what the job is")
    kafka: KafkaProperties = Field(
        description="librdkafka properties for all topics; "
        "`bootstrap.servers` is required; TLS and SASL properties are passed on"
    )
    left: SideKeys = Field(description="the topic that loses no record")
    right: SideKeys = Field(description="the topic that completes it")
    join: JoinKeys = Field(description="which right records match")
    start: Start = Field(
        default="earliest",
        description="where left begins in a new checkpoint: earliest, latest or an ISO-8601 time with a zone; right "
        "begins as far before it as matches need",
    )
    producer_delay: Duration = Field(
        default=as_written("10s"),
        description="the longest time between a record's event time and when it can be read; used for partitions read "
        "to their end",
    )
    max_future_skew: Duration = Field(
        default=as_written("1m"), description="a record further ahead of the clock goes to the dead-letter topic"
    )
    outliers: int = Field(
        default=OUTLIERS,
        ge=0,
        le=1_000,
        description="how many of 2n + 1 consecutive records may have a wrong time (late, or ahead of their neighbours) "
        "without changing the rows of the others; 0: every record is believed",
    )
    idle: Idle = Field(
        default=Idle.ADVANCE,
        description="a partition read to its end follows the clock (`advance`), or holds the join (`hold`: topics "
        "replayed with old times)",
    )
    max_wait: Annotated[Duration, Field(gt=0)] | None = Field(
        default=None,
        description="left goes out unmatched (`right_stalled`) when right makes no progress for so long; null: never",
    )
    records_per_batch: int = Field(default=1_000_000, ge=1, description="soft limit, left and right together")
    on_data_loss: Literal["stop", "continue"] = Field(
        default="stop",
        description="when records that are still needed are gone from Kafka; `continue` goes on and counts them",
    )
    output: OutputKeys = Field(description="where rows go")
    topics: TopicsKeys = Field(default=TopicsKeys(), description="side outputs")
    trigger: Trigger = Field(
        default=EveryKeys(),
        description="`every`, or `available_now`: until left is read to its present end, then stop",
    )
    checkpoint: Text = Field(
        description="folder or URL for positions and the join's description, used by this job only; with "
        "`output.deduplicate` a URL needs its fsspec driver (`s3fs` for `s3a://`)"
    )
    window_folder: Path | None = Field(
        default=None,
        description="where the window's slices are cached on each machine; null: a folder of the user in the "
        "temporary folder; if it cannot be written to, restarts are slower, with a warning",
    )
    spark: SparkProperties = Field(
        default={"master": DEFAULT_MASTER},
        description="`master`, and any Spark property; local[n] becomes local[n,4], so that failed tasks are retried; "
        "`spark.speculation` needs `exactly-once`, and copies a task after 30 s at the earliest",
    )
    log: Literal["people", "json"] = Field(
        default="people", description="one line per batch for people, or one JSON object per line"
    )

    @field_validator("spark")
    @classmethod
    def _copies_of_a_task_do_no_harm(cls, spark: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        output = info.data.get("output")  # None where it is not valid itself
        return spark if output is None or output.delivery == "exactly-once" else spark_without_speculation(spark)

    @field_validator("checkpoint")
    @classmethod
    def _restarts_can_be_noticed(cls, checkpoint: str, info: ValidationInfo) -> str:
        output = info.data.get("output")  # None where it is not valid itself
        return checkpoint if output is None or output.deduplicate is None else looked_into(checkpoint)


class StorageKeys(Keys):
    """The storage API that the feeder writes to."""

    url: ApiUrl = Field(description="`http(s)://host:port` of the storage API")
    namespace: Namespace = Field(description="where the feeder writes right records; it needs a retention")
    token: Text | None = Field(default=None, description="bearer token; write `${NAME}`, never the token itself")
    connect_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("2s"), description="time-out of a connection attempt"
    )
    read_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("10s"), description="time-out between two pieces of an answer"
    )
    keys_per_request: int = Field(default=5_000, ge=1, le=10_000, description="keys looked up by one request")
    requests_at_once: int = Field(default=4, ge=1, description="concurrent requests per task")
    unreachable_for: Duration = Field(
        default=as_written("5m"), description="how long a task waits for a failing store before its batch fails"
    )


class DelayKeys(Keys):
    """The Data Delay API that says how far the feeder is."""

    url: ApiUrl = Field(description="`http(s)://host:port` of the Data Delay API")
    consumer: Text = Field(description="name of the feeder there; its topic is right.topic")
    token: Text | None = Field(default=None, description="bearer token; write `${NAME}`, never the token itself")
    connect_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("2s"), description="time-out of a connection attempt"
    )
    read_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("5s"), description="time-out between two pieces of an answer"
    )


class LookupJoinKeys(WindowJoinKeys):
    """A join of a topic with right records that a feeder stores; keys as for the in-memory join, and where right is."""

    kind: Literal["lookup-join"] = Field(description="what the job is")  # type: ignore[assignment]
    storage: StorageKeys = Field(description="where right is stored")
    delay: DelayKeys = Field(description="which service says how far it is stored")
    on_expired: Literal["stop", "unmatched"] = Field(
        default="stop",
        description="when left needs records older than the store keeps; `unmatched`: such rows get the reason "
        "no_longer_stored",
    )
    accept_generations: tuple[Text, ...] = Field(
        default=(),
        description="generations of feeder or store to accept besides those that the checkpoint began with",
    )
    window_folder: None = Field(default=None, description="not supported for lookup joins: they keep no window")
