"""What a bucket's batch contributes to the wait curve (`joins.batch.wait_curve`): samples of whole batches. Pure.

It costs some tenths of a millisecond for a batch, and changes no row. In a batch of a backlog there is next to nothing
to learn, and next to nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from datadelay.watermark import Idle
from joins.batch.facts import RangeFacts
from joins.batch.ticket import Ticket
from joins.batch.wait_curve import MISSED, PAIRS, RIGHT, WaitSample
from joins.read.parse import ParsedBatch
from joins.rows.frames import I64, Bools, rows_where
from joins.spec import JoinSpec
from joins.window.match import NONE, Picks, Probe
from joins.window.slices import Slice, key_hashes


class WaitSampler:
    """Samples one bucket's batch.

    A batch follows its topics if all of them together are small. With `idle: hold`, topics with old times may be
    replayed, at a speed of their own: nothing is learned from that.
    """

    def __init__(self, spec: JoinSpec, ticket: Ticket) -> None:
        bucket, parts = ticket.bucket, ticket.buckets
        of_all = 1 if ticket.parts is not None else parts
        records = sum(r.records for side in (bucket.left, bucket.right) for r in side.values()) * of_all
        self._small = records < max(spec.max_records // 2, 1) and spec.idle is Idle.ADVANCE
        self._pairs, self._missed, self._right = (max(total // parts, 1) for total in (PAIRS, MISSED, RIGHT))
        self._bucket = bucket
        self.sample = WaitSample(ticket.listed_ms, follows=self._small)

    def saw(self, right: ParsedBatch) -> None:
        """Takes notice of right records that were read."""
        self.sample.appended = self.sample.appended or right.appended

    def entered(self, slice_: Slice) -> None:
        """Samples the right records that enter the window."""
        if self._small:
            self.sample.add_right(slice_.hashes, slice_.times, self._right)

    def came_too_late(self, records: pl.DataFrame, expired: Bools) -> None:
        """Samples right records that have expired before they were read."""
        if self._small:
            records = rows_where(records, expired)
            self.sample.add_right(key_hashes(records["key"]), records["time"].to_numpy(), self._right)

    def picked(self, left: pl.DataFrame, slices: Sequence[Slice], probe: Probe, picks: Picks) -> None:
        """Samples what was picked for left records (`joins.window.window.SeesPicks`)."""
        sample, alone = self.sample, picks.slice_of == NONE
        matched = np.flatnonzero(~alone)
        sample.rows += len(alone)
        sample.matched += len(matched)
        if not (self._small or sample.appended):
            sample.left_out += len(matched)
            return
        if len(matched):
            every = -(-len(matched) // self._pairs)
            self._add_pairs(left["time"].to_numpy(), slices, picks, matched[::every], every)
        if self._small and len(matched) < len(alone):
            is_alone = np.zeros(len(left), np.bool_)
            is_alone[picks.left[alone]] = True
            missed = np.flatnonzero(is_alone[probe.order])
            sample.add_missed(probe.hashes[missed], probe.time[missed], self._missed)

    def _add_pairs(self, left_ms: I64, slices: Sequence[Slice], picks: Picks, at: I64, every: int) -> None:
        slice_of, rows, left_ms = picks.slice_of[at], picks.row[at], left_ms[picks.left[at]]
        for number in np.unique(slice_of).tolist():
            here, slice_ = np.flatnonzero(slice_of == number), slices[number]
            row = rows[here]
            columns = (left_ms[here], slice_.times[row], slice_.partitions[row], slice_.offsets[row])
            self.sample.add_pairs(columns, every)

    def done(self, right: Mapping[int, RangeFacts]) -> WaitSample:
        """Returns the sample, once all rows were taken; right: how far it was read."""
        sample = self.sample
        sample.follows = self._small and all(facts.end >= self._bucket.right[p].end for p, facts in right.items())
        return sample
