"""A batch's samples for the wait curve (`deploy.watch.hour.wait_curve`). Pure.

Every n-th matched row is sampled. Right records, and left records without a match, are sampled by key, a *share* of all
keys: so a left record meets the right one that came too late for it. The more records a batch has, the smaller
the share, so that samples have about the same size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import polars as pl

from joins.batch.ticket import Ticket
from joins.outcome import Outcome
from joins.rows.frames import I64, is_null, rows_at

BOUNDS_MS = (
    *(0, 100, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 45_000),
    *(60_000, 90_000, 120_000, 180_000, 300_000, 420_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000),
    *(21_600_000, 86_400_000),
)
"""Histogram bounds: roughly logarithmic, rounded."""
SAMPLED = 32
"""About how many matched rows, unmatched left records and right records a batch samples, over all buckets."""
HASH_BITS = 48
"""The bits of a hash in JSON: few enough for any reader."""


def histogram(durations_ms: I64) -> dict[int, int]:
    """Counts durations by the index of the first bound (`BOUNDS_MS`) at or above them; omits empty ones."""
    places, counts = np.unique(np.searchsorted(BOUNDS_MS, durations_ms), return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True))


@dataclass(slots=True)
class WaitSample:
    """A bucket's samples.

    listed_ms  when the batch was planned: its left records are `gone` from then on
    bits       one in 2 ** bits keys is in the share
    most       about how many of each kind are taken
    unread     how many offsets of right the batch left to the next one
    appended   right's event times are the broker's append times
    pairs      (left time, right time, right partition, right offset, how many rows it stands for)
    missed     (hash of the key, left time) of left records without a match
    right      (hash of the key, right time) of right records that were read
    """

    listed_ms: int
    bits: int = 0
    most: int = SAMPLED
    unread: int = 0
    appended: bool = False
    pairs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    missed: list[tuple[int, int]] = field(default_factory=list)
    right: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, ticket: Ticket) -> Self:
        """Returns an empty sample, of a size that fits the ticket."""
        bucket, most = ticket.bucket, max(SAMPLED // ticket.buckets, 1)
        records = sum(r.records for side in (bucket.left, bucket.right) for r in side.values()) // (ticket.parts or 1)
        unread = sum(r.end for r in bucket.right.values())
        return cls(ticket.listed_ms, min((records // most).bit_length(), HASH_BITS), most, unread)

    def saw_right(self, records: pl.DataFrame) -> None:
        """Samples right records (`frames.RECORD`)."""
        self._add(self.right, records["key"], records["time"], np.ones(len(records), np.bool_))

    def saw_rows(self, rows: pl.DataFrame) -> None:
        """Samples rows (`frames.ROW`) of left records."""
        if rows["left_offset"].null_count() == len(rows):
            return
        alone = is_null(rows["right_offset"])
        if not alone.all():
            matched = np.flatnonzero(~alone)
            every = -(-len(matched) // self.most)
            pairs = rows["left_time", "right_time", "right_partition", "right_offset"]
            some = rows_at(
                pairs, matched[every // 2 :: every]
            )  # the middle one of each group, as it represents the group best
            self.pairs += [(*pair, every) for pair in some.rows()]
        if alone.any():
            self._add(self.missed, rows["key"], rows["left_time"], (rows["outcome"] == Outcome.UNMATCHED).to_numpy())

    def _add(
        self, samples: list[tuple[int, int]], keys: pl.Series, times: pl.Series, sampled: npt.NDArray[np.bool_]
    ) -> None:
        hashes = (keys.hash().to_numpy() >> np.uint64(64 - HASH_BITS)).astype(np.int64)
        at = np.flatnonzero((hashes < 1 << (HASH_BITS - self.bits)) & sampled & ~is_null(keys))
        at = at[: max(8 * self.most - len(samples), 0)]  # bounded, as a key may have any number of records
        samples += zip(hashes[at].tolist(), times.to_numpy()[at].tolist(), strict=True)
