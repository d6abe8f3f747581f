"""Turns what was observed of a topic's partitions into a submission. Pure.

Observed of each partition: its ends (the clock is read first, then the ends are listed), the committed position (read
after the ends), and the event times of two blocks of valid records (`teacup.kafka.records.record`): the last ones read,
and the first unread ones in [position, last stable offset). Records without a valid time are skipped: a join sends them
to the dead-letter topic. If no unread record has a time, the partition watermark is unknown
(`datadelay.collector.observe`). The first row that applies decides. `D` is the disorder; R is the time that the block
of records already read proves: its typical time, or nothing if it has at most `outliers` records.

    observed                                           partition watermark
    the broker or the position store failed            unknown, with the error
    no position, but the log holds records             unknown: where the consumer will start is not known
    position above the high watermark, listed again    unknown: the topic was recreated or truncated
    position below the log's start                     unknown: retention deleted unread records
    unread records                                     see `datadelay.watermark.unread_watermark`
    none unread, last stable offset = high             listed - producer delay (`idle: hold`: as the next row)
    none unread, an open transaction hides records     R - D
    otherwise                                          unknown

A consumer that keeps reading while it is observed may pass the high watermark that was listed. The ends are then listed
again, to distinguish this from a position that does not exist. Gaps need no rule: if only compacted or aborted records
or markers fill [position, last stable offset), no record is unread. A partition without records needs no position. The
topic's result is the watermark over its partitions; it is unknown if any partition is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datadelay.model import TIME_MAX_MS, TIME_MIN_MS, Delay, PartitionReport, Submission, fitted
from datadelay.watermark import UNKNOWN, Idle, partition_watermark, unread_watermark, watermark
from teacup.base.times import DISORDER_MS, MAX_FUTURE_SKEW_MS, PRODUCER_DELAY_MS
from teacup.kafka.log.topic_log import Ends
from teacup.kafka.records.record import OUTLIERS, proven

NO_GENERATION = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is known of a topic's times, in the terms of `datadelay.watermark`."""

    disorder_ms: int = DISORDER_MS
    producer_delay_ms: int = PRODUCER_DELAY_MS
    max_future_skew_ms: int = MAX_FUTURE_SKEW_MS
    idle: Idle = Idle.ADVANCE
    outliers: int = OUTLIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What was observed of a partition.

    ends       as listed at `listed_ms`
    position   the committed one; None if there is none
    high_now   the high watermark, listed again if the position was above the first one
    unread_ms  times of the first block of unread records; less than a block: there are no more
    read_ms    times of the last block of records already read, where needed
    trouble    why the partition could not be read
    """

    partition: int
    ends: Ends
    position: int | None
    high_now: int | None = None
    unread_ms: tuple[int, ...] = ()
    read_ms: tuple[int, ...] = ()
    trouble: str | None = None


def unread_span(position: int | None, ends: Ends) -> tuple[int, int] | None:
    """Returns where to look for the first unread records; None if nothing has to be read."""
    if position is None or not ends.start <= position < ends.stable:
        return None
    return position, ends.stable


def read_below(observed: Observed, rules: Rules) -> int | None:
    """Returns the offset below which to look for the last records already read; None if the clock suffices."""
    if _refusal(observed) is not None or observed.position is None:
        return None
    if not observed.unread_ms and observed.ends.settled and rules.idle is Idle.ADVANCE:
        return None
    return min(observed.position, observed.ends.stable)


def is_caught_up(observed: Observed) -> bool:
    """Returns whether nothing was unread when the ends were listed."""
    return _refusal(observed) is None and not observed.unread_ms and observed.ends.settled


def partition_report(observed: Observed, listed_ms: int, rules: Rules) -> PartitionReport:
    """Returns the report of one partition."""
    refusal = _refusal(observed)
    watermark_ms = UNKNOWN if refusal else _watermark_ms(observed, listed_ms, rules)
    if refusal is None and not TIME_MIN_MS <= watermark_ms <= TIME_MAX_MS:
        refusal = _why_no_time(observed, watermark_ms)
    if refusal is not None:
        return PartitionReport(observed.partition, observed.position, None, fitted(refusal))
    return PartitionReport(observed.partition, observed.position, watermark_ms)


def submission(
    *,
    consumer: str,
    topic: str,
    listed_ms: int,
    generation: str,
    store_generation: str | None,
    partitions: Sequence[Observed],
    rules: Rules,
) -> Submission:
    """Returns the submission for a topic."""
    reports = tuple(partition_report(partition, listed_ms, rules) for partition in partitions)
    reason = _topic_reason(reports)
    until_ms = (
        None if reason else watermark(report.watermark_ms for report in reports if report.watermark_ms is not None)
    )
    return Submission(
        consumer=consumer,
        topic=topic,
        listed_ms=listed_ms,
        consumed_until_ms=until_ms,
        reason=reason,
        partitions=reports,
        generation=generation,
        store_generation=store_generation,
        caught_up=until_ms is not None and all(is_caught_up(partition) for partition in partitions),
    )


def failed_submission(*, consumer: str, topic: str, listed_ms: int, reason: str, before: Delay | None) -> Submission:
    """Returns the submission if nothing could be observed: unknown, with generations and partitions unchanged.

    Leaving them out would mean that the partitions are gone, or that the consumer started over.
    """
    reason = fitted(reason) or "no reason was given"
    partitions_before = () if before is None else before.partitions or ()
    return Submission(
        consumer=consumer,
        topic=topic,
        listed_ms=listed_ms,
        consumed_until_ms=None,
        reason=reason,
        partitions=tuple(PartitionReport(report.partition, None, None, reason) for report in partitions_before),
        generation=NO_GENERATION if before is None else before.generation,
        store_generation=None if before is None else before.store_generation,
    )


def _refusal(observed: Observed) -> str | None:
    """Returns why no conclusion is possible, in the order of the table above."""
    ends, position = observed.ends, observed.position
    if observed.trouble is not None:
        return observed.trouble
    if position is None:
        if ends.start == ends.high:
            return None
        return (
            f"no committed position, and the log holds [{ends.start}, {ends.high}): the consumer has never committed, "
            "its group was deleted, or Kafka has forgotten it (`offsets.retention.minutes` after the last commit). "
            "Start the consumer; a feeder that runs commits again within a minute"
        )
    if position > ends.high and (observed.high_now is None or position > observed.high_now):
        high = ends.high if observed.high_now is None else observed.high_now
        return f"position {position} is beyond the end {high}: was the topic recreated, or truncated?"
    if position < ends.start:
        return (
            f"position {position} is below the log's start {ends.start}: retention deleted {ends.start - position} "
            "offsets unread; start a feeder with a new checkpoint, move any other consumer (`teacup offsets set`)"
        )
    return None


def _watermark_ms(observed: Observed, listed_ms: int, rules: Rules) -> int:
    if observed.unread_ms:
        return unread_watermark(
            read_ms=observed.read_ms,
            unread_ms=observed.unread_ms,
            outliers=rules.outliers,
            disorder_ms=rules.disorder_ms,
            settled_listed_ms=listed_ms if observed.ends.settled else None,
            producer_delay_ms=rules.producer_delay_ms,
            idle=rules.idle,
        )
    return partition_watermark(
        disorder_ms=rules.disorder_ms,
        newest_ms=proven(observed.read_ms, rules.outliers),
        caught_up_listed_ms=listed_ms if observed.ends.settled else None,
        producer_delay_ms=rules.producer_delay_ms,
        idle=rules.idle,
    )


def _why_no_time(observed: Observed, watermark_ms: int) -> str:
    if watermark_ms != UNKNOWN:
        return f"the record at or after position {observed.position} has a time out of range ({watermark_ms} ms)"
    if not observed.ends.settled:
        hidden = observed.ends.high - observed.ends.stable
        return f"an open transaction hides {hidden} offsets, and too few records before it have a time"
    return "too few records have a time, and `idle: hold` does not allow using the clock instead"


def _topic_reason(reports: Sequence[PartitionReport]) -> str | None:
    if not reports:
        return "the topic has no partitions"
    unknown = [report for report in reports if report.watermark_ms is None]
    if not unknown:
        return None
    count = f"{len(unknown)} of {len(reports)} partitions unknown; " if len(reports) > 1 else ""
    return fitted(f"{count}partition {unknown[0].partition}: {unknown[0].reason}")
