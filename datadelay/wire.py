"""The JSON of the Data Delay API, shared by its server and its client.

Times are integers of epoch milliseconds (`..._ms`), for programs; where people read them, the same time is given beside
it in ISO 8601. Unknown values are null.
"""

from __future__ import annotations

from typing import Annotated

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
        return cls(
            listed_ms=submission.listed_ms,
            consumed_until_ms=submission.consumed_until_ms,
            reason=submission.reason,
            caught_up=submission.caught_up,
            generation=submission.generation,
            store_generation=submission.store_generation,
            partitions=[_partition_body(report) for report in submission.partitions],
        )


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
        return cls(
            consumer=delay.consumer,
            topic=delay.topic,
            now_ms=delay.now_ms,
            state=delay.state,
            reason=delay.reason,
            consumed_until_ms=delay.consumed_until_ms,
            consumed_until=None if delay.consumed_until_ms is None else iso(delay.consumed_until_ms),
            delay_ms=delay.delay_ms,
            since_ms=delay.since_ms,
            since=iso(delay.since_ms),
            listed_ms=delay.listed_ms,
            listed=iso(delay.listed_ms),
            age_ms=delay.age_ms,
            success_ms=delay.success_ms,
            success=None if delay.success_ms is None else iso(delay.success_ms),
            stale_after_ms=delay.stale_after_ms,
            generation=delay.generation,
            store_generation=delay.store_generation,
            slowest=_partition_body(delay.slowest) if delay.slowest else None,
            partitions=None if delay.partitions is None else [_partition_body(p) for p in delay.partitions],
        )

    def delay(self) -> Delay:
        """Returns this as plain data."""
        return Delay(
            consumer=self.consumer,
            topic=self.topic,
            now_ms=self.now_ms,
            state=self.state,
            reason=self.reason,
            consumed_until_ms=self.consumed_until_ms,
            delay_ms=self.delay_ms,
            since_ms=self.since_ms,
            listed_ms=self.listed_ms,
            age_ms=self.age_ms,
            success_ms=self.success_ms,
            stale_after_ms=self.stale_after_ms,
            generation=self.generation,
            store_generation=self.store_generation,
            slowest=_partition_report(self.slowest) if self.slowest else None,
            partitions=None if self.partitions is None else tuple(_partition_report(p) for p in self.partitions),
        )


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
        value_ms = point.consumed_until_ms
        return cls(
            sequence=point.sequence,
            at_ms=point.at_ms,
            at=iso(point.at_ms),
            state=point.state,
            consumed_until_ms=value_ms,
            delay_ms=None if value_ms is None else point.at_ms - value_ms,
            reason=point.reason,
            slowest_partition=point.slowest_partition,
        )

    def point(self) -> Point:
        """Returns this as plain data."""
        return Point(
            sequence=self.sequence,
            at_ms=self.at_ms,
            state=self.state,
            consumed_until_ms=self.consumed_until_ms,
            reason=self.reason,
            slowest_partition=self.slowest_partition,
        )


class HistoryBody(AnsweredBody):
    """A page of a history, newest first."""

    consumer: str
    topic: str
    points: list[PointBody]
    next_before: int | None = Field(description="pass it as `before` for the next, older page; null: the last one")


def _partition_body(report: PartitionReport) -> PartitionBody:
    return PartitionBody(
        partition=report.partition,
        position=report.position,
        watermark_ms=report.watermark_ms,
        reason=report.reason,
    )


def _partition_report(body: PartitionBody) -> PartitionReport:
    return PartitionReport(body.partition, body.position, body.watermark_ms, body.reason)
