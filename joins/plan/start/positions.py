"""Where a new checkpoint starts: left as configured, right at the smallest left time minus `before` and disorder. Pure.

With `start: earliest` a join of the type `full` starts at right's first record: each right record gets a row.

Every right record that a left record may match has a time >= (smallest left time) - before, so right starts at its
first record at or above that. The smallest left time is taken from the first block of left's records: if one of them
has a wrong time, right is at worst read from further back. If left has so few records that all of them may be wrong,
the clock counts as well, as it does for records still to come. If the clock cannot count, right starts at the start of
its log.

If retention has already deleted such right records, left records near the start would be `unmatched` although their
right record existed. The join then refuses to start and names the number of left records affected, unless
`on_data_loss: continue` is set. Here the typical time of a block counts, because a single wrong record must not stop a
join.

If a start was found by time, records that are further out of order than the configured disorder may lie before it even
though they have reached that time. Nothing reads them, so a warning is given (`Beginning.warn`,
`teacup.kafka.log.time_search`).

What lies before a start is counted in offsets, which may be more than records. The first batch reports them
(`counting_before`). On the direct path, the start of a right partition depends on its own left partition. If that one
is empty, only records still to come need right, so right starts near the clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from datadelay.watermark import UNKNOWN, Idle
from joins.batch.rules import earliest_right, latest_left
from joins.batch.state import BatchPlan, Bucket, PartitionRange
from joins.errors import DataLoss
from joins.plan.log_checks import check_counts
from joins.plan.readable import EndOffsets
from joins.spec import JoinPath, JoinSpec, JoinType
from teacup.base.times import iso
from teacup.kafka.log.time_search import block_size, left_behind
from teacup.kafka.log.topic_log import Ends, TimeQuery, TopicLog
from teacup.kafka.records.record import proven, typical

Say = Callable[[str], None]
"""Receives a warning for people."""


def nobody(_: str) -> None:
    """Ignores warnings, for callers that only want to know where a join would start."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a new checkpoint starts from: the join, and the ends of the logs when they were listed.

    say   receives warnings
    """

    spec: JoinSpec
    end_offsets: EndOffsets
    say: Say = nobody

    @property
    def ceiling_ms(self) -> int:
        """Times above it are invalid."""
        return self.end_offsets.listed_ms + self.spec.max_future_skew_ms

    def warn(
        self, side: str, log: TopicLog, starts: Mapping[int, int], queries: Mapping[int, TimeQuery], effect: str
    ) -> None:
        """Warns about records before these starts that have reached the times by which the starts were found."""
        if self.say is nobody:
            return
        setting = f"`{side}.disorder` ({self.spec.side(side).disorder_ms} ms)"
        for text in left_behind(log, starts, queries, self.ceiling_ms):
            self.say(f"{text}: {effect}. {setting} is too small for them: raise it, and start a new checkpoint")


def begin(spec: JoinSpec, end_offsets: EndOffsets, left: TopicLog, right: TopicLog, say: Say = nobody) -> BatchPlan:
    """Returns the batch plan before the first batch, with all positions set and nothing read.

    Raises `NotCoPartitioned` if the topics have different numbers of partitions, unless `spec.path` is `shuffled`.
    """
    beginning, shuffled = Beginning(spec, end_offsets, say), spec.path is JoinPath.SHUFFLED
    if not shuffled:
        check_counts(spec, len(end_offsets.left), len(end_offsets.right))
    start = left_start(beginning, left)
    if shuffled:  # the match of a left record may be in any right partition
        start = start.alike(end_offsets.right)
    right_from = _right_start(beginning, right, start)
    skipped = _never_readable(beginning, left, right, start, right_from)
    first = first_plan(spec, end_offsets, {"left": left, "right": right}, start.offsets, right_from)
    return replace(counting_before(spec, first, end_offsets), skipped={**start.skipped, **skipped})


def counting_before(spec: JoinSpec, first: BatchPlan, end_offsets: EndOffsets) -> BatchPlan:
    """Returns the first plan with the number of offsets before the start of each bucket. Their records get no outcome.

    If `start` gives offsets, nothing is counted: another checkpoint has accounted for what is before them.
    """
    if isinstance(spec.start, Mapping):
        return first

    def before(bucket: Bucket) -> dict[str, int]:
        ranges = ((side, bucket.side(side), end_offsets.side(side)) for side in ("left", "right"))
        offsets = {side: sum(r.start - ends[p].start for p, r in of.items()) for side, of, ends in ranges}
        return {side: count for side, count in offsets.items() if count}

    return replace(first, buckets={n: structs.replace(b, before_start=before(b)) for n, b in first.buckets.items()})


def first_plan(
    spec: JoinSpec,
    end_offsets: EndOffsets,
    topics: Mapping[str, TopicLog],
    left_from: Mapping[int, int],
    right_from: Mapping[int, int],
) -> BatchPlan:
    """Returns the plan of any join before it reads anything; `left_from` and `right_from` are starts by partition."""
    shuffled = spec.path is JoinPath.SHUFFLED
    buckets = spec.buckets_of(max(len(left_from), len(right_from)))
    divided = 1 if shuffled else buckets
    return BatchPlan(
        generation=uuid.uuid4().hex,
        number=0,
        listed_ms=end_offsets.listed_ms,
        skew_ms=spec.max_future_skew_ms,
        right_bytes=spec.max_right_bytes,
        identity=spec.identity(),
        topics={side: (log.topic_id(), log.partition_count()) for side, log in topics.items()},
        buckets={
            number: Bucket(
                number=number,
                left=_starting(left_from, number, divided),
                right=_starting(right_from, number, divided),
                advanced_ms=end_offsets.listed_ms,
            )
            for number in range(divided)
        },
        parts=buckets if shuffled else None,
        epochs=end_offsets.epochs,
    )


def _starting(starts: Mapping[int, int], bucket: int, buckets: int) -> dict[int, PartitionRange]:
    return {p: PartitionRange.starting_at(start) for p, start in sorted(starts.items()) if p % buckets == bucket}


@dataclass(frozen=True, slots=True)
class LeftStart:
    """Where left starts.

    offsets      the first offset of each left partition
    smallest_ms  by right partition, a lower bound of the times of left records that may match its records
    typical_ms   by right partition, a typical time of those left records
    skipped      the number of lost offsets, if any, as in `BatchPlan.skipped`
    """

    offsets: Mapping[int, int]
    smallest_ms: Mapping[int, int]
    typical_ms: Mapping[int, int]
    skipped: Mapping[str, int] = field(default_factory=dict)

    def alike(self, right: Iterable[int]) -> LeftStart:
        """Returns the start with the same times for every right partition, taken over all left partitions."""
        smallest_ms, typical_ms = min(self.smallest_ms.values()), min(self.typical_ms.values())
        return replace(self, smallest_ms=dict.fromkeys(right, smallest_ms), typical_ms=dict.fromkeys(right, typical_ms))


def left_start(beginning: Beginning, left: TopicLog) -> LeftStart:
    """Finds where left starts by the spec's `start`, and what its first records say about times. Raises `DataLoss`."""
    spec, end_offsets, ceiling_ms = beginning.spec, beginning.end_offsets, beginning.ceiling_ms
    stable = {p: ends.stable for p, ends in end_offsets.left.items()}
    if spec.start == "latest":
        start = stable
    elif spec.start == "earliest":
        start = {p: ends.start for p, ends in end_offsets.left.items()}
    elif isinstance(spec.start, Mapping):
        start = _given(spec, spec.start, end_offsets.left)
    else:
        margin = spec.left.disorder_ms
        queries = {p: TimeQuery(int(spec.start), e.start, e.stable, margin) for p, e in end_offsets.left.items()}
        start = {p: answer.offset for p, answer in left.first_at_or_after(queries, ceiling_ms, sure=True).items()}
        beginning.warn("left", left, start, queries, "the join never reads these")
    spans = {p: (start[p], stable[p]) for p in start}
    blocks = left.valid_times(spans, ceiling_ms, block_size(spec.outliers))
    lasts = left.last_times(stable, ceiling_ms, block_size(spec.outliers))
    smallest, usual = {}, {}
    for p, ends in end_offsets.left.items():
        times = [t for _, t in blocks[p]]
        known_ms = [t - spec.left.disorder_ms for t in times]
        if len(times) <= spec.outliers:
            known_ms.append(_still_to_come(spec, end_offsets, ends, [t for _, t in lasts[p]]))
        smallest[p], usual[p] = min(known_ms), typical(known_ms)
    lost = sum(start[p] - offset for p, offset in spec.start.items()) if isinstance(spec.start, Mapping) else 0
    return LeftStart(start, smallest, usual, {"left": lost} if lost else {})


def _given(spec: JoinSpec, offsets: Mapping[int, int], left: Mapping[int, Ends]) -> dict[int, int]:
    """Returns the offsets that `start` gives, and the first ones elsewhere. Raises `DataLoss` if the log lacks some."""
    topic = spec.left.topic
    if unknown := sorted(offsets.keys() - left.keys()):
        raise DataLoss(
            f"start: left topic {topic!r} has {len(left)} partitions, and an offset is given for {unknown}: the topic "
            "was recreated, or it is another one"
        )
    for p, offset in offsets.items():
        ends = left[p]
        if offset > ends.high:
            raise DataLoss(
                f"start: left partition {topic}-{p} ends at offset {ends.high}, before {offset}: the topic was "
                "recreated or truncated, or the offsets are those of another one"
            )
        if offset < ends.start and spec.on_data_loss == "stop":
            raise DataLoss(
                f"start: retention has deleted {ends.start - offset} offsets of left partition {topic}-{p}, from "
                f"{offset} on; continue with what is left of it (`on_data_loss: continue`)"
            )
    return {p: max(offsets.get(p, ends.start), ends.start) for p, ends in left.items()}


def _still_to_come(spec: JoinSpec, end_offsets: EndOffsets, ends: Ends, last_ms: list[int]) -> int:
    """Returns a lower bound of the times of timely records still to come; `UNKNOWN` if there is none."""
    if spec.idle is Idle.ADVANCE and ends.settled:
        return end_offsets.listed_ms - spec.producer_delay_ms
    reached_ms = proven(last_ms, spec.outliers)
    return UNKNOWN if reached_ms is None else reached_ms - spec.left.disorder_ms


def first_read(
    spec: JoinSpec, end_offsets: EndOffsets, left: TopicLog, right: TopicLog
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Returns where left and right would start if the match of a left record could be in any partition.

    Raises `DataLoss`.
    """
    beginning = Beginning(spec, end_offsets)
    start = left_start(beginning, left)
    return start.offsets, _right_start(beginning, right, start.alike(end_offsets.right))


def _right_start(beginning: Beginning, right: TopicLog, start: LeftStart) -> dict[int, int]:
    spec, ends = beginning.spec, beginning.end_offsets.right
    if spec.right.type is JoinType.FULL and spec.start == "earliest":
        return {p: e.start for p, e in ends.items()}
    wanted = {p: max(earliest_right(spec.right, start.smallest_ms[p]), 0) for p in ends}
    queries = {p: TimeQuery(wanted[p], e.start, e.stable, spec.right.disorder_ms) for p, e in ends.items()}
    starts = {
        p: answer.offset for p, answer in right.first_at_or_after(queries, beginning.ceiling_ms, sure=True).items()
    }
    beginning.warn("right", right, starts, queries, "left records that match these will be unmatched")
    return starts


def _never_readable(
    beginning: Beginning, left: TopicLog, right: TopicLog, start: LeftStart, right_from: Mapping[int, int]
) -> dict[str, int]:
    """Counts left records whose match retention may have deleted. Raises `DataLoss` unless the join may continue."""
    spec, end_offsets, ceiling_ms = beginning.spec, beginning.end_offsets, beginning.ceiling_ms
    cut = {p: (e.start, e.stable) for p, e in end_offsets.right.items() if e.start > 0 and right_from[p] == e.start}
    blocks = right.valid_times(cut, ceiling_ms, block_size(spec.outliers)) if cut else {}
    firsts = {p: typical([t for _, t in block]) if block else None for p, block in blocks.items()}
    # Deleted records come before the first remaining one, so their times exceed its time by at most the disorder.
    reach = {
        p: latest_left(spec.right, (t if t is not None else end_offsets.listed_ms) + spec.right.disorder_ms)
        for p, t in firsts.items()
    }
    short = {p: time_ms for p, time_ms in reach.items() if time_ms > start.typical_ms[p]}
    if not short:
        return {}
    of_left = dict.fromkeys(end_offsets.left, max(short.values())) if spec.path is JoinPath.SHUFFLED else short
    queries = {
        p: TimeQuery(t, start.offsets[p], end_offsets.left[p].stable, spec.left.disorder_ms) for p, t in of_left.items()
    }
    affected = sum(
        a.offset - start.offsets[p] for p, a in left.first_at_or_after(queries, ceiling_ms, sure=True).items()
    )
    if affected == 0:
        return {}
    if spec.on_data_loss == "continue":
        return {"left_without_right": affected}
    first = min((iso(t) for t in firsts.values() if t is not None), default="no record")
    raise DataLoss(
        f"retention of right topic {right.topic!r} does not reach back to the left records at the start: partitions "
        f"{sorted(short)} begin at {first}, and about {affected} left records "
        "may have had right records before that. Start later (`start: TIME`), or accept that these are unmatched "
        "(`on_data_loss: continue`)"
    )
