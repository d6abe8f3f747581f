"""The keys of a job that deduplicates one topic into another."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from dedup.identity import Identity, Within
from dedup.replay_range import DedupConfig
from deploy.jobfile.job import DedupJob
from deploy.jobfile.job_keys import JobKeys, arguments, patient
from deploy.jobfile.values import Topic, of
from teacup.base.config.keys import Duration, Keys, Properties, as_written
from teacup.kafka.errors import ConfigError
from teacup.kafka.records.record import HEADER, KAFKA, KeyOf

_PART = r"^(positions|left|key|header:.+|\$.+)$"


def identity_of(value: object) -> Identity:
    """Reads an identity: `positions`, `left`, `key`, `header:NAME`, `$.path`, or a list of the last three.

    Positions are those of one generation of the job that wrote them; with any other id, equal ones are one result.
    """
    parts = [value] if isinstance(value, str) else value
    how = "give positions, left, key, header:NAME, a JSON path such as $.id, or a list of the last three"
    if not isinstance(parts, list) or not all(isinstance(part, str) and re.match(_PART, part) for part in parts):
        raise ValueError(how)
    for alone in ("positions", "left"):
        if alone in parts and len(parts) > 1:
            raise ValueError(f"{alone} is an id by itself; it cannot be part of a list")
    if parts == ["positions"]:
        return Identity(within=Within.GENERATION)
    if parts == ["left"]:
        return Identity(left=True)
    if len(parts) == 1 and parts[0].startswith(HEADER):
        return Identity(parts[0].removeprefix(HEADER))
    try:
        return Identity(key=KeyOf.of([KAFKA if part == "key" else part for part in parts]))
    except ConfigError as error:
        raise ValueError(how) from error


_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": _PART},
        {"type": "array", "items": {"type": "string", "pattern": _PART}, "minItems": 1},
    ]
}
Id = Annotated[Identity, PlainValidator(identity_of), WithJsonSchema(_SCHEMA)]


class SourceKeys(Keys):
    """The topic that is read."""

    topic: Topic = Field(description="Kafka topic to read")


class DedupOutputKeys(Keys):
    """Where records go, unchanged, to the partition that they came from."""

    topic: Topic = Field(description="Kafka topic to write; it needs as many partitions as the source")
    kafka: Properties = of(DedupJob).producer("librdkafka properties of the producer, over those of `kafka`")


class DedupKeys(JobKeys):
    """One topic deduplicated into another: a record whose id is already in the output is dropped."""

    kind: Literal["dedup"] = Field(description="what the job is")
    source: SourceKeys = Field(description="the topic that is read")
    output: DedupOutputKeys = Field(description="where records go")
    identity: Id = Field(
        default=as_written("positions"),
        alias="id",
        description="`positions` (of both records, and who wrote the row: the header `teacup` of a join's rows), "
        "`left` (the position of the left record alone), `key` (Kafka's), `header:NAME`, a JSON path into the value "
        "(`$.id`), or a list of the last three; records without an id go through and are counted",
    )
    window_ms: Duration = of(DedupJob).window_ms(
        "how long an id is remembered, in record times of the output; within one batch an id is written "
        "once, whatever its times"
    )
    limit: int = of(DedupConfig).limit(
        "the most ids remembered per partition; the oldest are forgotten first",
        ge=4,  # one in each of the four parts of a window
    )
    max_records: int = of(DedupJob).max_records("limit per batch", alias="records_per_batch")
    start: Literal["earliest", "latest"] = of(DedupJob).start("where a new checkpoint begins")

    def to_job(self) -> DedupJob:
        """Returns the job."""
        producer, settle_ms = patient(self.kafka, self.output.kafka)
        return DedupJob(
            **arguments(DedupJob, self)
            | self.common()
            | {
                "source": self.source.topic,
                "output": self.output.topic,
                "producer": producer,
                "config": DedupConfig(limit=self.limit, settle_ms=settle_ms),
            }
        )
