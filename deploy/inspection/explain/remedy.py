"""Which settings would have let a left record wait for a right record that came too late, and how much of each. Pure.

A left record goes once its right partitions are complete beyond what it needs, `time + after`. What makes a right
partition complete is in the plans and records up to the batch that read the right record:

    records   the largest time that they prove, less `right.disorder`   (`joins.read.range_gate`)
    clock     when its end was last looked at, less `producer_delay`    (only while it is read to its end)
    max_wait  when the right record was read: until then left would have had to wait

Each of these that went beyond what the left record needs must be held back, so a remedy may name several keys, none of
which helps alone. With all of them the left limit stays at or below the left record's time, and it waits.

`advice` puts this into words, and for other causes says which key or producer to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from datadelay.watermark import UNKNOWN
from deploy.inspection.explain.as_json import ranked
from deploy.inspection.explain.model import LeftAnswer, RecordState
from joins.batch.rules import latest_right
from joins.batch.state import PartitionRange
from joins.explain import Candidate, MatchReason, SideRecord
from joins.read.range_gate import WatermarkTracker
from joins.rows.frames import I64
from joins.spec import JoinPath, JoinSpec
from teacup.base.times import is_wrong, written
from teacup.kafka.headers import DELETED


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What a batch planned to read of a right partition, before or while the right record was read.

    listed_ms   when the batch was planned
    of          its range of the partition
    times       of the records in it that prove something, in offset order
    """

    listed_ms: int
    of: PartitionRange
    times: Sequence[I64] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """What made a right partition complete before the right record was read; `UNKNOWN`: nothing did.

    proved_ms   the largest time that its records proved
    read_to_end_ms   when its end was last listed with nothing more to read; the clock counts from there
    """

    proved_ms: int = UNKNOWN
    read_to_end_ms: int = UNKNOWN


def passed(spec: JoinSpec, ranges: Sequence[PlannedRange], read_to_end_ms: int) -> Passed:
    """Sums up what `reaching_back` returns; the last is of the batch that read the right record."""
    tracker = WatermarkTracker.carried(spec.outliers, ranges[0].of.tail)
    # On the shuffled path left goes by what is known before a batch: what the last range but one read counts too late.
    pairs = list(pairwise(ranges))
    counted = pairs[:-1] if spec.path is JoinPath.SHUFFLED else pairs
    for range_, _ in counted:
        for times in range_.times:
            tracker.see(times)
    for range_, following in pairs:
        if _was_at_rest(range_, following):
            read_to_end_ms = following.listed_ms
    return Passed(tracker.reached_ms, read_to_end_ms)


def remedy(spec: JoinSpec, left_ms: int, passed_by: Passed, read_ms: int | None = None) -> Mapping[str, int]:
    """Returns, by key, the smallest values with which a left record of this time would have waited.

    read_ms   when the right record was read, if left went by `max_wait`
    """
    needed_ms, remedies = latest_right(spec.right, left_ms), {}
    if passed_by.proved_ms - spec.right.disorder_ms > needed_ms:
        remedies["right.disorder"] = passed_by.proved_ms - needed_ms
    if passed_by.read_to_end_ms - spec.producer_delay_ms > needed_ms:
        remedies["producer_delay"] = passed_by.read_to_end_ms - needed_ms
    if read_ms is not None:
        remedies["max_wait"] = read_ms - left_ms
    return remedies


def reaching_back(
    spec: JoinSpec, left_ms: int, ranges: Iterable[PlannedRange]
) -> tuple[list[PlannedRange], int] | None:
    """Returns the ranges that matter, oldest first, and the rest before them; None if they do not reach far enough.

    ranges   newest first, beginning with the batch that read the right record

    What matters begins with the last range that found the partition less complete than the left record needs. Longer
    `right.disorder` may leave the partition as complete as the clock had made it before. The clock counts as long as
    the partition is at rest, in ranges with nothing to read, too: so the rest is when the last one ended, or `UNKNOWN`.
    """
    older, reaching = iter(ranges), []
    for range_ in older:
        reaching.append(range_)
        if range_.of.watermark_ms <= latest_right(spec.right, left_ms):
            return reaching[::-1], _rested_ms(range_, older)
    return None


def _rested_ms(following: PlannedRange, older: Iterable[PlannedRange]) -> int:
    for range_ in older:
        if _was_at_rest(range_, following):
            return following.listed_ms
        following = range_
    return UNKNOWN


def _was_at_rest(range_: PlannedRange, following: PlannedRange) -> bool:
    """Returns whether a range was to read the partition to its end, and the clock counted from then on."""
    return UNKNOWN < range_.of.claim_ms <= following.of.watermark_ms


def advice(spec: JoinSpec, answer: LeftAnswer) -> str | None:
    """Says what to change for the right record that came nearest to a match; None: no setting would help."""
    if answer.record.dead is not None:
        return _of_dead(spec, "left", answer.record)
    if answer.outcome is not RecordState.UNMATCHED or answer.reason == DELETED:
        return None
    if answer.reason == "null_key":
        return f"the record has no key at `left.key` ({spec.left.key_of})"
    for candidate in ranked(answer):
        if candidate.record.key == answer.record.key and (said := _would_match(spec, answer, candidate)):
            return said
    alike = next((c for c in answer.candidates if c.match_reason is MatchReason.OTHER_KEY), None)
    if alike is not None:
        return f"fix `left.key` or `right.key`, or the producers: {alike.alike or 'the keys differ'}"
    if answer.reason == "right_stalled":
        return "right stalled, and left went by `max_wait`: the log, or `teacup status`, says what held right"
    if not answer.notes and not answer.searched[1]:
        return f"no right record of this key was near: did {spec.right.topic} get one, and by `right.key`?"
    return None


def _would_match(spec: JoinSpec, answer: LeftAnswer, candidate: Candidate) -> str | None:
    """Says what would have let this right record match."""
    by_ms, right = candidate.by_ms or 0, candidate.record
    match candidate.match_reason:
        case MatchReason.READ_LATER:
            return _would_have_waited(spec, answer, right)
        case MatchReason.AFTER_INTERVAL | MatchReason.BEFORE_INTERVAL as match_reason:
            after = match_reason is MatchReason.AFTER_INTERVAL
            key, setting_ms = ("after", spec.right.after_ms) if after else ("before", spec.right.before_ms)
            if is_wrong(by_ms, setting_ms):
                return f"one of the two times is probably wrong: {_times_of('left', 'right')}"
            costs = "and every row would wait that much longer" if after else "and the window would grow with it"
            return f"`join.{key}: {written(setting_ms + by_ms)}` would match it, {costs}"
        case MatchReason.EXPIRED:
            return (
                "the left record came late: a larger `left.disorder`, or `producer_delay` where only the clock was "
                "beyond it, keeps right records longer"
            )
        case MatchReason.OTHER_BUCKET:
            return (
                "let both topics be written by the same partitioner, or take `join.path: shuffled` (a new "
                "checkpoint: `teacup move`)"
            )
        case MatchReason.DEAD_LETTER:
            return _of_dead(spec, "right", right)
        case _:
            return None


def _would_have_waited(spec: JoinSpec, answer: LeftAnswer, right: SideRecord) -> str:
    if answer.remedy is None:
        return (
            "`right.disorder`, `producer_delay`, or both, were too short for it; by how much is not known: plans "
            "or records of that time are gone"
        )
    if not answer.remedy:
        return "left had to wait longer; which setting would have made it is not known"
    set_to = {
        "right.disorder": spec.right.disorder_ms,
        "producer_delay": spec.producer_delay_ms,
        "max_wait": spec.right.max_wait_ms or 0,
    }
    if right.time_ms is not None and any(is_wrong(ms, set_to[key]) for key, ms in answer.remedy.items()):
        return f"it came extremely late, so its time is probably wrong: {_times_of('right')}"
    keys = [f"`{key}: {written(ms)}`" for key, ms in answer.remedy.items()]
    both = " together, not one alone," if len(keys) > 1 else ""
    return f"{' and '.join(keys)}{both} would have waited for it; every row then waits that long"


def _of_dead(spec: JoinSpec, side: str, record: SideRecord) -> str:
    """Says what to do about a dead letter."""
    of = spec.side(side)
    match record.dead:
        case "future_time" | "no_time" | None:
            return f"its time cannot be used: {_times_of(side)}; a clock that is ahead needs `max_future_skew`"
        case "no_zone":
            return f"its time has no zone: set `{side}.time_zone`, or fix the producer of {of.topic}"
        case "invalid_key":
            return f"fix `{side}.key` ({of.key_of}), or the producer of {of.topic}"
        case "where":
            return f"`{side}.where` ({of.where_of}) leaves it out"
        case "tombstone":
            return f"it has no value: `{side}.tombstones` says what becomes of such records"
        case _:
            return f"fix the producer of {of.topic}, or `{side}.format` ({of.format})"


def _times_of(*sides: str) -> str:
    """Says which keys determine a time."""
    return f"check {' and '.join(f'`{side}.time` and `{side}.time_unit`' for side in sides)}, and the producer"
