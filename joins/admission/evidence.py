"""What the times of a partition's records prove about those that follow. Pure numpy.

A record with a wrong time (late, or ahead of its neighbours) must prove nothing. So records count in *blocks* of 2m + 1
in a row, where `m` is the spec's `outliers`. At most m records of a block are wrong, so one that is right has at least
the block's median as its time, and no later timely record is more than the disorder below that:

    progress >= (largest median of a block) - disorder

Blocks are counted from the checkpoint's start, regardless of batches; records that do not fill a block yet are carried
over as the `tail`. A record counts only if its time is not later than it can have been appended: by the broker's append
time if the topic has it, otherwise by the clock when the record was first listed. So nothing from the future proves
anything, live or in a replay.

Without a full block there is only the clock (`claim_ms`): if a partition was read to its end, the records still to come
were not readable when the end was listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datadelay.progress import UNKNOWN
from kafkaio.blocksearch import block_size

I64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class Evidence:
    """Takes the times of one partition in offset order.

    proved_ms   the largest median of a full block so far
    tail        the times after the last full block
    """

    outliers: int
    tail: I64
    proved_ms: int = UNKNOWN

    @classmethod
    def carried(cls, outliers: int, tail: Sequence[int]) -> Evidence:
        """Starts after the times that an earlier batch left over."""
        return cls(outliers, np.array(tail, dtype=np.int64))

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

    def copy(self) -> Evidence:
        """Returns the same evidence, to go on from twice."""
        return Evidence(self.outliers, self.tail, self.proved_ms)
