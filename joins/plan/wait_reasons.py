"""Why nothing may be read now: what left waits for, by bucket. Pure.

unread            a right partition is not read to its end, and may not be read further yet
open transaction  it is read to its last stable offset, and an open transaction hides what follows
idle hold         it is read to its end, and with `idle: hold` left waits for its next records
clock             it is read to its end, and its watermark follows the clock: left may go soon
data delay        the feeder has stored right only up to a time            (lookup join)
delay unknown     how far right is stored is unknown, or no longer true    (lookup join)

A bucket waits for its slowest right partition. Each cause but the clock is logged once it lasts longer than usual.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.facts import BucketFacts
from joins.batch.state import Bucket
from joins.batch.stragglers import stragglers
from joins.plan.readable import EndOffsets
from joins.spec import JoinSpec
from teacup.base.times import iso
from teacup.kafka.log.time_search import block_size

T = TypeVar("T")

SHOWN = 10


class Cause(StrEnum):
    """What left waits for."""

    UNREAD = "unread"
    OPEN_TRANSACTION = "open transaction"
    IDLE_HOLD = "idle hold"
    CLOCK = "clock"
    DATA_DELAY = "data delay"
    DELAY_UNKNOWN = "delay unknown"


USUAL_MS: dict[Cause, float] = {
    Cause.UNREAD: 10_000,
    Cause.OPEN_TRANSACTION: 10_000,
    Cause.IDLE_HOLD: 10_000,
    Cause.CLOCK: math.inf,
    Cause.DATA_DELAY: 90_000,  # collectors run once a minute
    Cause.DELAY_UNKNOWN: 0,
}
"""How long left may wait for each cause before that is reported."""


@dataclass(frozen=True, slots=True)
class LeftWaits:
    """What the left of one bucket waits for. Equal values mean the same wait.

    partition, offset  the right partition that left waits for, and how far it is read
    alike              how many right partitions the bucket has, if none of them stands out; otherwise 0
    stored_ms          data delay: every right record below it is stored
    waiting            how many left records wait, by partition
    next_ms            clock: when the first of them may go (wall clock), if known
    end                the right partition's last stable offset
    detail             data delay: the consumer; delay unknown: why
    """

    cause: Cause
    bucket: int | None = None
    partition: int | None = None
    offset: int | None = None
    stored_ms: int | None = None
    alike: int = field(default=0, compare=False)
    waiting: Mapping[int, int] = field(default_factory=dict, compare=False)
    end: int | None = field(default=None, compare=False)
    detail: str = field(default="", compare=False)
    next_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class NotReady:
    """There is no batch plan: nothing may be read now.

    waits     what left waits for; empty if left is read to its end
    until_ms  before this time no plan finds anything, unless a topic grows (`joins.plan.sync_bolt`)
    highs     where the topics ended, by side and partition
    last_ms   under `available_now`: when the last left record may go (wall clock), if left waits for the clock alone
    """

    listed_ms: int
    waits: tuple[LeftWaits, ...] = ()
    until_ms: int = UNKNOWN
    highs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    last_ms: int | None = None

    @property
    def left_waits(self) -> bool:
        """Returns whether left has unread records that may not go yet."""
        return any(waits.waiting for waits in self.waits)

    @property
    def main_cause(self) -> Cause:
        """Returns what most left records wait for, if left waits; the clock only if all wait for it."""
        records: Counter[Cause] = Counter()
        for waits in self.waits:
            records[waits.cause] += sum(waits.waiting.values())
        others = {cause: count for cause, count in records.items() if cause is not Cause.CLOCK and count}
        return max(others, key=others.__getitem__, default=Cause.CLOCK)


def unread_left(bucket: Bucket, end_offsets: EndOffsets) -> dict[int, int]:
    """Counts the readable left records that a bucket has not read yet, by partition."""
    return {p: end_offsets.left[p].stable - r.end for p, r in bucket.left.items() if end_offsets.left[p].stable > r.end}


def why_left_waits(spec: JoinSpec, bucket: Bucket, expected: BucketFacts, end_offsets: EndOffsets) -> LeftWaits | None:
    """Returns what left waits for in a bucket that may read nothing; None if its left is read to its end."""
    waiting = unread_left(bucket, end_offsets)
    if not waiting:
        return None
    if bucket.stored_ms is not None:
        return LeftWaits(Cause.DATA_DELAY, bucket.number, stored_ms=expected.watermark_ms, waiting=waiting)
    watermarks_ms = {p: facts.watermark_ms for p, facts in expected.right.items()}
    p, alike = min(watermarks_ms, key=watermarks_ms.__getitem__), 0 if stragglers(watermarks_ms) else len(watermarks_ms)
    ends, offset = end_offsets.right[p], bucket.right[p].end
    if offset < ends.stable:
        cause = Cause.UNREAD
    elif not ends.settled:
        cause = Cause.OPEN_TRANSACTION
    elif spec.idle is Idle.HOLD:
        cause = Cause.IDLE_HOLD
    else:
        cause = Cause.CLOCK
    held = [facts.held_ms for q, facts in expected.left.items() if q in waiting and facts.held_ms is not None]
    next_ms = end_offsets.may_go_at(spec, min(held)) if held else None
    return LeftWaits(cause, bucket.number, p, offset, alike=alike, waiting=waiting, end=ends.stable, next_ms=next_ms)


class Waited:
    """Remembers since when each bucket's left has waited for the same thing, as one process has seen it."""

    def __init__(self) -> None:
        self._since: dict[int | None, tuple[LeftWaits, int]] = {}

    def unusual(self, held: NotReady, *, all_causes: bool = False) -> tuple[int, list[LeftWaits]]:
        """Returns since when (wall clock) waits have lasted longer than usual, and which; all_causes: of any length."""
        since, now_ms = self._since, held.listed_ms
        self._since = {
            waits.bucket: (waits, since[waits.bucket][1] if since.get(waits.bucket, (None,))[0] == waits else now_ms)
            for waits in held.waits
        }
        long = [
            (since_ms, waits)
            for waits, since_ms in self._since.values()
            if all_causes or now_ms - since_ms >= USUAL_MS[waits.cause]
        ]
        return min((since_ms for since_ms, _ in long), default=now_ms), [waits for _, waits in long]

    def waits_in_vain(self, spec: JoinSpec, held: NotReady) -> bool:
        """Returns whether all waiting left has waited longer than usual for records that may never come (`idle: hold`).

        To be called after `unusual(held)`. With `max_wait` left goes by itself.
        """
        waiting = [waits for waits in held.waits if waits.waiting]
        if not waiting or spec.right.max_wait_ms is not None:
            return False
        return all(
            waits.cause is Cause.IDLE_HOLD and held.listed_ms - self._since[waits.bucket][1] >= USUAL_MS[waits.cause]
            for waits in waiting
        )


def for_people(spec: JoinSpec, since_ms: int, waits: list[LeftWaits], last_ms: int | None = None) -> str:
    """Writes one line: how many left records wait, since when, for what, and, if only for the clock, until when.

    last_ms   as in `NotReady`
    """
    left = {p: records for bucket in waits for p, records in bucket.waiting.items()}
    shown, more = _few(sorted(left))
    which = f"{sum(left.values())} left records in partitions {shown}{more} wait for right; " if left else ""
    reasons, others = _few(list(dict.fromkeys(reason(spec, bucket) for bucket in waits)))
    only_clock = last_ms is not None and all(bucket.cause is Cause.CLOCK for bucket in waits)
    last_row = f"; the last row at {iso(last_ms)}" if last_ms is not None and only_clock else ""
    return f"holds since {iso(since_ms)}: {which}{'; '.join(reasons)}{others}{last_row}"


def _few(things: list[T]) -> tuple[list[T], str]:
    """Returns the first things, and how many more there are."""
    return things[:SHOWN], f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""


def reason(spec: JoinSpec, waits: LeftWaits) -> str:
    """Says what the left of one bucket waits for."""
    right = f"{spec.right.topic}-{waits.partition}"
    if waits.alike:
        right += f", like all of {waits.alike}"
    match waits.cause:
        case Cause.UNREAD:
            return f"{right}: it is read to offset {waits.offset} of {waits.end}"
        case Cause.OPEN_TRANSACTION:
            return f"{right}: an open transaction holds its end at offset {waits.offset}"
        case Cause.IDLE_HOLD:
            block = f"{block_size(spec.outliers)} to a block"
            return f"{right}: nothing more to read, and with `idle: hold` left waits for its next records, {block}"
        case Cause.CLOCK:
            next_row = "; left goes as time passes" if waits.next_ms is None else f"; next row at {iso(waits.next_ms)}"
            return f"{right}: nothing more to read at offset {waits.offset}{next_row}"
        case Cause.DATA_DELAY:
            stored = f"{waits.detail!r} has stored {spec.right.topic!r} only up to {iso(waits.stored_ms or 0)}"
            return f"{stored}: is the feeder running?"
        case Cause.DELAY_UNKNOWN:
            return waits.detail
