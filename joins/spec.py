"""What a join is: a frozen, validated description, shared by the in-memory and the lookup flavours. Pure.

A pair joins when the keys are equal and `right.time` lies in `[left.time - before, left.time + after]`, both ends
included. All times and durations are int64 milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from datadelay.progress import Idle
from joins.errors import SpecError
from kafkaio.eventtime import OUTLIERS

LONGEST_MS = 3_650 * 86_400_000
"""Ten years: a longer duration is a mistake, and sums of absurd ones would overflow 64 bits."""


class Policy(StrEnum):
    """Which right record a left one goes out with. Order is event time, then partition, then offset."""

    NEAREST = "nearest"  # the smallest distance in time; of two equally near ones the earlier
    FIRST = "first"
    LAST = "last"
    ALL = "all"  # one row per pair


class Format(StrEnum):
    """What the values of a topic are, as far as a join needs to know."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


def check_duration(name: str, value_ms: int) -> None:
    """Raise `SpecError` for a negative duration, and for one longer than `LONGEST_MS`."""
    if not 0 <= value_ms <= LONGEST_MS:
        raise SpecError(
            f"{name}: {value_ms} is not allowed; give 0 or more milliseconds, at most {LONGEST_MS} (ten years)"
        )


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two topics.

    time         "kafka": the record's timestamp; otherwise a JSON path into the value (`$.event.time`) that holds
                 milliseconds since the epoch, or an ISO-8601 text with a zone
    disorder_ms  how far below the largest time seen before it in its partition a record's time may lie
    format       how the value is embedded in the output; a JSON path needs "json"
    """

    topic: str
    time: str = "kafka"
    disorder_ms: int = 1_000
    format: Format = Format.BYTES

    def __post_init__(self) -> None:
        if not self.topic:
            raise SpecError("topic: '' is not allowed; name a Kafka topic")
        check_duration(f"disorder_ms of {self.topic!r}", self.disorder_ms)
        if self.time != "kafka" and not self.time.startswith("$"):
            raise SpecError(
                f"time of {self.topic!r}: {self.time!r} is not allowed; give 'kafka' or a JSON path such as '$.time'"
            )
        if self.time != "kafka" and self.format is not Format.JSON:
            raise SpecError(f"format of {self.topic!r}: a time in the payload ({self.time!r}) needs format 'json'")

    @property
    def payload_time(self) -> bool:
        return self.time != "kafka"


@dataclass(frozen=True, kw_only=True)
class JoinSpec:
    """One join. `kafka` holds librdkafka properties for both topics; it is never written to a checkpoint or a log.

    start            "earliest", "latest", or epoch milliseconds: where left starts in a new checkpoint
    max_records      the soft limit of records (left and right together) per batch
    max_right_bytes  how many bytes of right (keys, values, headers) may enter a bucket's window in a batch, plus one
                     record; the rest is left to the next batch
    max_wait_ms      how long left waits for a right topic whose frontier stands still; None: for ever
    on_data_loss     "stop", or "continue" with what is left of the log, with the loss counted
    frontier_every_ms  the shortest interval between batches without records, which only expire the window
    outliers         n: how many of 2n + 1 records in a row may have a wrong time (far too late, or ahead of their
                     neighbours) without affecting the others; bounds rest on the median of that many
    """

    name: str
    left: Side
    right: Side
    before_ms: int
    after_ms: int
    policy: Policy = Policy.NEAREST
    producer_delay_ms: int = 10_000
    max_future_skew_ms: int = 60_000
    idle: Idle = Idle.ADVANCE
    max_wait_ms: int | None = None
    max_records: int = 1_000_000
    max_right_bytes: int = 256 << 20
    start: str | int = "earliest"
    on_data_loss: str = "stop"
    frontier_every_ms: int = 1_000
    outliers: int = OUTLIERS
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise SpecError("name: '' is not allowed; give the join a name")
        for name in ("before_ms", "after_ms", "producer_delay_ms", "max_future_skew_ms"):
            check_duration(name, getattr(self, name))
        if self.outliers < 0:
            raise SpecError(f"outliers: {self.outliers} is not allowed; give 0 or more records")
        if self.max_wait_ms is not None:
            if self.max_wait_ms <= 0:
                raise SpecError(
                    f"max_wait_ms: {self.max_wait_ms} is not allowed; give 1 or more, or leave it out to wait"
                )
            check_duration("max_wait_ms", self.max_wait_ms)
        if self.max_records < 1:
            raise SpecError(f"max_records: {self.max_records} is not allowed; give 1 or more")
        if self.max_right_bytes < 1:
            raise SpecError(f"max_right_bytes: {self.max_right_bytes} is not allowed; give 1 or more")
        if self.left.topic == self.right.topic:
            raise SpecError(f"right.topic: {self.right.topic!r} is left's topic as well; a join needs two topics")
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            raise SpecError(f"start: {self.start!r} is not allowed; give 'earliest', 'latest' or epoch milliseconds")
        if self.on_data_loss not in ("stop", "continue"):
            raise SpecError(f"on_data_loss: {self.on_data_loss!r} is not allowed; give 'stop' or 'continue'")

    def side(self, name: str) -> Side:
        """The side called "left" or "right"."""
        return self.left if name == "left" else self.right

    @property
    def span_ms(self) -> int:
        """How long, in event time, a right record may be needed: the interval and the disorder of both sides."""
        return self.before_ms + self.after_ms + self.left.disorder_ms + self.right.disorder_ms

    def identity(self) -> dict[str, object]:
        """What a checkpoint is bound to: a change of any of these needs a new checkpoint."""
        return {
            "left.topic": self.left.topic,
            "left.time": self.left.time,
            "left.disorder_ms": self.left.disorder_ms,
            "right.topic": self.right.topic,
            "right.time": self.right.time,
            "right.disorder_ms": self.right.disorder_ms,
            "before_ms": self.before_ms,
            "after_ms": self.after_ms,
            "policy": str(self.policy),
            "outliers": self.outliers,
        }
