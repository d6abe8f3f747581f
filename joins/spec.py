"""A frozen, validated description of a join, shared by the in-memory and the lookup join. Pure.

A pair joins when the keys are equal and `right.time` lies in `[left.time - before, left.time + after]`, both ends
included. All times and durations are int64 milliseconds; a duration may be given as a text (`before="10m"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Any, Generic, Literal, TypeVar

from datadelay.watermark import Idle
from joins.errors import SpecError
from joins.outcome import RESULTS, Outcome
from joins.right_source import Log, Store
from joins.spec_base import REQUIRED, DurationArgs, identity_of
from teacup.base.fields import Allowed, Between, Count, Spelling, coerce_fields
from teacup.base.times import (
    DISORDER_MS,
    LONGEST_MS,
    MAX_FUTURE_SKEW_MS,
    PRODUCER_DELAY_MS,
    UNLIMITED_MS,
)
from teacup.kafka.errors import ConfigError
from teacup.kafka.headers import TOMBSTONE, WHERE
from teacup.kafka.records.json_fields import PATH
from teacup.kafka.records.record import KAFKA, OUTLIERS, KeyOf, Projection, TimeOf
from teacup.kafka.records.where import RecordFilter
from teacup.kafka.records.written_times import TimeUnit

_NAME = r"^[A-Za-z0-9._-]+$"

Millis = Annotated[
    int,
    Between(f"a whole number of milliseconds, 0 or more, at most {LONGEST_MS} (ten years)", least=0, most=LONGEST_MS),
]
Wait = Annotated[
    int,
    Between(f"a whole number of milliseconds, 1 or more, at most {LONGEST_MS} (ten years)", above=0, most=LONGEST_MS),
]
Before = Annotated[
    int,
    Allowed(
        f"a whole number of milliseconds, 0 or more, at most {LONGEST_MS} (ten years), or 'unlimited'",
        lambda ms: 0 <= ms <= LONGEST_MS or ms == UNLIMITED_MS,
    ),
]
EpochMs = Annotated[int, Between("whole milliseconds since 1970 (up to 2^53)", least=0, most=2**53)]
Start = Literal["earliest", "latest"] | EpochMs
Offsets = Annotated[
    Mapping[int, int],
    Allowed("the offset of each partition, {partition: offset}", lambda at: min([*at, *at.values()], default=-1) >= 0),
]
Tombstones = Literal["skip", "dead_letter", "delete"]
REGISTRY = "registry"
"""As a side's schema: the newest one of its topic in the schema registry."""
OnMismatch = Literal["dead_letter"]
OnDataLoss = Literal["stop", "continue"]
Outliers = Annotated[int, Between("a whole number of records, 0 to 1000", least=0, most=1_000)]
TopicName = Annotated[
    str,
    Spelling("the name of a Kafka topic: 1 to 249 letters, digits, dots, underscores and hyphens", _NAME, longest=249),
]
JobName = Annotated[
    str, Spelling("a name of 1 to 200 letters, digits, dots, underscores and hyphens", _NAME, longest=200)
]


T_co = TypeVar("T_co", covariant=True)

OTHER = {"left": "right", "right": "left"}
"""The other side."""


class BothSides(Generic[T_co]):
    """Has an attribute for each side, `left` and `right`, of one type."""

    __slots__ = ()

    def side(self, name: str) -> T_co:
        """Returns the attribute of the side called "left" or "right"."""
        side_spec: T_co = getattr(self, name)
        return side_spec


class Policy(StrEnum):
    """Which right record a left one is joined with. Order is event time, then partition, then offset."""

    NEAREST = "nearest"  # the smallest distance in time; of two equally near ones the earlier
    FIRST = "first"
    LAST = "last"
    ALL = "all"  # one row per pair

    def rank(self, left_ms: int, right_ms: int, *position: int) -> tuple[int, ...]:
        """Returns the sort key of candidates: the first one is chosen; `all` takes each in this order."""
        match self:
            case Policy.NEAREST:
                return abs(right_ms - left_ms), right_ms, *position
            case Policy.FIRST | Policy.ALL:
                return right_ms, *position
            case Policy.LAST:
                return tuple(-each for each in (right_ms, *position))


class JoinType(StrEnum):
    """Which rows are written. A right record counts as joined even if its row is left out."""

    LEFT = "left"  # each left record, matched or not
    INNER = "inner"  # matched ones only
    SEMI = "semi"  # the same, without the right record: one row for each left record that has a match
    ANTI = "anti"  # unmatched ones only, those with a null key included
    FULL = "full"  # each left record, and each right record that appears in no other row

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Returns the outcomes whose rows are written."""
        match self:
            case JoinType.LEFT:
                return RESULTS
            case JoinType.FULL:
                return *RESULTS, Outcome.UNJOINED
            case JoinType.INNER | JoinType.SEMI:
                return (Outcome.MATCHED,)
            case JoinType.ANTI:
                return (Outcome.UNMATCHED,)

    @property
    def results(self) -> tuple[Outcome, ...]:
        """Returns the outcomes whose rows are results: written, or left out."""
        return self.outcomes if self is JoinType.FULL else RESULTS

    @property
    def left_out(self) -> tuple[Outcome, ...]:
        """Returns the outcomes of left records whose rows are not written."""
        return tuple(outcome for outcome in RESULTS if outcome not in self.outcomes)

    @property
    def left_alone(self) -> bool:
        """Returns whether rows are without the right record, so that its values need not be kept."""
        return self in (JoinType.SEMI, JoinType.ANTI)


class Format(StrEnum):
    """The format of a topic's values, as far as a join needs to know."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"
    AVRO = "avro"  # framed as by a schema registry; converted to JSON when read
    PROTOBUF = "protobuf"  # the same

    @property
    def framed(self) -> bool:
        """Whether values name their schema in a registry."""
        return self in (Format.AVRO, Format.PROTOBUF)

    @property
    def is_json(self) -> bool:
        """Whether values are JSON when a join sees them."""
        return self is Format.JSON or self.framed


class JoinPath(StrEnum):
    """How records reach the task that joins them (in-memory join)."""

    DIRECT = "direct"  # partition n of both topics is bucket n: both are partitioned alike by the join key
    SHUFFLED = "shuffled"  # each record goes through Spark's shuffle to the bucket of its key


@dataclass(frozen=True, kw_only=True)
class Side(DurationArgs):
    """One of the two topics.

    key          where the join key is: "kafka" (Kafka's key), a JSON path into the value (`$.user.id`) or into Kafka's
                 key (`kafka:$.id`), "header:NAME", or several of these; `teacup.kafka.records.record` says when two
                 keys are equal
    keep         what is kept of a right record until it is joined: JSON paths, "header:NAME", "$" (the whole value),
                 "kafka" (Kafka's key, if the join key is another); None: everything (`teacup.kafka.records.record`)
    time         "kafka": the record's timestamp; otherwise a JSON path into the value (`$.event.time`), or
                 "header:NAME", where a number since the epoch is, or an ISO-8601 text
    time_unit    the unit of that number: "ms", "s" or "us"
    time_zone    of texts without a zone, also in columns of `value_schema`: "UTC", or an IANA name; None: a record
                 whose time has none is a dead letter
    disorder_ms  how far a record's time may lie below the largest time before it in its partition
    tombstones   what happens to records without a value, which change data capture writes for deletes: "skip" (counted,
                 no row), "dead_letter", "delete" (right is a table that changes, and has no value from then
                 on); None: nothing special, though they may then lack their time or key
    deletes      with tombstones "delete": what else is a delete, as PATH=TEXT of a field of the value: "$.op=d" for
                 Debezium; None: nothing
    where        which records the side takes, by fields and headers (`{"$.type": "click"}`); None: all. Others are
                 skipped: counted, without a row
    format       how values are encoded, and so how they are embedded in the output; a JSON path needs "json", "avro" or
                 "protobuf"
    value_schema fields of the value with their types, as Spark's DDL (`order_id STRING, amount DOUBLE`): a row then has
                 them as columns, `left.order_id` (`joins.fields`); "registry": all those of the topic's newest schema
    on_mismatch  what happens to a row with a value that is not of these types: "dead_letter"; None: it is counted, and
                 such fields are null
    """

    topic: TopicName
    key: str | tuple[str, ...] = KAFKA
    keep: tuple[str, ...] | None = None
    time: str = "kafka"
    time_unit: TimeUnit = TimeUnit.MS
    time_zone: str | None = None
    disorder_ms: Millis = DISORDER_MS
    disorder: InitVar[str | None] = None
    tombstones: Tombstones | None = None
    deletes: str | None = None
    where: RecordFilter | Mapping[str, Any] | None = None
    format: Format = Format.BYTES
    value_schema: str | None = None
    on_mismatch: OnMismatch | None = None

    def __post_init__(self, *durations: str | None) -> None:
        where = f"{{}} of {self.topic!r}" if isinstance(self.topic, str) else "{}"
        self.take_texts(durations, where)
        try:
            where_of = self.where_of
        except ConfigError as error:
            raise SpecError(f"where of {self.topic!r}: {error}") from None
        object.__setattr__(self, "where", where_of)
        coerce_fields(self, SpecError, where)
        try:
            time_of = self.time_of
        except ConfigError as error:
            raise SpecError(f"{error} (of topic {self.topic!r})") from None
        if time_of.field is not None and not self.has_json:
            raise self._needs_json("a time in the payload", time_of.field)
        try:
            key_of = self.key_of
        except ConfigError as error:
            raise SpecError(f"key of {self.topic!r}: {error}") from None
        self._check_kept()
        if self.value_schema is not None and not self.has_json:
            raise self._needs_json("a schema", self.value_schema)
        if self.value_schema == REGISTRY and not self.format.framed:
            raise SpecError(f"format of {self.topic!r}: the registry's schema needs format 'avro' or 'protobuf'")
        if self.on_mismatch is not None and self.value_schema is None:
            raise SpecError(
                f"on_mismatch of {self.topic!r}: says what happens to values that are not of a schema; give one"
            )
        self._check_deletes(key_of)
        object.__setattr__(self, "key", key_of.parts[0] if len(key_of.parts) == 1 else key_of.parts)
        if key_of.paths and not self.has_json:
            raise self._needs_json("a key in the payload", key_of.paths[0])
        if where_of is not None and where_of.paths and not self.has_json:
            raise self._needs_json("a field in `where`", where_of.paths[0])

    def _check_deletes(self, key_of: KeyOf) -> None:
        if self.tombstones == "delete" and key_of.paths:
            raise SpecError(
                f"key of {self.topic!r}: a record without a value has no {key_of.paths[0]!r}, and would delete nothing "
                "(tombstones 'delete'); give 'kafka', 'kafka:$.id' (a field of Kafka's key) or 'header:NAME'"
            )
        if self.deletes is None:
            return
        path, text = self.delete_mark
        if self.tombstones != "delete":
            raise SpecError(f"deletes of {self.topic!r}: {self.deletes!r} needs tombstones 'delete'")
        if not PATH.fullmatch(path) or not text:
            raise SpecError(f"deletes of {self.topic!r}: {self.deletes!r} is not allowed; give PATH=TEXT, as '$.op=d'")
        if not self.has_json:
            raise self._needs_json("a mark of deletes", path)

    @property
    def delete_mark(self) -> tuple[str, str]:
        """The path of `deletes`, and the text that it has in a delete."""
        path, _, text = (self.deletes or "").partition("=")
        return path, text

    @property
    def key_of(self) -> KeyOf:
        """Where the join key is."""
        return KeyOf.of(self.key)

    @property
    def time_of(self) -> TimeOf:
        """Where the event time is."""
        return TimeOf(self.time, self.time_unit, self.time_zone)

    @property
    def where_of(self) -> RecordFilter | None:
        """Which records of the topic it takes; None: all."""
        return RecordFilter.of(self.where) if isinstance(self.where, Mapping) else self.where

    @property
    def kept(self) -> Projection | None:
        """What is kept of a record; None: everything."""
        return None if self.keep is None else Projection(self.keep)

    def _check_kept(self) -> None:
        try:
            kept = self.kept
        except ConfigError as error:
            raise SpecError(f"keep of {self.topic!r}: {error}") from None
        if kept is not None and kept.paths and not self.has_json:
            raise self._needs_json("a kept field", kept.paths[0])

    def _needs_json(self, what: str, path: str) -> SpecError:
        return SpecError(f"format of {self.topic!r}: {what} ({path!r}) needs format 'json', 'avro' or 'protobuf'")

    @property
    def has_json(self) -> bool:
        """Whether values are JSON when a join sees them."""
        return self.format.is_json

    @property
    def skips(self) -> tuple[str, ...]:
        """The reasons of records that are counted, and have no row."""
        return (*((WHERE,) if self.where else ()), *((TOMBSTONE,) if self.tombstones == "skip" else ()))

    @property
    def payload_time(self) -> bool:
        """Whether the event time is a field of the value, or a header."""
        return self.time != KAFKA


@dataclass(frozen=True, kw_only=True)
class Right(Side):
    """The topic that completes left, which of its records match, and where they are kept.

    before_ms    how much older than left a right record may be, both ends included. Unlimited: right is a table that
                 changes, and left is joined with the version that was true at its time (a lookup join)
    after_ms     how much newer than left it may be; left waits that long
    policy       which of several matches
    type         which rows are written; `semi` and `anti` keep no values of right
    max_wait_ms  how long left waits for a right topic whose watermark does not advance; None: for ever
    source       `Log()`: the join reads the topic; a `Store`: it looks up what a feeder stores (a lookup join)
    """

    before_ms: Before = REQUIRED
    before: InitVar[str | None] = None
    after_ms: Millis = 0
    after: InitVar[str | None] = None
    policy: Policy = Policy.NEAREST
    type: JoinType = JoinType.LEFT
    max_wait_ms: Wait | None = None
    max_wait: InitVar[str | None] = None
    source: Log | Store = field(default_factory=Log)

    def __post_init__(self, *durations: str | None) -> None:
        super().__post_init__(*durations)
        self._check_versions()
        if self.type is JoinType.FULL and self.source.is_stored:
            raise SpecError(
                "type: 'full' is not supported for a lookup join, which never reads which right records matched "
                "nothing; make it a window join, or report them to a topic of their own (`topics.unjoined` and "
                "`teacup unjoined`) beside type 'left'"
            )
        if not self.type.left_alone:
            return
        if self.policy is Policy.ALL:
            raise SpecError(
                f"policy: 'all' gives a row for each pair, and type '{self.type}' asks only whether there is one; "
                "choose another policy"
            )
        if self.value_schema is not None:
            raise SpecError(
                f"right.schema: rows of type '{self.type}' hold left alone; remove it, or give type 'inner'"
            )
        if self.keep:
            raise SpecError(f"right.keep: rows of type '{self.type}' hold left alone; remove it, or give type 'inner'")
        object.__setattr__(self, "keep", ())

    def _check_versions(self) -> None:
        if not self.of_versions:
            if self.tombstones == "delete":
                raise SpecError(
                    f"tombstones of {self.topic!r}: 'delete' is for a table that changes (before 'unlimited'); a "
                    "record of a stream cannot be deleted: give 'skip' or 'dead_letter'"
                )
            return
        if not self.source.is_stored:
            raise SpecError(
                "before: 'unlimited' needs right's versions in a store: make it a lookup join (`kind: lookup-join`) "
                "over a namespace with `keep: versions`; or give a duration"
            )
        if self.policy is not Policy.LAST:
            raise SpecError(
                f"policy: '{self.policy}' is not allowed with before 'unlimited', which joins the newest version at "
                "left's time; give 'last'"
            )
        if self.source.right_is_judged:
            raise SpecError(
                "topics.unjoined: of a table that changes (before 'unlimited') no version is ever unjoined, as each "
                "may still be looked up; remove it, or give `before` a duration"
            )

    @property
    def of_versions(self) -> bool:
        """Whether right is a table that changes: left is joined with the version that was true at its time."""
        return self.before_ms == UNLIMITED_MS

    @property
    def store(self) -> Store:
        """Where right is stored. Raises `SpecError` if the join reads right's topic itself."""
        if isinstance(self.source, Store):
            return self.source
        raise SpecError(
            f"source of {self.topic!r}: a lookup join needs right records in a store; give source=Store(...)"
        )


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


def check_registry(registry: Mapping[str, str], *sides: Side) -> None:
    """Raises `SpecError` if a side's schemas cannot be found, or their decoder is not installed."""
    for side in sides:
        if side.format.framed and not all(map(_installed, ("fastavro", "google.protobuf", "httpx2"))):
            raise SpecError(f"format '{side.format}' of {side.topic!r} needs pip install 'teacup-joins[registry]'")
        if side.format.framed and not registry.get("url", "").startswith(("http://", "https://")):
            raise SpecError(
                f"registry: format '{side.format}' of {side.topic!r} needs a registry; give its url, http(s)://…"
            )


IDENTITY = (
    "left.topic",
    "left.key",
    "left.time",
    "left.time_unit",
    "left.disorder_ms",
    "left.format",
    "right.topic",
    "right.key",
    "right.keep",
    "right.time",
    "right.time_unit",
    "right.disorder_ms",
    "right.format",
    "before_ms",
    "after_ms",
    "policy",
    "outliers",
)
"""The values that decide the rows of a join; its checkpoint is bound to them."""
OF_RIGHT = {name: f"right.{name}" for name in ("before_ms", "after_ms", "policy", "type")}
"""Where values are whose name is not their place."""
IDENTITY_IF_SET = {
    **dict.fromkeys(
        (
            "left.tombstones",
            "right.tombstones",
            "left.time_zone",
            "right.time_zone",
            "right.deletes",
            "left.where",
            "right.where",
        )
    ),
    "type": JoinType.LEFT,
}
"""More values, each left out if it equals this default."""


BUCKETS = 8
"""The default number of buckets, unless there are fewer partitions: each costs as much CPU in a small batch as some
thousand records."""
RECORDS_PER_BATCH, RECORDS_OF_A_BUCKET, MOST_RECORDS_PER_BATCH = 1_000_000, 90_000, 6_000_000
"""The default limit of a batch: the smallest, the one per bucket, and the largest."""


@dataclass(frozen=True, kw_only=True)
class JoinSpec(DurationArgs, BothSides[Side]):
    """One join. Each duration is a number (`max_future_skew_ms=1_000`) or a text as in a job file.

    start            where left starts in a new checkpoint: "earliest", "latest", epoch milliseconds, or the offset of
                     each partition (a partition without one starts at its first record)
    max_records      the soft limit of records (left and right together) per batch; None: `records_of_batch`
    max_right_bytes  how many bytes of right (keys, values, headers) may enter a bucket's window in a batch, plus one
                     record; the next batch takes the rest. On the shuffled path it also limits left, which a task
                     has to hold there
    complete         under `available_now`: no record follows those that are there when a run begins, on either side.
                     What is read to its end is finished, whatever `idle` and the clock say
    idle, producer_delay_ms  for each topic that the join reads; for a stored right, the collector has them
    on_data_loss     "stop", or "continue" with what is left of the log and count the loss
    path             how records reach the task that joins them; None: direct if the topics are partitioned alike
    buckets          among how many tasks a large batch is divided; None: one per partition, at most `BUCKETS` and, on
                     a local master, its cores. On the direct path a bucket has whole partitions, so there are never
                     more than these
    watermark_every_ms  the shortest interval between batches without records, which only expire the window
    outliers         n: up to n of 2n + 1 consecutive records may have a wrong time (far too late, or ahead of their
                     neighbours) without affecting the others; bounds rest on the median of 2n + 1
    kafka            librdkafka properties for both topics
    registry         properties of the schema registry (`url`, `basic.auth.user.info`); like those of `kafka`, never
                     written to a checkpoint or a log
    """

    name: JobName
    left: Side
    right: Right
    producer_delay_ms: Millis = PRODUCER_DELAY_MS
    producer_delay: InitVar[str | None] = None
    max_future_skew_ms: Millis = MAX_FUTURE_SKEW_MS
    max_future_skew: InitVar[str | None] = None
    idle: Idle = Idle.ADVANCE
    complete: bool = False
    max_records: Count | None = None
    max_right_bytes: Count = 256 << 20
    start: Start | Offsets = "earliest"
    on_data_loss: OnDataLoss = "stop"
    path: JoinPath | None = None
    buckets: Count | None = None
    watermark_every_ms: Millis = 1_000
    watermark_every: InitVar[str | None] = None
    outliers: Outliers = OUTLIERS
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self, *durations: str | None) -> None:
        self.take_texts(durations)
        coerce_fields(self, SpecError)
        if self.one_topic and self.right.source.is_stored:
            raise SpecError(
                f"right.topic: {self.right.topic!r} is left's topic as well; a lookup join needs two topics, a window "
                "join does not"
            )
        if self.left.keep is not None:
            raise SpecError("left.keep is not allowed: left records are never stored; give right.keep")
        if self.left.tombstones == "delete":
            raise SpecError("left.tombstones: 'delete' is for right; give 'skip' or 'dead_letter'")
        if self.complete and self.right.source.is_stored:
            raise SpecError(
                "complete: not supported for a lookup join, where the Data Delay API says how far right is stored"
            )
        check_registry(self.registry, self.left, self.right)
        parts = [len(side.key_of.parts) for side in (self.left, self.right)]
        if parts[0] != parts[1]:
            raise SpecError(
                f"right.key: {self.right.key!r} has {parts[1]} part(s), left.key {self.left.key!r} has {parts[0]}: no "
                "key could be equal; give both sides the same number, in the same order"
            )

    @property
    def span_ms(self) -> int:
        """How long, in event time, a right record may be needed: the interval and the disorder of both sides.

        With `before` unlimited: how long a version may be needed after the next one.
        """
        before_ms = 0 if self.right.of_versions else self.right.before_ms
        return before_ms + self.right.after_ms + self.left.disorder_ms + self.right.disorder_ms

    @property
    def typed(self) -> tuple[str, ...]:
        """The sides that have a schema."""
        return tuple(name for name in OTHER if self.side(name).value_schema is not None)

    @property
    def one_topic(self) -> bool:
        """Whether left's topic is right's: a record may take part on both sides, and does not match itself."""
        return self.left.topic == self.right.topic

    @property
    def is_direct(self) -> bool:
        """Whether a left record can only match right records in the partition of its number."""
        return self.path is not JoinPath.SHUFFLED and not self.right.source.is_stored

    def buckets_of(self, partitions: int, cores: int | None = None) -> int:
        """Returns into how many buckets a new checkpoint divides this many partitions; cores: None if unknown."""
        wanted = min(partitions, BUCKETS, cores or BUCKETS) if self.buckets is None else self.buckets
        return wanted if self.path is JoinPath.SHUFFLED else min(wanted, partitions)

    def records_of_batch(self, buckets: int) -> int:
        """Returns the soft limit of records in a batch with this many buckets.

        Each bucket has a fixed cost per batch, so the limit grows with their number. It is limited at all because a
        clean stop waits for the batch, and a failed batch is repeated.
        """
        if self.max_records is not None:
            return self.max_records
        return min(max(RECORDS_PER_BATCH, RECORDS_OF_A_BUCKET * buckets), MOST_RECORDS_PER_BATCH)

    def identity(self) -> dict[str, object]:
        """What a checkpoint is bound to: a change of any of these needs a new checkpoint."""
        of_source = self.right.source.identity
        return identity_of(self, (*IDENTITY, *of_source), IDENTITY_IF_SET, {**OF_RIGHT, **of_source})
