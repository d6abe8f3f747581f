"""What a run under `available_now` reads, and when it ends. Pure.

It reads, and ends when it has read:

    left   up to the ends that the first look found, or to a given end; records after them count as not yet readable
    right  as far as that left needs, wherever right ends by then; once all of left is read, up to right's ends at the
           first look, so that retention does not overtake a right topic whose left is silent (unless left's end was
           given: then nothing follows)

If both topics are complete (`JoinSpec.complete`), it reads both up to their ends at the first look, where they are
finished: it waits for no clock, all of left goes, and all of right expires, if need be in a batch of its own. It first
waits for transactions that are open at the end of a partition.

Where left waits for the clock, the clock goes in steps (`joins.plan.clock_steps`). Left does not grow during a run, so
its newest record is looked up once.

With `idle: hold` left may wait for right records that never come. A run ends once none has come for longer than usual
(`Waited.waits_in_vain`): what is decided by then is written, and the next run goes on with the rest. Unless the topics
are complete, no batch only expires the window. Right records that have not expired when the run ends stay in the
window; the next run matches them or reports them unjoined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from joins.batch.state import BatchPlan
from joins.plan.clock_steps import ClockSteps
from joins.plan.readable import EndOffsets
from joins.plan.wait_reasons import unread_left
from joins.spec import JoinSpec
from teacup.base.times import LONGEST_MS
from teacup.kafka.log.time_search import block_size
from teacup.kafka.log.topic_log import Ends, ListedEnds, TopicLog


class SettledEnds:
    """The ends of a complete topic's partitions, each at the first look that finds no open transaction there."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def cut(self, ends: Mapping[int, Ends]) -> dict[int, Ends]:
        """Returns these ends, without what was added later."""
        for p, now in ends.items():
            if now.settled:
                self._first.setdefault(p, now.stable)
        first = {p: self._first.get(p) for p in ends}
        return {p: now if (end := first[p]) is None else replace(now, stable=end, high=end) for p, now in ends.items()}


class AvailableNow:
    """Remembers the ends of both topics at the first look.

    until      the given end of each left partition, if any
    complete   nothing follows these ends (`JoinSpec.complete`)
    """

    def __init__(self, until: Mapping[int, int] | None = None, *, complete: bool = False) -> None:
        self._until, self._complete = until, complete
        of_topic = SettledEnds if complete else ListedEnds
        self._left: SettledEnds | ListedEnds = of_topic()
        self._right: SettledEnds | ListedEnds = of_topic()
        self._newest_left: dict[int, int | None] | None = None

    def cut(self, end_offsets: EndOffsets, state: BatchPlan | None) -> EndOffsets:
        """Returns the part of a listing that this run reads. state: None if nothing is read yet."""
        left, right, until = self._left.cut(end_offsets.left), self._right.cut(end_offsets.right), self._until
        if until is not None:
            left = {p: replace(now, stable=max(min(now.stable, until.get(p, 0)), now.start)) for p, now in left.items()}
        if self._complete:
            return replace(end_offsets, left=left, right=right)
        cut = replace(end_offsets, left=left)
        buckets = () if state is None else state.buckets.values()
        if not buckets or any(unread_left(bucket, cut) for bucket in buckets):
            return cut
        read = {p: partition_range.end for bucket in buckets for p, partition_range in bucket.right.items()}
        first = dict.fromkeys(right, 0) if until is not None else {p: ends.stable for p, ends in right.items()}
        beyond = {
            p: replace(ends, stable=min(max(first[p], read.get(p, 0)), ends.stable))
            for p, ends in end_offsets.right.items()
        }
        return replace(cut, right=beyond)

    def in_steps(self, spec: JoinSpec, cut: EndOffsets, left: TopicLog, state: BatchPlan | None) -> EndOffsets:
        """Returns the listing with the clock's steps. cut, state: what `cut` returned and took; left: the topic."""
        if self._newest_left is None:
            ends = {p: ends.stable for p, ends in cut.left.items()}
            blocks = left.last_times(ends, cut.listed_ms + spec.max_future_skew_ms, block_size(spec.outliers))
            self._newest_left = {p: max((at for _, at in block), default=None) for p, block in blocks.items()}
        read = {} if state is None else {p: r.end for bucket in state.buckets.values() for p, r in bucket.left.items()}
        unread = (p for p, ends in cut.left.items() if ends.stable > read.get(p, 0))
        newest_ms = max((at for p in unread if (at := self._newest_left.get(p)) is not None), default=None)
        return cut if newest_ms is None else replace(cut, steps=ClockSteps.until(spec, newest_ms))


def of_available_now(spec: JoinSpec) -> JoinSpec:
    """Returns the join, without batches that only expire the window unless its topics are complete."""
    return replace(spec, watermark_every_ms=0 if spec.complete else LONGEST_MS)
