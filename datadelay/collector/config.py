"""Configuration of a collector; validates completely, opens nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    HttpUrl,
    PositiveInt,
    field_validator,
    model_validator,
)

from datadelay.collector.reports import Rules
from datadelay.model import NAME_MAX, NAME_PATTERN
from datadelay.watermark import Idle
from teacup.base.config.document import CaBundle, Document
from teacup.base.config.keys import ApiUrl, Duration, Keys, Properties, Seconds, Text, Where, as_written, at_keys
from teacup.base.times import DISORDER_MS, MAX_FUTURE_SKEW_MS, PRODUCER_DELAY_MS, written
from teacup.kafka import client
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.record import KAFKA, TimeOf
from teacup.kafka.records.written_times import TimeUnit

Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
Within = Annotated[Seconds, Field(gt=0)]

_TOKEN = "bearer token; write `${NAME}`, never the token itself"
_CA_BUNDLE = "file of the certificates, in PEM, that the server's is signed by; null: those of the system"


class TopicSettings(Keys):
    """A topic and what is known of its times.

    For LogAppendTime `disorder` is the clock skew between brokers; for CreateTime it depends on the producers.
    """

    topic: Name = Field(description="Kafka topic")
    time: str = Field(
        default=KAFKA,
        description="event time: `kafka` is the record's timestamp; else a JSON path into the value (`$.event.time`), "
        "or `header:NAME`",
    )
    time_unit: TimeUnit = Field(default=TimeUnit.MS, description="what a number under `time` counts since the epoch")
    time_zone: str | None = Field(
        default=None, description="zone of texts under `time` that have none: `UTC`, or a name of the IANA database"
    )
    disorder_ms: Duration = Field(
        default=as_written(written(DISORDER_MS)),
        alias="disorder",
        description="how far below the largest time before it in its partition a record's time may lie; of a feeder's "
        "topic: the same as in its job file",
    )
    producer_delay_ms: Duration = Field(
        default=as_written(written(PRODUCER_DELAY_MS)),
        alias="producer_delay",
        description="the longest time between a record's event time and when it can be read",
    )
    max_future_skew_ms: Duration = Field(
        default=as_written(written(MAX_FUTURE_SKEW_MS)),
        alias="max_future_skew",
        description="records further ahead of the clock are skipped",
    )
    idle: Idle = Field(
        default=Idle.ADVANCE,
        description="a partition read to its end follows the clock (`advance`), or stays where it is (`hold`: topics "
        "replayed with old times)",
    )

    @field_validator("time")
    @classmethod
    def _known_time(cls, time: str) -> str:
        try:
            TimeOf(time)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return time

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, zone: str | None) -> str | None:
        try:
            TimeOf(zone=zone)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return zone

    @property
    def time_of(self) -> TimeOf:
        """The place of the event time in a record."""
        return TimeOf(self.time, self.time_unit, self.time_zone)

    @property
    def rules(self) -> Rules:
        """What the partition watermark is computed from."""
        return Rules(
            disorder_ms=self.disorder_ms,
            producer_delay_ms=self.producer_delay_ms,
            max_future_skew_ms=self.max_future_skew_ms,
            idle=self.idle,
        )


class GroupSettings(Keys):
    """Positions of a Kafka consumer group."""

    kind: Literal["group"] = Field(alias="from", description="who keeps the consumer's positions")
    group: Text = Field(description="`group`: the consumer group")


class CheckpointSettings(Keys):
    """Positions in a Spark checkpoint: a folder, or any URL that fsspec knows with its options."""

    kind: Literal["checkpoint"] = Field(alias="from")
    location: Text = Field(description="`checkpoint`: the folder, or any URL that fsspec knows")
    storage_options: dict[str, Any] = Field(default={}, description="`checkpoint`: fsspec's options for the URL")


class ZooKeeperSettings(Keys):
    """Positions of a Storm Kafka spout: `<root>/<consumer_id>/partition_<n>`, or `.../<topic>/partition_<n>`."""

    kind: Literal["zookeeper"] = Field(alias="from")
    hosts: str = Field(min_length=1, description="`zookeeper`: `host:port,host:port[/chroot]`")
    root: str = Field(pattern="^/", description="`zookeeper`: the spout's `zkRoot`")
    consumer_id: str = Field(min_length=1, pattern="^[^/]+$", description="`zookeeper`: the spout's id, below its root")
    topic_folders: bool = Field(default=False, description="`zookeeper`: partitions lie in a folder for each topic")
    timeout_s: Within = Field(default=as_written("10s"), alias="timeout", description="`zookeeper`: of a connection")


class StoreSettings(Keys):
    """Where the store that a consumer feeds reports its generation: a JSON object over HTTP, and the key in it."""

    url: HttpUrl = Field(description="of the JSON object, at the storage API `http(s)://host:port/v1/namespaces/NAME`")
    key: str = Field(default="generation", description="the object's key with the generation")
    token: Text | None = Field(default=None, description=_TOKEN)
    ca_bundle: CaBundle | None = Field(default=None, description=_CA_BUNDLE)


class ConsumerSettings(Keys):
    """A consumer: where it keeps its positions, and which topics it reads."""

    consumer: Name = Field(description="the name that readers ask the API for")
    positions: Annotated[GroupSettings | CheckpointSettings | ZooKeeperSettings, Field(discriminator="kind")]
    topics: tuple[TopicSettings, ...] = Field(min_length=1)
    kafka: Properties = Field(default={}, description="librdkafka properties, over those of all consumers")
    store: StoreSettings | None = Field(
        default=None, description="where the store that the consumer feeds reports its generation"
    )


class ApiSettings(Keys):
    """The Data Delay API that the collector submits to."""

    url: ApiUrl = Field(description="`http(s)://host:port` of the Data Delay API")
    token: Text | None = Field(default=None, description=_TOKEN)
    ca_bundle: CaBundle | None = Field(default=None, description=_CA_BUNDLE)


class CollectorConfig(Keys):
    """One collector: what a single run collects."""

    api: ApiSettings
    kafka: Properties = Field(default={}, description="librdkafka properties for all consumers")
    consumers: tuple[ConsumerSettings, ...] = Field(min_length=1)
    deadline_s: Within = Field(
        default=as_written("50s"),
        alias="deadline",
        description="for the whole run; shorter than the interval at which cron starts it",
    )
    lock_file: Path = Field(description="held while it runs, so that two runs never overlap")
    parallel: PositiveInt = Field(default=8, description="how many topics are looked at in parallel")

    @model_validator(mode="after")
    def _each_once_and_reachable(self) -> Self:
        problems: list[tuple[Where, str]] = []
        seen: set[tuple[str, str]] = set()
        for number, consumer in enumerate(self.consumers):
            try:
                client.validate(self.kafka_of(consumer))
            except ConfigError as error:
                problems.append((("consumers", number, "kafka"), f"of consumer {consumer.consumer!r}: {error}"))
            for place, topic in enumerate(consumer.topics):
                if (consumer.consumer, topic.topic) in seen:
                    where = ("consumers", number, "topics", place)
                    problems.append(
                        (where, f"consumer {consumer.consumer!r} has topic {topic.topic!r} twice; drop one")
                    )
                seen.add((consumer.consumer, topic.topic))
        if problems:
            raise at_keys(problems)
        return self

    def kafka_of(self, consumer: ConsumerSettings) -> dict[str, str]:
        """Returns the librdkafka properties for one consumer's topics."""
        return {**self.kafka, **consumer.kafka}

    @classmethod
    def load(cls, path: Path) -> CollectorConfig:
        """Returns the configuration in a YAML file. Raises `SettingsInvalid`."""
        return Document.read(path).as_model(cls)
