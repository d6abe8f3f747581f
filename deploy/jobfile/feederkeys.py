"""The keys of a feeder's job file, and the job built from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from deploy.job import FeederJob
from deploy.jobfile.joinkeys import EveryKeys, SideKeys, Trigger
from deploy.jobfile.values import (
    ApiUrl,
    Duration,
    KafkaProperties,
    Name,
    Namespace,
    SparkWithoutSpeculation,
    Start,
    Text,
    Topic,
)
from deploy.sparkconf import DEFAULT_MASTER
from joins.lookup.feed import FeedSpec, FeedStorage
from joins.spec import Side
from settings.keys import Keys, as_written


class FeedStorageKeys(Keys):
    """The storage API that right records go to."""

    url: ApiUrl = Field(description="`http(s)://host:port` of the storage API")
    namespace: Namespace = Field(description="namespace of this feeder alone; it needs a retention")
    token: Text | None = Field(default=None, description="bearer token; write `${NAME}`, never the token itself")
    connect_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("2s"), description="time-out of a connection attempt"
    )
    read_timeout: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("10s"), description="time-out between two pieces of an answer"
    )
    items_per_request: int = Field(default=5_000, ge=1, le=10_000, description="records written by one request")
    requests_at_once: int = Field(default=4, ge=1, description="concurrent requests per task")
    unreachable_for: Annotated[Duration, Field(gt=0)] = Field(
        default=as_written("5m"), description="how long an unreachable store only holds the feeder before it fails"
    )


class FeederTopicsKeys(Keys):
    """Topics for what does not go the usual way."""

    dead_letter: Topic | None = Field(
        default=None,
        description="records that cannot be stored (bad time, invalid JSON, rejected by the store) with reason and "
        "position; without it such a record stops the job",
    )


class FeederKeys(Keys):
    """Right records of a topic into the storage API, for a lookup join."""

    name: Name = Field(description="name of the job, and of the consumer group that a collector watches")
    kind: Literal["feeder"] = Field(description="what the job is")
    kafka: KafkaProperties = Field(
        description="librdkafka properties for all topics; "
        "`bootstrap.servers` is required; TLS and SASL properties are passed on"
    )
    right: SideKeys = Field(description="the topic that is fed, as in the job file of the lookup join")
    storage: FeedStorageKeys = Field(description="where right records go")
    start: Start = Field(
        default="earliest",
        description="where a new checkpoint begins: earliest, latest or an ISO-8601 time with a zone; the store learns "
        "below which time nothing was fed",
    )
    max_future_skew: Duration = Field(
        default=as_written("1m"), description="a record further ahead of the clock goes to the dead-letter topic"
    )
    records_per_batch: int = Field(default=1_000_000, ge=1, description="limit per batch")
    on_data_loss: Literal["stop", "continue"] = Field(
        default="stop", description="when unread records are gone from Kafka; `continue` goes on and counts them"
    )
    topics: FeederTopicsKeys = Field(default=FeederTopicsKeys(), description="side outputs")
    trigger: Trigger = Field(
        default=EveryKeys(), description="`every`, or `available_now`: until the present end, then stop"
    )
    checkpoint: Text = Field(description="folder or URL for positions, used by this job only")
    spark: SparkWithoutSpeculation = Field(
        default={"master": DEFAULT_MASTER},
        description="`master`, and any Spark property; local[n] becomes local[n,4], so that failed tasks are retried",
    )
    log: Literal["people", "json"] = Field(
        default="people", description="one line per batch for people, or one JSON object per line"
    )


def feeder_job(keys: FeederKeys) -> FeederJob:
    """The validated keys as a job; SpecError for what only the feeder itself rejects."""
    right, storage = keys.right, keys.storage
    return FeederJob(
        spec=FeedSpec(
            name=keys.name,
            right=Side(topic=right.topic, time=right.time, disorder_ms=right.disorder, format=right.format),
            storage=FeedStorage(
                url=storage.url,
                namespace=storage.namespace,
                token=storage.token,
                connect_timeout_s=storage.connect_timeout / 1000,
                read_timeout_s=storage.read_timeout / 1000,
                items_per_request=storage.items_per_request,
                requests_at_once=storage.requests_at_once,
                unreachable_for_s=storage.unreachable_for / 1000,
            ),
            max_future_skew_ms=keys.max_future_skew,
            max_records=keys.records_per_batch,
            start=keys.start,
            on_data_loss=keys.on_data_loss,
            dead_letter=keys.topics.dead_letter,
            kafka=keys.kafka,
        ),
        checkpoint=keys.checkpoint,
        trigger_ms=keys.trigger.every if isinstance(keys.trigger, EveryKeys) else None,
        spark=keys.spark,
        json_log=keys.log == "json",
    )
