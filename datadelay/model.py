"""What a collector submits, and what a reader gets: plain frozen data. Pure.

    Submission   one run's findings about one consumer and topic: every partition's position and watermark
    Delay        what is published of it at one moment: `consumed_until`, or why it is unknown
    Point        one step of a delay's history

All times are int64 milliseconds UTC. "Unknown" is None with a reason, never 0 and never NaN. `watermark.UNKNOWN` lies
outside the range that a submission may carry, so it cannot be taken for a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from datadelay.errors import SubmissionInvalid

TIME_MIN_MS = -62_135_596_800_000
"""0001-01-01T00:00Z, the earliest time that has an ISO 8601 form."""
TIME_MAX_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the latest time with such a form."""
OFFSET_MAX = 2**63 - 1
NAME_PATTERN = "^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""Kafka's rule for topics, except names of dots alone, which URLs would swallow."""
NAME_MAX = 249
TEXT_MAX = 1000
TEXT_PATTERN = "^[^\\x00]*$"
"""PostgreSQL stores no NUL."""
PARTITIONS_MAX = 10_000
"""The most partitions of one topic."""
_FITTING = f"1 to {TEXT_MAX} characters, none of them NUL or half of a surrogate pair"


class DelayState(StrEnum):
    """What is known of a delay.

    ok         the value is known and fresh
    caught_up  the same, and nothing was unread when the ends were listed
    unknown    there is no value; the reason says why
    stale      there is a value, but the collector has been silent for too long
    """

    OK = "ok"
    CAUGHT_UP = "caught_up"
    UNKNOWN = "unknown"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition in a submission; `reason` is given exactly when `watermark_ms` is None."""

    partition: int
    position: int | None
    watermark_ms: int | None
    reason: str | None = None

    def __post_init__(self) -> None:
        where = f"partition {self.partition}"
        if not 0 <= self.partition < 2**31:
            raise SubmissionInvalid(f"{where}: a partition's number lies in [0, 2^31)")
        if self.position is not None and not 0 <= self.position <= OFFSET_MAX:
            raise SubmissionInvalid(f"{where}: position {self.position} is not an offset; send null with a reason")
        _check_time(self.watermark_ms, f"{where}: watermark_ms")
        _check_reason(self.watermark_ms, self.reason, f"{where}: watermark_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One collector run's findings about one consumer and topic.

    listed_ms          the wall clock just before the end offsets were listed
    consumed_until_ms  the smallest watermark of a partition; None, with a reason, if a partition has none
    generation         changes when the consumer starts over: its positions cannot be compared with earlier ones
    store_generation   the same for the store that the consumer feeds; None if it feeds none
    caught_up          every partition was caught up with its end
    """

    consumer: str
    topic: str
    listed_ms: int
    consumed_until_ms: int | None
    reason: str | None = None
    partitions: tuple[PartitionReport, ...]
    generation: str
    store_generation: str | None = None
    caught_up: bool = False

    def __post_init__(self) -> None:
        for what, name in (("consumer", self.consumer), ("topic", self.topic)):
            if len(name) > NAME_MAX or not re.fullmatch(NAME_PATTERN, name):
                raise SubmissionInvalid(f"{what} {name!r}: 1 to {NAME_MAX} of A-Z a-z 0-9 . _ -, and not dots alone")
        for what, text in (("generation", self.generation), ("store_generation", self.store_generation)):
            if text is not None and not _fits(text):
                raise SubmissionInvalid(f"{what} {text[:40]!r}: {_FITTING}")
        _check_time(self.listed_ms, "listed_ms")
        _check_time(self.consumed_until_ms, "consumed_until_ms")
        _check_reason(self.consumed_until_ms, self.reason, "consumed_until_ms")
        numbers = [report.partition for report in self.partitions]
        if len(set(numbers)) != len(numbers):
            twice = sorted({number for number in numbers if numbers.count(number) > 1})
            raise SubmissionInvalid(f"partitions {twice[:5]} are reported more than once")
        self._check_value()

    def _check_value(self) -> None:
        if self.consumed_until_ms is None:
            return
        worst = slowest(self.partitions)
        if worst is None:
            raise SubmissionInvalid("consumed_until_ms without any partition: send null with a reason")
        if worst.watermark_ms is None:
            raise SubmissionInvalid(
                f"consumed_until_ms {self.consumed_until_ms}, but the watermark of partition {worst.partition} "
                f"is not known ({worst.reason}): send null with a reason"
            )
        if self.consumed_until_ms > worst.watermark_ms:
            raise SubmissionInvalid(
                f"consumed_until_ms {self.consumed_until_ms} is beyond the watermark {worst.watermark_ms} of partition "
                f"{worst.partition}: it is the smallest watermark of a partition"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """What is published of one consumer and topic at `now_ms` of the server's clock.

    consumed_until_ms  every record still unread has an event time >= this one; None: unknown (state `unknown`)
    delay_ms           `now_ms` minus `consumed_until_ms`
    since_ms           when the current state began
    listed_ms, age_ms  when the ends of the newest submission were listed, and how long ago that is
    success_ms         `listed_ms` of the newest submission that carried a value; None if there was none
    stale_after_ms     the age from which a value counts as stale
    slowest            the partition that holds the value back; one without a watermark comes before all others
    partitions         all of them, if the reader asked for them
    """

    consumer: str
    topic: str
    now_ms: int
    state: DelayState
    reason: str | None
    consumed_until_ms: int | None
    delay_ms: int | None
    since_ms: int
    listed_ms: int
    age_ms: int
    success_ms: int | None
    stale_after_ms: int
    generation: str
    store_generation: str | None
    slowest: PartitionReport | None
    partitions: tuple[PartitionReport, ...] | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a delay's history: what was published from `at_ms` on. `sequence` grows by one per step."""

    sequence: int
    at_ms: int
    state: DelayState
    consumed_until_ms: int | None
    reason: str | None
    slowest_partition: int | None


def fitted(text: str) -> str:
    """Returns the text, cut and escaped so that a submission can carry it."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")[:TEXT_MAX]


def slowest(partitions: tuple[PartitionReport, ...]) -> PartitionReport | None:
    """Returns the partition that holds a topic back: without a watermark, else with the smallest; then by number."""
    return min(
        partitions,
        key=lambda report: (report.watermark_ms is not None, report.watermark_ms or 0, report.partition),
        default=None,
    )


def _check_time(time_ms: int | None, what: str) -> None:
    if time_ms is not None and not TIME_MIN_MS <= time_ms <= TIME_MAX_MS:
        raise SubmissionInvalid(
            f"{what} {time_ms} is not a time in milliseconds between the years 1 and 9999; "
            "what is not known is null with a reason"
        )


def _check_reason(value: int | None, reason: str | None, what: str) -> None:
    if value is None and not reason:
        raise SubmissionInvalid(f"{what} is null without a reason: say why it is not known")
    if value is not None and reason is not None:
        raise SubmissionInvalid(f"{what} has both a value ({value}) and a reason ({reason[:80]!r}): drop one")
    if reason is not None and not _fits(reason):
        raise SubmissionInvalid(f"the reason of {what}, {reason[:40]!r}: {_FITTING}")


def _fits(text: str) -> bool:
    return 0 < len(text) <= TEXT_MAX and re.search("[\0\ud800-\udfff]", text) is None
