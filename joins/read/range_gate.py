"""Which records of a partition's range may go in a batch, and which facts they give. Pure.

Right goes completely, or as far as its bytes allow. Left goes up to its first record with a time at or above the limit.
That record and all that follow are held back; the next batch reads them again from the same offset. Held records are
examined nevertheless: they prove how far left has come before any of them may go, and so which right records can no
longer match.

A record with a wrong time (late, or ahead of its neighbours) must prove nothing. So records count in *blocks* of 2m + 1
consecutive ones, where `m` is the spec's `outliers`. At most m records of a block are wrong, so a correct one has at
least the block's median as its time, and no later timely record is more than the disorder below that:

    partition watermark >= (largest median of a block) - disorder

Blocks are counted from the checkpoint's start, regardless of batches; records that do not fill a block yet are carried
over as the `tail`. Of these, too, at most m are wrong: if there are more, the (m + 1)th largest time counts.

A record counts only if its time is not later than it can have been appended: by the broker's append time if the topic
has it, otherwise by the clock when the record was first listed. So nothing from the future proves anything, live or in
a replay. What the side's `where` skips counts like any other record: plans are made by all times of a topic, and a rare
kind need not wait for the clock.

Without more than m records only the clock counts (`claim_ms`): if a partition was read to its end, the records still to
come were not readable when the end was listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from datadelay.watermark import UNKNOWN
from joins.batch.facts import RangeFacts
from joins.batch.state import PartitionRange
from joins.read.parse import ParsedBatch
from joins.rows.frames import I64
from teacup.base.times import EARLIEST_MS, LATEST_MS
from teacup.kafka.log.time_search import block_size


@dataclass(slots=True)
class RangeGate:
    """Sees the batches of one partition's range in order.

    limit_ms  the first valid record at or above it, and all that follow, are held back
    """

    partition_range: PartitionRange
    outliers: int
    disorder_ms: int
    limit_ms: int = LATEST_MS
    _end: int | None = None
    _held_ms: int | None = None
    _smallest_held_ms: int = LATEST_MS
    _below_ms: int = EARLIEST_MS
    _future_ms: int = LATEST_MS
    _late: bool = False
    _schemas: dict[int, int] = field(default_factory=dict)
    _stopped: bool = False
    _gone: WatermarkTracker = field(init=False)
    _seen: WatermarkTracker | None = None

    def __post_init__(self) -> None:
        self._gone = WatermarkTracker.carried(self.outliers, self.partition_range.tail)

    @property
    def cut(self) -> int | None:
        """Returns the offset of the first record that is held back; None while there is none."""
        return self._end

    def admit(self, taken: ParsedBatch) -> ParsedBatch:
        """Returns the part of a batch that may go now."""
        if self._end is None:
            times = taken.records["time"].to_numpy()
            beyond = times >= self.limit_ms if self.limit_ms < LATEST_MS else None
            if beyond is None or not beyond.any():
                self._note(taken)
                return taken
            first = int(beyond.argmax())
            self._end, self._held_ms = int(taken.records["offset"][first]), int(times[first])
        going, held = taken.split(self._end)
        if len(going.records) or len(going.dead):
            self._note(going)
        self._note_held(held)
        return going

    def stop(self, end: int) -> None:
        """Ends the range before `end`; as later records are not examined, the clock's claim does not hold."""
        self._end, self._stopped = end if self._end is None else self._end, True

    def facts(self) -> RangeFacts:
        """Returns the facts of the range, once all of its batches were seen."""
        partition_range = self.partition_range
        if not partition_range.records:
            before = partition_range
            return RangeFacts(before.end, before.before_ms, before.tail, held_ms=before.held_ms)
        proved_ms = (self._seen or self._gone).reached_ms
        shown_ms = proved_ms - self.disorder_ms if proved_ms > UNKNOWN else UNKNOWN
        claim_ms = UNKNOWN if self._stopped else partition_range.claim_ms
        unread_ms = min(self._smallest_held_ms, max(shown_ms, claim_ms))
        return RangeFacts(
            end=partition_range.end if self._end is None else self._end,
            watermark_ms=max(partition_range.watermark_ms, unread_ms),
            tail=self._gone.carries,
            below_ms=self._below_ms,
            future_ms=self._future_ms,
            held_ms=self._held_ms,
            late=self._late,
            schemas=tuple(sorted(self._schemas.items())),
        )

    def _note(self, going: ParsedBatch) -> None:
        times = going.records["time"].to_numpy()
        if len(times):
            self._below_ms = max(self._below_ms, int(times.max()) + 1)
        self._future_ms = min(self._future_ms, going.future_ms)
        self._late = self._late or bool(going.late.any())
        self._schemas = {**going.schemas, **self._schemas}
        self._gone.see(going.proving_ms)

    def _note_held(self, held: ParsedBatch) -> None:
        times = held.records["time"].to_numpy()
        self._seen = self._seen or self._gone.copy()
        self._seen.see(held.proving_ms)
        timely = times[times >= self.partition_range.watermark_ms]
        if len(timely):
            self._smallest_held_ms = min(self._smallest_held_ms, int(timely.min()))


@dataclass(slots=True)
class WatermarkTracker:
    """Tracks what the times of one partition prove, in offset order.

    proved_ms   the largest median of a full block so far
    tail        the times after the last full block
    """

    outliers: int
    tail: I64
    proved_ms: int = UNKNOWN

    @classmethod
    def carried(cls, outliers: int, tail: Sequence[int]) -> WatermarkTracker:
        """Continues after the times left over from an earlier batch (`carries`)."""
        return cls(outliers, np.cumsum(np.array(tail, dtype=np.int64)))

    @property
    def reached_ms(self) -> int:
        """Returns the time that a correct record has surely reached: the largest of all blocks, or of the tail."""
        if len(self.tail) <= self.outliers:
            return self.proved_ms
        place = len(self.tail) - self.outliers - 1
        return max(self.proved_ms, int(np.partition(self.tail, place)[place]))

    @property
    def carries(self) -> tuple[int, ...]:
        """Returns the tail as a batch plan has it: the first time, then how much later each next one is."""
        if not len(self.tail):
            return ()
        return int(self.tail[0]), *(self.tail[1:] - self.tail[:-1]).tolist()

    def see(self, times: I64) -> None:
        """Takes in the times of the next valid records, in offset order."""
        if len(times) == 0:
            return
        block = block_size(self.outliers)
        waiting = np.concatenate([self.tail, times]) if len(self.tail) else times
        full = len(waiting) // block * block
        if full:
            blocks = waiting[:full].reshape(-1, block)
            medians = blocks[:, 0] if self.outliers == 0 else np.partition(blocks, self.outliers, axis=1)
            largest = medians.max() if self.outliers == 0 else medians[:, self.outliers].max()
            self.proved_ms = max(self.proved_ms, int(largest))
        self.tail = waiting[full:]

    def copy(self) -> WatermarkTracker:
        """Returns an independent copy."""
        return WatermarkTracker(self.outliers, self.tail, self.proved_ms)


def lags_of(times: I64, newest_ms: int | None) -> tuple[I64, int | None]:
    """Returns how far each record lies below the largest time up to it, and the largest time after all of them."""
    if not len(times):
        return times, newest_ms
    running = np.maximum.accumulate(times)
    if newest_ms is not None:
        running = np.maximum(running, newest_ms)
    return running - times, int(running[-1])
