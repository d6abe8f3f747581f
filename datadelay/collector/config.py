"""Configuration of a collector; validates completely, opens nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    HttpUrl,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from configfile.certificates import CaBundle
from configfile.document import Document
from configfile.keys import Keys
from configfile.values import ApiUrl, Properties, Text
from datadelay.collector.reports import Rules
from datadelay.model import NAME_MAX, NAME_PATTERN
from datadelay.progress import Idle
from kafkaio import client
from kafkaio.errors import ConfigError
from kafkaio.eventtime import KAFKA, TimeOf
from kafkaio.jsonfields import TimeUnit

Name = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
Ms = Annotated[int, Field(ge=0, le=3_650 * 86_400_000)]  # ten years: more is a mistake


class TopicSettings(Keys):
    """A topic and what is known of its times.

    For LogAppendTime `disorder_ms` is the clock skew between brokers; for CreateTime it depends on the producers.
    """

    topic: Name
    time: str = Field(default=KAFKA, description="'kafka', or a JSON path into the value such as '$.event.time'")
    time_unit: TimeUnit = Field(default=TimeUnit.MS, description="what a number in the value counts: ms, s or us")
    disorder_ms: Ms = 1_000
    producer_delay_ms: Ms = 10_000
    max_future_skew_ms: Ms = 60_000
    idle: Idle = Idle.ADVANCE

    @field_validator("time")
    @classmethod
    def _known_time(cls, time: str) -> str:
        try:
            TimeOf(time)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return time

    @property
    def time_of(self) -> TimeOf:
        """Where the event time is."""
        return TimeOf(self.time, self.time_unit)

    @property
    def rules(self) -> Rules:
        """What the progress of a partition is computed from."""
        return Rules(
            disorder_ms=self.disorder_ms,
            producer_delay_ms=self.producer_delay_ms,
            max_future_skew_ms=self.max_future_skew_ms,
            idle=self.idle,
        )


class GroupSettings(Keys):
    """Positions of a Kafka consumer group."""

    kind: Literal["group"] = Field(alias="from")
    group: Text


class CheckpointSettings(Keys):
    """Positions in a Spark checkpoint: a folder, or any URL that fsspec knows with its options."""

    kind: Literal["checkpoint"] = Field(alias="from")
    location: Text
    storage_options: dict[str, Any] = Field(default_factory=dict)


class ZooKeeperSettings(Keys):
    """Positions of a Storm Kafka spout: `<root>/<consumer_id>/partition_<n>`, or `.../<topic>/partition_<n>`."""

    kind: Literal["zookeeper"] = Field(alias="from")
    hosts: str = Field(min_length=1, description="host:port,host:port[/chroot]")
    root: str = Field(pattern="^/")
    consumer_id: str = Field(min_length=1, pattern="^[^/]+$")
    topic_folders: bool = False
    timeout_s: PositiveFloat = 10.0


class StoreSettings(Keys):
    """Where the store that a consumer feeds reports its generation: a JSON object over HTTP, and the key in it."""

    url: HttpUrl
    key: str = "generation"
    token: Text | None = None
    ca_bundle: CaBundle | None = None


class ConsumerSettings(Keys):
    """A consumer: where it keeps its positions, and which topics it reads. `kafka` overrides the common properties."""

    consumer: Name
    positions: Annotated[GroupSettings | CheckpointSettings | ZooKeeperSettings, Field(discriminator="kind")]
    topics: tuple[TopicSettings, ...] = Field(min_length=1)
    kafka: Properties = Field(default_factory=dict)
    store: StoreSettings | None = None


class ApiSettings(Keys):
    """The Data Delay API that the collector submits to."""

    url: ApiUrl
    token: Text | None = None
    ca_bundle: CaBundle | None = None


class CollectorConfig(Keys):
    """One collector: what a single run collects.

    deadline_s  for the whole run; shorter than the interval at which cron starts it
    lock_file   held while it runs; two runs with the same file must not overlap
    parallel    how many topics are looked at in parallel
    """

    api: ApiSettings
    kafka: Properties = Field(default_factory=dict)
    consumers: tuple[ConsumerSettings, ...] = Field(min_length=1)
    deadline_s: PositiveFloat = 50.0
    lock_file: Path
    parallel: PositiveInt = 8

    @model_validator(mode="after")
    def _each_once_and_reachable(self) -> Self:
        seen: set[tuple[str, str]] = set()
        for one in self.consumers:
            try:
                client.validate(self.kafka_of(one))
            except ConfigError as error:
                raise ValueError(f"kafka of consumer {one.consumer!r}: {error}") from error
            for topic in one.topics:
                if (one.consumer, topic.topic) in seen:
                    raise ValueError(f"consumer {one.consumer!r} has topic {topic.topic!r} twice; drop one")
                seen.add((one.consumer, topic.topic))
        return self

    def kafka_of(self, consumer: ConsumerSettings) -> dict[str, str]:
        """The librdkafka properties for one consumer's topics."""
        return {**self.kafka, **consumer.kafka}

    @classmethod
    def load(cls, path: Path) -> CollectorConfig:
        """The configuration in a YAML file. Raises `SettingsInvalid`."""
        return Document.read(path).as_model(cls)
