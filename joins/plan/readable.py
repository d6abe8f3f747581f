"""One side of a bucket when a batch is planned: how far it can be read, and how far it is worth reading. Pure.

`EndOffsets` says where both topics end. A plan asks for whatever else it needs to know about the log: it is a generator
that yields an `Ask` and is sent the `Answers`. All plans run in lockstep, so one call to the log serves all partitions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.state import Bucket, PartitionRange
from joins.plan.clock_steps import ClockSteps, may_go_at
from joins.spec import BothSides, JoinSpec
from teacup.base.times import LATEST_MS
from teacup.kafka.log.losses import Epochs, epochs_of
from teacup.kafka.log.time_search import block_size, run_in_rounds
from teacup.kafka.log.topic_log import Ends, TimeAnswer, TimeQuery, TopicLog, fair_shares

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """Look-ups in both topics that can be made at once; each maps a partition to its query."""

    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    last: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    estimate: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    find: Mapping[str, Mapping[int, TimeQuery]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to an `Ask`, by topic and partition: newest times, last blocks, estimated offsets, found offsets."""

    newest: Mapping[str, Mapping[int, int | None]]
    last: Mapping[str, Mapping[int, list[tuple[int, int]]]]
    estimate: Mapping[str, Mapping[int, int]]
    find: Mapping[str, Mapping[int, TimeAnswer]]


Asking = Generator[Ask, Answers, T]


def with_batched_lookups(plans: Mapping[int, Asking[T]], logs: Mapping[str, TopicLog], ceiling_ms: int) -> dict[int, T]:
    """Returns what each plan returns, after rounds of merged look-ups; times above `ceiling_ms` are ignored."""

    def answers_to(asks: Mapping[int, Ask]) -> dict[int, Answers]:
        return dict.fromkeys(asks, _look_up(asks.values(), logs, ceiling_ms))

    return dict(sorted(run_in_rounds(plans, answers_to).items()))


def _look_up(asks: Iterable[Ask], logs: Mapping[str, TopicLog], ceiling_ms: int) -> Answers:
    merged: dict[str, dict[str, dict[int, Any]]] = {
        kind: {"left": {}, "right": {}} for kind in ("newest", "last", "estimate", "find")
    }
    for ask in asks:
        for kind, of_kind in merged.items():
            for side, wanted in getattr(ask, kind).items():
                of_kind[side].update(wanted)
    return Answers(
        newest={s: logs[s].newest(w, ceiling_ms) if w else {} for s, w in merged["newest"].items()},
        last={
            s: logs[s].last_times(w, ceiling_ms, block_size(logs[s].outliers)) if w else {}
            for s, w in merged["last"].items()
        },
        estimate={s: logs[s].estimate(w) if w else {} for s, w in merged["estimate"].items()},
        find={s: logs[s].first_at_or_after(w, ceiling_ms) if w else {} for s, w in merged["find"].items()},
    )


@dataclass(frozen=True, slots=True)
class EndOffsets(BothSides[Mapping[int, Ends]]):
    """The ends of both topics, and the wall clock time just before they were listed.

    steps   the steps in which the clock goes; None: continuously
    """

    listed_ms: int
    left: Mapping[int, Ends]
    right: Mapping[int, Ends]
    steps: ClockSteps | None = None

    @property
    def clock_ms(self) -> int:
        """Returns the clock's time, or its last step."""
        return self.listed_ms if self.steps is None else self.steps.at(self.listed_ms)

    def may_go_at(self, spec: JoinSpec, left_ms: int) -> int:
        """Returns when a left record of this time may go, if it waits for the clock alone."""
        due_ms = may_go_at(spec, left_ms)
        return due_ms if self.steps is None else self.steps.next_from(due_ms)

    @property
    def epochs(self) -> dict[str, Epochs]:
        """Returns per side the leader epochs."""
        return {"left": epochs_of(self.left), "right": epochs_of(self.right)}

    @property
    def both_have_records(self) -> bool:
        return all(any(ends.stable > ends.start for ends in self.side(side).values()) for side in ("left", "right"))

    def unread(self, bucket: Bucket) -> int:
        """Counts the offsets of a bucket's partitions, left and right, that are readable but not yet read."""
        return sum(
            max(self.side(side)[p].stable - partition_range.end, 0)
            for side in ("left", "right")
            for p, partition_range in bucket.side(side).items()
        )


def list_ends(left: TopicLog, right: TopicLog, now_ms: int) -> EndOffsets:
    """Asks both topics for their ends.

    now_ms   the wall clock, read before both topics are asked: what becomes readable later has at least this time less
             the producer delay
    """
    return EndOffsets(now_ms, *left.ends_with(right))


BLOCKS_AHEAD = 2
"""How many blocks to read beyond the record that is searched for, for what they prove."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What can be read of one side, by partition.

    ends        the last stable offsets
    newest      of the partitions looked at: about the time of the newest record below the end; None: there is none
    claims      what the clock says about records after the end
    look_ahead  how many offsets are read beyond the record that is searched for
    """

    disorder_ms: int
    side: str
    ends: Mapping[int, int]
    newest: Mapping[int, int | None]
    claims: Mapping[int, int]
    look_ahead: int


@dataclass(frozen=True, slots=True)
class Expected:
    """A partition's range, and what is expected of it.

    position  the next offset to read after the batch
    held_ms   left only: the approximate time of the record there, if it is expected to be held back
    """

    partition_range: PartitionRange
    watermark_ms: int
    position: int
    held_ms: int | None = None


def readable_of(
    spec: JoinSpec, bucket: Bucket, end_offsets: EndOffsets, *sides: str, sample: bool = False
) -> Asking[list[Readable]]:
    """Finds what can be read of these sides of a bucket, in one round of look-ups.

    sample   of each side only the partition with the most unread records is looked at
    """
    ends = {side: {p: end_offsets.side(side)[p].stable for p in bucket.side(side)} for side in sides}
    asked = {side: _most_unread(bucket.side(side), ends[side]) for side in sides} if sample else ends
    answers = yield Ask(newest=asked, last=ends if spec.complete else {})
    newest, finished_ms = answers.newest, _finished(spec, bucket, answers) if spec.complete else None
    return [
        Readable(
            side=side,
            disorder_ms=spec.side(side).disorder_ms,
            ends=ends[side],
            newest={p: newest[side][p] for p in asked[side]},
            claims={p: _claim(spec, side, p, end_offsets, finished_ms) for p in ends[side]},
            look_ahead=BLOCKS_AHEAD * block_size(spec.outliers),
        )
        for side in sides
    ]


def _most_unread(ranges: Mapping[int, PartitionRange], ends: Mapping[int, int]) -> dict[int, int]:
    """Returns the end of the partition with the most unread records; {} if there are none."""
    p = max(ranges, key=lambda p: ends[p] - ranges[p].end)
    return {p: ends[p]} if ends[p] > ranges[p].end else {}


def read_right(
    right: Readable, ranges: Mapping[int, PartitionRange], until_ms: int, quota: int
) -> Asking[dict[int, Expected]]:
    """Plans each partition until it proves that `until_ms` is reached, or to its end, or up to its quota.

    until_ms   `LATEST_MS`: no time is searched for
    """
    enough_ms = until_ms - right.disorder_ms
    wanted = {p: r for p, r in ranges.items() if r.end < right.ends[p] and r.watermark_ms < enough_ms}
    answers: Mapping[int, TimeAnswer] = {}
    if until_ms < LATEST_MS and wanted:
        queries = {p: TimeQuery(until_ms, r.end, right.ends[p]) for p, r in wanted.items()}
        answers = (yield Ask(find={right.side: queries})).find[right.side]
    after = {p: _left_alone(right, p, r) for p, r in ranges.items()}
    for p, partition_range in wanted.items():
        answer = answers.get(p)
        if answer is not None and answer.reached:
            after[p] = _up_to(right, p, partition_range, answer.offset + right.look_ahead, enough_ms)
        else:
            after[p] = _to_the_end(right, p, partition_range)
    return (yield from _within_quota(right, ranges, after, quota))


def read_left(
    left: Readable, ranges: Mapping[int, PartitionRange], until_ms: int, quota: int, *, search: bool = True
) -> Asking[dict[int, Expected]]:
    """Plans each partition up to the first record at or above `until_ms`, and slightly further.

    A partition whose next record is known and may not go yet is not read.

    search   False: the others are read to their end
    """
    after = {p: _left_alone(left, p, r) for p, r in ranges.items()}
    wanted = {p: r for p, r in ranges.items() if r.end < left.ends[p] and (r.held_ms is None or r.held_ms < until_ms)}
    answers: Mapping[int, TimeAnswer] = {p: TimeAnswer(r.end, until_ms, search) for p, r in wanted.items()}
    queries = {p: TimeQuery(until_ms, r.end, left.ends[p]) for p, r in wanted.items() if until_ms > UNKNOWN}
    if queries and search:
        answers = (yield Ask(find={left.side: queries})).find[left.side]
    for p, partition_range in wanted.items():
        answer = answers[p]
        if not answer.reached:
            after[p] = _to_the_end(left, p, partition_range)
            continue
        ahead = _up_to(left, p, partition_range, answer.offset + left.look_ahead, until_ms - left.disorder_ms)
        after[p] = Expected(ahead.partition_range, ahead.watermark_ms, min(answer.offset, ahead.position), until_ms)
    return (yield from _within_quota(left, ranges, after, quota))


def _left_alone(side: Readable, p: int, partition_range: PartitionRange) -> Expected:
    claim_ms = _claim_at(side, p, partition_range.end)
    return Expected(
        partition_range.to(partition_range.end, claim_ms),
        max(partition_range.watermark_ms, claim_ms),
        partition_range.end,
        partition_range.held_ms,
    )


def _up_to(side: Readable, p: int, partition_range: PartitionRange, end: int, watermark_ms: int) -> Expected:
    end = min(end, side.ends[p])
    return Expected(
        partition_range.to(end, _claim_at(side, p, end)), max(watermark_ms, partition_range.watermark_ms), end
    )


def _to_the_end(side: Readable, p: int, partition_range: PartitionRange) -> Expected:
    end, newest = max(side.ends[p], partition_range.end), side.newest.get(p)
    shown = UNKNOWN if newest is None else newest - side.disorder_ms
    return Expected(
        partition_range.to(end, side.claims[p]), max(side.claims[p], shown, partition_range.watermark_ms), end
    )


def _within_quota(
    side: Readable, ranges: Mapping[int, PartitionRange], after: dict[int, Expected], quota: int
) -> Asking[dict[int, Expected]]:
    """Shortens ranges so that no partition reads more than its fair part of two shares: others may have little."""
    parts = fair_shares({p: e.partition_range.records for p, e in after.items()}, 2 * quota)
    cut = {
        p: r.end + max(parts[p], 1) for p, r in ranges.items() if after[p].partition_range.records > max(parts[p], 1)
    }
    if not cut:
        return after
    newest = (yield Ask(newest={side.side: cut})).newest[side.side]
    for p, end in cut.items():
        newest_at = newest[p]
        shown = UNKNOWN if newest_at is None else newest_at - side.disorder_ms
        whole = after[p]
        watermark_ms = max(min(shown, whole.watermark_ms), ranges[p].watermark_ms)
        held_ms = whole.held_ms if whole.position < end else None
        after[p] = Expected(ranges[p].to(end), watermark_ms, min(whole.position, end), held_ms)
    return after


def _claim_at(side: Readable, p: int, end: int) -> int:
    return side.claims[p] if end >= side.ends[p] else UNKNOWN


def _claim(spec: JoinSpec, side: str, p: int, end_offsets: EndOffsets, finished_ms: int | None) -> int:
    """Returns a lower bound of the times of records that become readable after the listing, or `UNKNOWN`.

    finished_ms   the bound of a complete topic (`_finished`), in which nothing becomes readable any more
    """
    ends = end_offsets.side(side)[p]
    if not ends.settled:
        return UNKNOWN
    if finished_ms is not None:
        return finished_ms
    return end_offsets.clock_ms - spec.producer_delay_ms if spec.idle is Idle.ADVANCE else UNKNOWN


def _finished(spec: JoinSpec, bucket: Bucket, answers: Answers) -> int:
    """Returns a time so far beyond the records of a bucket that all of left may go, and all of right expires.

    It rests on the records, not on the clock: if records follow after all, they are late only if they could match one
    of these. No timely record is above the last block of its partition by more than the disorder. A left record far
    ahead is held back by the first batch, and is known then.
    """
    newest = (at for side, blocks in answers.last.items() for p in bucket.side(side) for _, at in blocks[p])
    held = (r.held_ms for r in bucket.left.values() if r.held_ms is not None)
    return min(max(chain(newest, held), default=0) + spec.span_ms + 1, LATEST_MS)
