"""What a bucket's batch contributes to the wait curve (`joins.batch.wait_curve`): samples of whole batches. Pure.

It takes a number of records in a second, not of each batch, and looks at left records every other second only, so that
it costs little however often batches come; it changes no row. In a batch of a backlog there is next to nothing to
learn, and next to nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from datadelay.watermark import Idle
from joins.batch.facts import RangeFacts
from joins.batch.ticket import Ticket
from joins.batch.waits import SAMPLED_PER_S, WaitSample
from joins.read.parse import ParsedBatch
from joins.rows.frames import Bools, rows_where
from joins.spec import JoinSpec
from joins.window.match import NONE, Picks, Probe
from joins.window.slices import Slice, key_hashes

LOOKS_EVERY_MS = 2_000
"""How often left records are looked at."""
_SOME_S, _LONGEST_S = 1.0, 10.0
"""For how long a batch samples if it is not known when the one before was, and at most."""


class WaitSampler:
    """Samples one bucket's batch.

    A batch follows its topics if all of them together are small. With `idle: hold`, topics with old times may be
    replayed, at a speed of their own: nothing is learned from that.

    before_ms  when the bucket's batch before was planned, if this process has carried it out; None: it has not
    looked_ms  the same of the last batch whose left records were looked at
    """

    def __init__(self, spec: JoinSpec, ticket: Ticket, before_ms: int | None, looked_ms: int | None) -> None:
        bucket, parts = ticket.bucket, ticket.buckets
        of_all = 1 if ticket.parts is not None else parts
        records = sum(r.records for side in (bucket.left, bucket.right) for r in side.values()) * of_all
        self._small = records < max(spec.records_of_batch(parts) // 2, 1) and spec.idle is Idle.ADVANCE

        def most(since_ms: int | None) -> int:
            passed_s = _SOME_S if since_ms is None else min(max(ticket.listed_ms - since_ms, 0) / 1_000, _LONGEST_S)
            return max(round(SAMPLED_PER_S * passed_s / parts), 1)

        self._most, self._most_right = most(looked_ms), most(before_ms)
        self.looks = looked_ms is None or ticket.listed_ms - looked_ms >= LOOKS_EVERY_MS
        self._bucket = bucket
        self.sample = WaitSample(ticket.listed_ms, follows=self._small)

    def saw(self, right: ParsedBatch) -> None:
        """Takes notice of right records that were read."""
        self.sample.appended = self.sample.appended or right.appended

    def entered(self, slice_: Slice) -> None:
        """Samples the right records that enter the window."""
        if self._small:
            self.sample.add_right(slice_.hashes, slice_.times, self._most_right)

    def came_too_late(self, records: pl.DataFrame, expired: Bools) -> None:
        """Samples right records that have expired before they were read."""
        if self._small:
            records = rows_where(records, expired)
            self.sample.add_right(key_hashes(records["key"]), records["time"].to_numpy(), self._most_right)

    def picked(self, left: pl.DataFrame, slices: Sequence[Slice], probe: Probe, picks: Picks) -> None:
        """Samples what was picked for left records (`joins.window.window.SeesPicks`), if this batch looks at them."""
        if not self.looks:
            return
        sample, alone = self.sample, picks.slice_of == NONE
        matched = np.flatnonzero(~alone)
        sample.rows += len(alone)
        sample.matched += len(matched)
        if not (self._small or sample.appended):
            sample.left_out += len(matched)
            return
        every = -(-len(matched) // self._most)
        if every:
            left_ms = left["time"].to_numpy()
            for at in matched[every // 2 :: every].tolist():  # the middle ones: as many too few as too many
                slice_, row = slices[picks.slice_of[at]], picks.row[at]
                where = int(slice_.partitions[row]), int(slice_.offsets[row])
                sample.pairs.append((int(left_ms[picks.left[at]]), int(slice_.times[row]), *where, every))
        if self._small and len(matched) < len(alone):
            is_alone = np.zeros(len(left), np.bool_)
            is_alone[picks.left[alone]] = True
            missed = np.flatnonzero(is_alone[probe.order])
            sample.add_missed(probe.hashes[missed], probe.time[missed], self._most)

    def done(self, right: Mapping[int, RangeFacts]) -> WaitSample:
        """Returns the sample, once all rows were taken; right: how far it was read."""
        sample = self.sample
        sample.follows = self._small and all(facts.end >= self._bucket.right[p].end for p, facts in right.items())
        return sample
