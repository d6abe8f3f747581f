"""The keys that all kinds of jobs have, and how keys become data.

    JobKeys         every job
      TimedJobKeys  jobs that read the event times of records

A field has the name of the value that it becomes, an alias if the file calls it otherwise, and a description, for the
JSON schema, the documentation and messages. Its default and bounds are those of the spec that it becomes a part of
(`deploy.jobfile.values`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from dedup.replay_range import DedupConfig
from dedup.restart.worker import location_problem
from deploy.jobfile.job import CommonJob, LineageTo, MetricsAt
from deploy.jobfile.values import (
    KafkaProperties,
    KeptParts,
    KeyParts,
    Name,
    Namespace,
    SchemaText,
    SparkProperties,
    Start,
    TimePath,
    TimeZone,
    Topic,
    WhereParts,
    of,
)
from joins.right_source import StoreAddress
from joins.spec import Format, JoinSpec, OnDataLoss, OnMismatch, Side, Tombstones
from teacup.base.config.document import CaBundle
from teacup.base.config.keys import ApiUrl, Duration, Keys, Properties, Seconds, Text, Where, at_keys
from teacup.kafka.records.written_times import TimeUnit
from teacup.spark.conf import DEFAULT_MASTER, speculation_problems


class PartKeys(Keys):
    """Keys that become one value of a job, of the class `becomes`."""

    becomes: ClassVar[type[Any]]

    def to_spec(self) -> Any:
        """Returns the value."""
        return self.becomes(**dict(self))


def arguments(kind: type[Any], *given: Keys) -> dict[str, Any]:
    """Returns the arguments of a dataclass from the keys of the same names; later keys override earlier ones."""
    wanted = {field.name for field in fields(kind)}
    given_values = {name: value for keys in given for name, value in keys if name in wanted}
    return {name: value.to_spec() if isinstance(value, PartKeys) else value for name, value in given_values.items()}


def patient(kafka: Mapping[str, str], own: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Returns the properties of a producer, and how long (ms) a restarted job must wait for an earlier one's writes.

    kafka, own   the properties of all clients, and those of the producer
    """
    names = ("delivery.timeout.ms", "message.timeout.ms")  # two names of one property
    own = dict(own) if {*names} & {*kafka, *own} else {names[0]: str(DedupConfig().settle_ms), **own}
    both = {**kafka, **own}
    return own, next(int(both[name]) for name in names if name in both)


class EveryKeys(Keys):
    """A batch is tried at this interval."""

    every: Duration = of(CommonJob).trigger_ms(
        "how often to run a batch; 0s: as soon as the last one is done", alias="every"
    )


def _trigger_form(value: Any) -> str:
    return "<word>" if isinstance(value, str) else "<mapping>"


def _available_now(value: str) -> str:
    if value != "available_now":
        raise ValueError("give available_now, or a mapping as {every: 10s}")
    return value


Trigger = Annotated[
    Annotated[EveryKeys, Tag("<mapping>")]
    | Annotated[Literal["available_now"], BeforeValidator(_available_now), Tag("<word>")],
    Discriminator(_trigger_form),
]


class MetricsKeys(PartKeys):
    """Where a running job serves metrics and probes."""

    becomes = MetricsAt

    port: int = of(MetricsAt).port("0: any free one, which the log names")
    host: Text = of(MetricsAt).host(
        "the address to listen on; by default only this machine can ask. Nobody needs a token: give "
        "another only in a network where everybody may read it"
    )

    otlp: ApiUrl | None = of(MetricsAt).otlp(
        "`http(s)://host:port` of an OpenTelemetry receiver: the numbers are sent there as well, every "
        "15 s, by OTLP over HTTP (extra `otlp`)"
    )


class LineageKeys(PartKeys):
    """Where a running job reports what it reads and writes."""

    becomes = LineageTo

    url: ApiUrl | None = of(LineageTo).url(
        "the URL of an OpenLineage service, such as Marquez; by default as its client is configured "
        "(`OPENLINEAGE_URL`, `OPENLINEAGE_API_KEY`, `openlineage.yml`)"
    )
    namespace: Text = of(LineageTo).namespace("the job's namespace there")
    every_ms: Duration = of(LineageTo).every_ms("how often a running job reports", alias="every")


class JobKeys(Keys):
    """The keys of every job."""

    name: Name = Field(
        description="name of the job; a join and a feeder commit their positions to the consumer group of this name"
    )
    kind: str = Field(description="what the job is")
    include: Text | tuple[Text, ...] | None = Field(
        default=None,
        description="other files, whose values this file overrides: a path, relative to this file, or a list; "
        "mappings are merged, all else is replaced",
    )
    kafka: KafkaProperties = Field(
        description="librdkafka properties for all topics; "
        "`bootstrap.servers` is required; TLS and SASL properties are passed on"
    )
    on_data_loss: OnDataLoss = of(JoinSpec).on_data_loss(
        "when records that are still needed are gone from Kafka; `continue` counts them and carries on"
    )
    trigger: Trigger = Field(
        default=EveryKeys(),
        description="`every`, or `available_now`: until the topic (of a join: left) is read to its present end, then "
        "stop; right records that could still match then stay in the window for the next run. With `idle: hold`, left "
        "records that still wait after right has brought nothing for ten seconds are left to the next run as well",
    )
    checkpoint: Text = Field(
        description="folder or URL for positions and what the job is, used by this job only; a URL needs its fsspec "
        "driver (`s3fs` for `s3a://`; `hdfs://` uses libhdfs)"
    )
    brokers_answer_within_ms: Duration = of(CommonJob).brokers_answer_within_ms(
        "how long a start waits for brokers that do not answer; then it ends with exit code 4, and a "
        "supervisor starts it again",
        alias="wait_for_brokers",
    )
    executors_within_ms: Duration = of(CommonJob).executors_within_ms(
        "how long the job waits, at its start and later, while Spark's master has no executor for it; then "
        "it ends with exit code 4, and a supervisor starts it again",
        alias="wait_for_executors",
    )
    spark: SparkProperties = Field(
        default={"master": DEFAULT_MASTER},
        description="`master`, and any Spark property; local[n] becomes local[n,4], so that failed tasks are retried; "
        "`spark.speculation` needs `delivery: exactly-once`, and copies a task after 30 s at the earliest",
    )
    log: Literal["text", "json"] = Field(
        default="text", description="one line of text per batch, or one JSON object per line"
    )
    metrics: MetricsKeys | None = of(CommonJob).metrics(
        "where a running job serves `/metrics` for Prometheus, `/livez` and `/readyz`; `{}`: the "
        "defaults, null: nowhere"
    )
    lineage: LineageKeys | None = of(CommonJob).lineage(
        "where a running job reports its topics and counts as OpenLineage events (extra `lineage`); `{}`: "
        "the defaults, null: nowhere"
    )

    @property
    def in_transactions(self) -> bool:
        """Whether output is written in transactions, so that a copy of a task does no harm."""
        return False

    @abstractmethod
    def to_job(self) -> CommonJob:
        """Returns the job. Raises `SpecError` for what only the job itself rejects."""

    def common(self) -> dict[str, Any]:
        """Returns the fields that every job has."""
        every = self.trigger.every if isinstance(self.trigger, EveryKeys) else None
        return {**arguments(CommonJob, self), "trigger_ms": every, "json_log": self.log == "json"}

    @model_validator(mode="after")
    def _fits_its_output(self) -> JobKeys:
        problems: list[tuple[Where, str]] = []
        if problem := location_problem(self.checkpoint):
            problems.append((("checkpoint",), problem))
        if not self.in_transactions:
            problems += [(("spark", key), what) for key, what in speculation_problems(self.spark)]
        if problems:
            raise at_keys(problems)
        return self


class TimedJobKeys(JobKeys):
    """The keys of jobs that read event times."""

    start: Start = of(JoinSpec).start(
        "where a new checkpoint begins: earliest, latest or an ISO-8601 time with a zone. A join: where "
        "left does; right begins as far before it as matches need. A feeder: the store learns below which time nothing "
        "was fed"
    )
    registry: Properties = of(JoinSpec).registry(
        "the schema registry, if a side has `format: avro` or `protobuf`: `url` (required), "
        "`basic.auth.user.info` (`${NAME}:${PASSWORD}`), `ssl.ca.location` and other properties of confluent-kafka's "
        "`SchemaRegistryClient`"
    )
    max_future_skew_ms: Duration = of(JoinSpec).max_future_skew_ms(
        "a record further ahead of the clock goes to the dead-letter topic"
    )


class SideKeys(PartKeys):
    """One topic with event times."""

    becomes = Side

    topic: Topic = Field(description="Kafka topic")
    key: KeyParts = of(Side).key(
        "join key: `kafka` is the record's key; else a JSON path into the value (`$.user.id`), or into Kafka's "
        "key (`kafka:$.id`), "
        '`header:NAME`, or a list of these; a number is its digits, so 7 and "7" are equal; a record without it '
        "matches nothing"
    )
    time: TimePath = of(Side).time(
        "event time: `kafka` is the record's timestamp; else a JSON path into the value (`$.event.time`), or "
        "`header:NAME`, to a number since the epoch or an ISO-8601 text"
    )
    time_unit: TimeUnit = of(Side).time_unit("what a number under `time` counts since the epoch: `ms`, `s` or `us`")
    time_zone: TimeZone | None = of(Side).time_zone(
        "zone of texts that have none, under `time` and as TIMESTAMP of `schema`: `UTC`, or an IANA name as "
        "`Europe/Berlin`; null: a record with such a time is a dead letter (`no_zone`)"
    )
    disorder_ms: Duration = of(Side).disorder_ms(
        "how far below the largest time before it in its partition a record's time may lie; records beyond it are late"
    )
    tombstones: Tombstones | None = of(Side).tombstones(
        "records without a value, as Debezium writes them after a delete: `skip` (no row; counted), "
        "`dead_letter`, `delete` (right is a table that changes, and its key has no value from then on); null: like "
        "any other record, so a dead letter if the time is in the value"
    )
    where: WhereParts | None = of(Side).where(
        "which records of the topic the side takes: for each JSON path or `header:NAME` a text, or a list of texts "
        "(`{$.type: click}`); others are skipped (no row; counted). null: all"
    )
    format: Format = of(Side).format(
        "what values are: `json` is embedded in the envelope, `avro` and `protobuf` (with a schema "
        "registry's frame) as JSON, `text` as text, `bytes` as base64"
    )

    value_schema: SchemaText | None = of(Side).value_schema(
        "fields of the value with their types, as Spark's DDL (`order_id STRING, amount DOUBLE`): `output.select` has "
        "them as columns of these types (`left.order_id`); needs `format: json`, `avro` or `protobuf`. `registry`: the "
        "fields of the topic's newest schema there, with `avro` and `protobuf`",
        alias="schema",
    )
    on_mismatch: OnMismatch | None = of(Side).on_mismatch(
        "a row with a value that is not of `schema`: `dead_letter`; null: it is counted, and what does not fit is null"
    )

    @model_validator(mode="after")
    def _payload_is_json(self) -> SideKeys:
        if self.on_mismatch is not None and self.value_schema is None:
            raise at_keys([("on_mismatch", "says what happens to values that are not of `schema`; give one")])
        if self.value_schema is not None and not self.format.is_json:
            raise at_keys([("format", "give json, avro or protobuf: `schema` needs it")])
        fields = {"time": self.time, "key": next((part for part in self.key if part.startswith("$")), "")}
        fields["field of `where`"] = next(iter(self.where.paths), "") if self.where is not None else ""
        for name, path in fields.items():
            if path.startswith("$") and not self.format.is_json:
                raise at_keys([("format", f"give json, avro or protobuf: a {name} in the value ({path}) needs it")])
        return self


class RightKeys(SideKeys):
    """The topic that completes left."""

    keep: KeptParts | None = of(Side).keep(
        "what of a record is kept until it is joined, and written: a list of JSON paths (`$.price`), "
        "`header:NAME`, `$` (the whole value) and `kafka` (Kafka's key, where `key` is another); null: everything"
    )

    @model_validator(mode="after")
    def _kept_fields_are_json(self) -> RightKeys:
        field = next((part for part in self.keep or () if part.startswith("$.")), None)
        if field is not None and not self.format.is_json:
            raise at_keys([("format", f"give json, avro or protobuf: to keep a field of the value ({field}) needs it")])
        return self


class StoredKeys(RightKeys):
    """The topic that completes left, and that a feeder stores."""

    deletes: Text | None = of(Side).deletes(
        "with `tombstones: delete`: what else is a delete, as PATH=TEXT of a field of the value; `$.op=d` for Debezium"
    )


class ApiKeys(PartKeys):
    """How an API is reached."""

    url: ApiUrl = Field(description="`http(s)://host:port` of the API")
    token: Text | None = of(StoreAddress).token("bearer token; write `${NAME}`, never the token itself")
    ca_bundle: CaBundle | None = of(StoreAddress).ca_bundle(
        "PEM file with the CA certificates for the API, on every machine; null: those of the system"
    )
    connect_timeout_s: Seconds = of(StoreAddress).connect_timeout_s("time-out of a connection attempt")
    read_timeout_s: Seconds = of(StoreAddress).read_timeout_s("time-out between two pieces of an answer")


class StorageKeys(ApiKeys):
    """The storage API, and the namespace in which right records are stored."""

    namespace: Namespace = Field(description="the namespace to which only the feeder writes; it needs a retention")
    requests_at_once: int = of(StoreAddress).requests_at_once("concurrent requests per task")
