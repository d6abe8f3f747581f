"""The JSON of the Data Delay API, shared by its server and its client.

Times are integers of epoch milliseconds (`..._ms`), for programs; where people read them, the same time is given beside
it in ISO 8601. Unknown values are null.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from pydantic import FailFast, Field

from datadelay.model import (
    OFFSET_MAX,
    PARTITIONS_MAX,
    TEXT_MAX,
    TEXT_PATTERN,
    TIME_MAX_MS,
    TIME_MIN_MS,
    Delay,
    DelayState,
    PartitionReport,
    Point,
    Submission,
)
from teacup.base.times import iso
from teacup.http.bodies import AnsweredBody, SentBody

TimeMs = Annotated[int, Field(strict=True, ge=TIME_MIN_MS, le=TIME_MAX_MS, description="epoch milliseconds, UTC")]
Text = Annotated[str, Field(min_length=1, max_length=TEXT_MAX, pattern=TEXT_PATTERN)]

NO_DELAY = "/problems/no-delay"
"""The type of the problem "nothing was ever submitted for this consumer and topic", unlike a wrong path."""


class PartitionBody(SentBody):
    """One partition of a submission. `reason` is given exactly when `watermark_ms` is null."""

    partition: int = Field(strict=True, ge=0, lt=2**31)
    position: int | None = Field(strict=True, ge=0, le=OFFSET_MAX, description="the next offset to read")
    watermark_ms: TimeMs | None = Field(description="no unread record has an event time below it")
    reason: Text | None = None


class SubmissionBody(SentBody):
    """The findings of one collector run. `consumed_until_ms` is the smallest `watermark_ms`, or null with a reason."""

    listed_ms: TimeMs = Field(description="the wall clock just before the end offsets were listed")
    consumed_until_ms: TimeMs | None
    reason: Text | None = None
    caught_up: bool = Field(default=False, strict=True, description="nothing was unread in any partition")
    generation: Text = Field(description="of the consumer, opaque")
    store_generation: Text | None = Field(default=None, description="of the store that it feeds, opaque")
    partitions: Annotated[list[PartitionBody], FailFast(), Field(max_length=PARTITIONS_MAX)]

    def submission(self, consumer: str, topic: str) -> Submission:
        """Returns this as plain data. Raises `SubmissionInvalid` if the body contradicts itself."""
        return Submission(
            consumer=consumer,
            topic=topic,
            listed_ms=self.listed_ms,
            consumed_until_ms=self.consumed_until_ms,
            reason=self.reason,
            caught_up=self.caught_up,
            generation=self.generation,
            store_generation=self.store_generation,
            partitions=tuple(
                PartitionReport(p.partition, p.position, p.watermark_ms, p.reason) for p in self.partitions
            ),
        )

    @classmethod
    def of(cls, submission: Submission) -> SubmissionBody:
        """Returns the body for `submission`; consumer and topic are in the URL."""
        return cls.model_validate(submission, from_attributes=True)


class RewindBody(SentBody):
    """A rewind: the consumer went back on purpose."""

    note: Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT_PATTERN)] | None = Field(
        default=None, description="who and why; shown as the reason until the next submission"
    )


class DelayBody(AnsweredBody):
    """What is published of one consumer and topic at the moment `now_ms`."""

    consumer: str
    topic: str
    now_ms: int
    state: DelayState
    reason: str | None = Field(description="why the state is unknown or stale")
    consumed_until_ms: int | None = Field(description="null: not known. No unread record is older than this")
    consumed_until: str | None
    delay_ms: int | None = Field(description="now minus consumed_until; null: not known")
    since_ms: int = Field(description="when the present state began")
    since: str
    listed_ms: int = Field(description="when the newest submission listed the ends")
    listed: str
    age_ms: int = Field(description="now minus listed")
    success_ms: int | None = Field(description="listed_ms of the newest submission that carried a value")
    success: str | None
    stale_after_ms: int
    generation: str
    store_generation: str | None
    slowest: PartitionBody | None = Field(description="the partition that holds the value back")
    partitions: list[PartitionBody] | None = Field(default=None, description="null unless asked for")

    @classmethod
    def of(cls, delay: Delay) -> DelayBody:
        """Returns the answer for `delay`."""
        success_ms, until_ms = delay.success_ms, delay.consumed_until_ms
        times = {
            "consumed_until": None if until_ms is None else iso(until_ms),
            "since": iso(delay.since_ms),
            "listed": iso(delay.listed_ms),
            "success": None if success_ms is None else iso(success_ms),
        }
        return cls.model_validate({**_members(delay), **times}, from_attributes=True)

    def delay(self) -> Delay:
        """Returns this as plain data."""
        return msgspec.convert(self, Delay, from_attributes=True)


class DelayListBody(AnsweredBody):
    """Every consumer and topic, ordered by name, at one moment."""

    now_ms: int
    now: str
    delays: list[DelayBody]


class PointBody(AnsweredBody):
    """One step of a history: what was published from `at_ms` on."""

    sequence: int
    at_ms: int
    at: str
    state: DelayState
    consumed_until_ms: int | None
    delay_ms: int | None = Field(description="at_ms minus consumed_until_ms; null: not known")
    reason: str | None
    slowest_partition: int | None

    @classmethod
    def of(cls, point: Point) -> PointBody:
        """Returns the answer for `point`."""
        delay_ms = None if point.consumed_until_ms is None else point.at_ms - point.consumed_until_ms
        return cls(**_members(point), at=iso(point.at_ms), delay_ms=delay_ms)

    def point(self) -> Point:
        """Returns this as plain data."""
        return msgspec.convert(self, Point, from_attributes=True)


class HistoryBody(AnsweredBody):
    """A page of a history, newest first."""

    consumer: str
    topic: str
    points: list[PointBody]
    next_before: int | None = Field(description="pass it as `before` for the next, older page; null: the last one")


def _members(value: Delay | Point) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
