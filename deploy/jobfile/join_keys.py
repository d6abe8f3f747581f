"""The keys of a join: of two topics in memory, or of a topic with right records that a feeder stores.

`in_file` does the reverse: it writes a value of the join's spec as in the file, for messages about what differs from
the join that wrote a checkpoint (`join.before: 10m -> 30m`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from datadelay.watermark import Idle
from dedup.replay_range import DedupConfig
from deploy.jobfile.job import Deduplicate, JoinJob, Output, Select
from deploy.jobfile.job_keys import (
    ApiKeys,
    PartKeys,
    RightKeys,
    SideKeys,
    StorageKeys,
    StoredKeys,
    TimedJobKeys,
    arguments,
    patient,
)
from deploy.jobfile.values import Selected, Topic, like, of
from joins.right_source import DelayApi, Log, OnExpired, StorageApi, Store
from joins.spec import RECORDS_PER_BATCH, JoinPath, JoinSpec, JoinType, Policy, Right, Wait
from joins.spec_base import Wording
from teacup.base.config.keys import Duration, Keys, Properties, Seconds, Text, at_keys
from teacup.base.fields import Count
from teacup.base.times import DURATION, UNLIMITED, UNLIMITED_MS, duration_ms, written
from teacup.kafka.headers import PREFIX


class MatchKeys(Keys):
    """Which right records match: keys equal, right.time in [left.time - before, left.time + after]."""

    before_ms: Annotated[
        int,
        BeforeValidator(lambda given: UNLIMITED_MS if given == UNLIMITED else duration_ms(given)),
        WithJsonSchema({"type": "string", "pattern": rf"^unlimited$|{DURATION}", "examples": ["10m", "unlimited"]}),
    ] = of(Right).before_ms(
        "how much older than left a right record may be, both ends included. `unlimited` (lookup join, with `policy: "
        "last`): right is a table that changes, and left is joined with the version that was true at its time"
    )
    after_ms: Duration = of(Right).after_ms("how much newer than left a right record may be; left waits that long")
    policy: Policy = of(Right).policy(
        "which of several matches: nearest in time (of two equally near ones the earlier), first or last "
        "give one row per left record; all gives one row per pair. Of equal times the lower partition and offset is "
        "before the higher: `nearest` and `first` take it, `last` takes the other"
    )
    type: JoinType = of(Right).type(
        "which rows are written: `left` each left record, matched or not; `inner` matched ones; `semi` "
        "matched ones without the right record; `anti` unmatched ones; `full` each left record, and each right record "
        "that is in none of these rows (in-memory join only). What is left out is counted; `semi` and `anti` keep no "
        "right values"
    )
    buckets: Annotated[int, like(Count)] | None = of(JoinSpec).buckets(
        "among how many tasks a large batch is divided; null: one per partition (on the shuffled path of "
        "the larger topic), at most 8 and, on a local master, its cores. More use more cores, and make small batches "
        "slower"
    )


class WindowMatchKeys(MatchKeys):
    """The keys under `join` of an in-memory join, with the path of its records."""

    path: JoinPath | None = of(JoinSpec).path(
        "`direct`: one task joins partition n of both topics, which must be partitioned alike by the join "
        "key; `shuffled`: any topics, through a shuffle; null: direct if possible"
    )


class SelectKeys(PartKeys):
    """Spark SQL expressions over the columns of `joins.window_join`, instead of the envelope.

    A mapping without any of these keys is short for the fields of `value`.
    """

    becomes = Select
    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(additionalProperties={"type": "string"}))

    key: Text = of(Select).key("Spark SQL for the record's key, a string or binary; `key` is the join key")
    value: Selected = Field(
        description="Spark SQL for the record's value, a string or binary; or a mapping of names to Spark SQL of any "
        "type: the value is then a JSON object with these fields"
    )
    headers: dict[str, Text] = of(Select).headers(
        "header name to Spark SQL, strings or binary; names that begin with `teacup.` are reserved"
    )

    @model_validator(mode="before")
    @classmethod
    def _fields_alone(cls, given: object) -> object:
        if not isinstance(given, dict | cls):
            raise ValueError(
                "give the fields of the value, as {user: left.user}, or a mapping with key, value, headers"
            )
        if not isinstance(given, dict) or not given or "value" in given:
            return given
        if given.keys() <= cls.model_fields.keys():
            return given
        if own := [name for name in given if name in cls.model_fields]:
            raise ValueError(
                f"{own[0]} stands beside fields of the value: put these under value, as in "
                f"{{{own[0]}: {given[own[0]]}, value: {{...}}}}"
            )
        return {"value": given}

    @model_validator(mode="after")
    def _leave_ours_alone(self) -> SelectKeys:
        for name in self.headers:
            if name.startswith(PREFIX):
                raise at_keys([(("headers", name), f"names that begin with {PREFIX!r} are ours; choose another one")])
        return self


class DeduplicateKeys(Keys):
    """How results that are already in the output are dropped after a restart or a retry."""

    header: Text | None = of(Deduplicate).header(
        "header whose value identifies a result (one of `select.headers`). It must be unique: other rows "
        "with the same value are dropped while filtering. Without it, the position of the left record is the id, with "
        "`policy: all` those of both records. A row without a value is written and counted"
    )
    expression: Text | None = of(Deduplicate).expression(
        "instead of `header`: Spark SQL whose value is unique to a result, such as "
        "`concat('clicks/', left_partition, ':', left_offset)`; written as the header `teacup.id`; needs `select`; a "
        "row without a value is written and counted"
    )
    limit: int = of(DedupConfig).limit("the most ids to load, newest first")
    lookback_ms: Duration = of(DedupConfig).lookback_ms(
        "how much further back than the replay range the output is read"
    )
    quiet_ms: Duration = of(DedupConfig).quiet_ms("filtering ends after this long without a duplicate")

    def to_spec(self, settle_ms: int) -> Deduplicate:
        """Returns how repeated results are recognised.

        settle_ms   how long records of an earlier producer may still arrive
        """
        config = DedupConfig(**arguments(DedupConfig, self), settle_ms=settle_ms)
        return Deduplicate(header=self.header, expression=self.expression, config=config)


class TopicsKeys(Keys):
    """Topics for side outputs; without a topic such records are only counted."""

    dead_letter: Topic | None = of(Output).dead_letter(
        "bad records (unparsable or future time, invalid JSON), and rows that cannot be written (too "
        "large, a failing `select`), with reason and position; without it such a record stops the job"
    )
    late: Topic | None = of(Output).late("copies of records beyond their disorder")
    unmatched: Topic | None = of(Output).unmatched("copies of left records without a match")
    unjoined: Topic | None = of(Output).unjoined("right records that expired and appear in no output row")


class OutputKeys(Keys):
    """Where joined rows go."""

    topic: Topic = Field(description="Kafka topic for the rows")
    kafka: Properties = of(Output).kafka("librdkafka properties of the producer, over those of `kafka`")
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description="exactly-once writes in transactions: readers with `isolation.level=read_committed` see every row "
        "once; at-least-once writes rows again that a retry or restart repeats",
    )
    deduplicate: DeduplicateKeys | None = of(Output).deduplicate(
        "with `at-least-once`: drop what a restart or a retry repeats; `{}` for the defaults"
    )
    select: SelectKeys | None = of(Output).select(
        "Spark SQL for key, value and headers, or for the fields of the value alone (`{customer: left.customer_id, "
        "wait_ms: left_time - right_time}`); without it the JSON envelope is written"
    )

    def to_spec(self, kafka: Mapping[str, str], topics: TopicsKeys) -> Output:
        """Returns where rows go.

        kafka, topics   the file's properties for all clients, and its side outputs
        """
        again = self.deduplicate
        producer, settle_ms = (self.kafka, 0) if again is None else patient(kafka, self.kafka)
        return Output(
            topic=self.topic,
            kafka=producer,
            select=None if self.select is None else self.select.to_spec(),
            exactly_once=self.delivery == "exactly-once",
            deduplicate=None if again is None else again.to_spec(settle_ms),
            **dict(topics),
        )

    @model_validator(mode="after")
    def _deduplicate_fits(self) -> OutputKeys:
        if (asked := self.deduplicate) is None:
            return self
        given = self.select.headers if self.select else {}
        rules = (
            (self.delivery != "at-least-once", "is for delivery: at-least-once; exactly-once output has no duplicates"),
            (asked.header is not None and asked.expression is not None, "give header or expression, not both"),
            (
                asked.expression is not None and self.select is None,
                "an expression needs select; the envelope is identified by positions",
            ),
            (
                asked.header is not None and asked.header not in given,
                f"{asked.header!r} is not one of select.headers; results would have no id",
            ),
        )
        if broken := [("deduplicate", what) for is_broken, what in rules if is_broken]:
            raise at_keys(broken)
        return self


class JoinKeys(TimedJobKeys):
    """The keys of both joins."""

    left: SideKeys = Field(description="the topic that loses no record")
    right: RightKeys = Field(description="the topic that completes it")
    join: MatchKeys = Field(description="which right records match")
    producer_delay_ms: Duration = of(JoinSpec).producer_delay_ms(
        "the longest time between a record's event time and when it can be read; used for partitions read to their end"
    )
    max_records: Annotated[int, like(Count)] | None = of(JoinSpec).max_records(
        "soft limit per batch, for left and right together; null: a million, or 90,000 for each bucket if "
        "that is more, up to six million (with `output.deduplicate`: a million)",
        alias="records_per_batch",
    )
    outliers: int = of(JoinSpec).outliers(
        "how many of 2n + 1 consecutive records may have a wrong time (late, or ahead of their neighbours) "
        "without changing the rows of the others; 0: every record is believed"
    )
    idle: Idle = of(JoinSpec).idle(
        "a partition read to its end follows the clock (`advance`), or holds the join (`hold`: topics "
        "replayed with old times)"
    )
    max_wait_ms: Annotated[Duration, like(Wait)] | None = of(Right).max_wait_ms(
        "left is written unmatched (`right_stalled`) when right makes no progress for this long; null: never"
    )
    output: OutputKeys = Field(description="where rows go")
    topics: TopicsKeys = Field(default=TopicsKeys(), description="side outputs")
    window_folder: Path | None = of(JoinJob).window_folder(
        "where the window's slices are cached on each machine; null: a folder of the user in the "
        "temporary folder; if it cannot be written to, restarts are slower, with a warning"
    )
    window_backup: bool | None = of(JoinJob).window_backup(
        "whether the window's slices are copied to the checkpoint, too: a machine that lacks them fetches "
        "them, and reads less from Kafka; null: if the checkpoint is a URL"
    )

    @model_validator(mode="after")
    def _schemas_are_used(self) -> JoinKeys:
        typed = [name for name, side in (("left", self.left), ("right", self.right)) if side.value_schema is not None]
        if typed and self.output.select is None:
            raise at_keys([((name, "schema"), "is for `output.select`; give one, or remove it") for name in typed])
        return self

    @model_validator(mode="after")
    def _topics_fit_the_type(self) -> JoinKeys:
        for kind, name in ((JoinType.ANTI, "unmatched"), (JoinType.FULL, "unjoined")):
            if self.join.type is kind and getattr(self.topics, name) is not None:
                why = f"`join.type: {kind}` writes these rows to `output.topic` itself; remove it"
                raise at_keys([(("topics", name), why)])
        if self.join.type is JoinType.FULL and self.output.deduplicate is not None:
            why = (
                "recognises a row by its left record, and of `join.type: full` some rows have none; use `delivery: "
                "exactly-once`, or write unjoined right records to `topics.unjoined` beside `join.type: left`"
            )
            raise at_keys([(("output", "deduplicate"), why)])
        return self

    @property
    def in_transactions(self) -> bool:
        """Returns whether rows are written in transactions: under exactly-once delivery."""
        return self.output.delivery == "exactly-once"

    def source(self) -> Log | Store:
        """Returns where right is kept."""
        return Log()

    def to_spec(self) -> JoinSpec:
        """Returns what the join is."""
        right = Right(**arguments(Right, self, self.join, self.right), source=self.source())
        return JoinSpec(**arguments(JoinSpec, self, self.join) | {"right": right})

    def to_job(self) -> JoinJob:
        """Returns the job. Raises `SpecError` for what only the join itself rejects."""
        spec = self.to_spec()
        if spec.max_records is None and self.output.deduplicate is not None:
            spec = replace(spec, max_records=RECORDS_PER_BATCH)
        return JoinJob(
            **self.common(),
            spec=spec,
            output=self.output.to_spec(self.kafka, self.topics),
            window_folder=self.window_folder,
            window_backup=self.window_backup,
        )


class WindowJoinKeys(JoinKeys):
    """An in-memory join of two topics to a third."""

    kind: Literal["window-join"] = Field(description="what the job is")
    join: WindowMatchKeys = Field(description="which right records match")
    complete: bool = of(JoinSpec).complete(
        "with `trigger: available_now`, for topics that nothing more comes to, on either side: a run does "
        "not wait for `after` and `producer_delay` to pass. Each partition is finished where it ends when the run "
        "begins, all of left is written, and all of right that is in no row is unjoined. A record that comes later "
        "nevertheless is late unless it is newer than all of these by `before` and `after`: it is flagged and counted, "
        "and may be without its match. Not for runs that follow each other more closely than that"
    )

    @model_validator(mode="after")
    def _ends_by_itself(self) -> WindowJoinKeys:
        if self.complete and self.trigger != "available_now":
            raise at_keys(
                [(("complete",), "is for `trigger: available_now`: a job that runs on would see more records")]
            )
        return self


class LookupStorageKeys(StorageKeys):
    """The storage API that the feeder writes to."""

    becomes = StorageApi
    keys_per_request: int = of(StorageApi).keys_per_request("keys looked up by one request")
    unreachable_for_s: Seconds = of(StorageApi).unreachable_for_s(
        "how long a task waits for a failing store before its batch fails"
    )


class DelayKeys(ApiKeys):
    """The Data Delay API that says how far the feeder is."""

    becomes = DelayApi
    consumer: Text = Field(description="name of the feeder there; its topic is right.topic")
    read_timeout_s: Seconds = of(DelayApi).read_timeout_s("time-out between two pieces of an answer")


class LookupJoinKeys(JoinKeys):
    """A join of a topic with right records that a feeder stores; keys as for the in-memory join, and where right is."""

    kind: Literal["lookup-join"] = Field(description="what the job is")
    right: StoredKeys = Field(description="the topic that completes it")
    storage: LookupStorageKeys = Field(description="where right is stored")
    delay: DelayKeys = Field(description="which service says how far it is stored")
    on_expired: OnExpired = of(Store).on_expired(
        "when left needs records older than the store keeps; `unmatched`: such rows get the reason no_longer_stored"
    )
    accepted_generations: tuple[Text, ...] = of(Store).accepted_generations(
        "generations of feeder or store to accept besides those that the checkpoint began with",
        alias="accept_generations",
    )
    window_folder: None = of(JoinJob).window_folder("not supported for lookup joins: they keep no window")
    window_backup: None = of(JoinJob).window_backup("not supported for lookup joins: they keep no window")

    @model_validator(mode="after")
    def _unjoined_are_known(self) -> LookupJoinKeys:
        if self.join.type is JoinType.ANTI and self.topics.unjoined is not None:
            why = (
                "`teacup unjoined` learns from rows which right records were joined, and `join.type: anti` leaves "
                "those out; remove it, or run a second job with `type: inner`"
            )
            raise at_keys([(("topics", "unjoined"), why)])
        return self

    def source(self) -> Store:
        """Returns where right is stored, and who says how far."""
        return Store(**arguments(Store, self), right_is_judged=self.topics.unjoined is not None)


def in_file(name: str, value: object) -> tuple[str, str]:
    """Returns the key of a value of a `JoinSpec`, and the value as a file has it."""
    side, _, field = name.rpartition(".")
    section = side or ("join" if field in WindowMatchKeys.model_fields else "")
    shown = written(value) if field.endswith("_ms") and isinstance(value, int) else repr(value)
    return ".".join(filter(None, (section, field.removesuffix("_ms")))), shown


IN_FILE = Wording(in_file, "let a new checkpoint go on where this one is (`teacup move`)")
