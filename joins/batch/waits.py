"""What a batch contributes to the wait curve (`joins.batch.wait_curve`): samples that its tasks take. Pure.

Of matched rows each n-th is taken. Of left records without a match, and of right records, those of a *share* of the
keys are: of each hash of a key it is decided once whether all records of the key are sampled, so that the left record
and the right one that came too late meet although each is one of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

BOUNDS_MS = (
    *(0, 100, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000, 10_000, 15_000, 20_000, 30_000, 45_000),
    *(60_000, 90_000, 120_000, 180_000, 300_000, 420_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000),
    *(21_600_000, 86_400_000),
)
"""Durations that are told apart, about logarithmic, and such as people say them."""
SAMPLED_PER_S = 32
"""About how many matched pairs, unmatched left records, and right records are sampled in a second, over all buckets."""
HASH_BITS = 48
SMALLEST_BITS = 16
"""No share is smaller than one in 2 ** 16 keys; what is too much even then is dropped."""


def histogram(durations_ms: I64) -> dict[int, int]:
    """Counts durations by the place of the first of `BOUNDS_MS` that is not below them; only places that occur."""
    places, counts = np.unique(np.searchsorted(BOUNDS_MS, durations_ms), return_counts=True)
    return dict(zip(places.tolist(), counts.tolist(), strict=True))


@dataclass(slots=True)
class WaitSample:
    """What one bucket's batch contributes.

    listed_ms      when the batch was planned: of the left records that left in it, `gone`
    rows, matched  of left records, and how many of them have a right one; none if the batch does not look at them
    left_out       matched rows that were not sampled, as nothing is known of when right became readable
    pairs          (left time, right time, right partition, right offset, for how many rows it stands)
    missed         (hash of the key, left time) of left records without a match; of one in 2 ** missed_bits keys
    right          (hash of the key, right time) of right records that were read; of one in 2 ** right_bits keys
    follows        the batch was small, and read what its plan named: the join follows its topics
    appended       the broker wrote right's event times when it appended the records
    """

    listed_ms: int
    rows: int = 0
    matched: int = 0
    left_out: int = 0
    pairs: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    missed: list[tuple[int, int]] = field(default_factory=list)
    missed_bits: int = 0
    right: list[tuple[int, int]] = field(default_factory=list)
    right_bits: int = 0
    follows: bool = False
    appended: bool = False

    def add_missed(self, hashes: U64, times: I64, most: int) -> None:
        """Adds left records without a match; keeps about as many as `most`, those of a smaller share of the keys.

        There are fewer of them than right records, as a rule, and those of keys of which no right record is sampled
        meet nobody.
        """
        if not self.missed:
            self.missed_bits = max(self.missed_bits, self.right_bits - 1)
        self.missed_bits = _added(self.missed, self.missed_bits, hashes, times, most)

    def add_right(self, hashes: U64, times: I64, most: int) -> None:
        """Adds right records in the same way."""
        self.right_bits = _added(self.right, self.right_bits, hashes, times, most)


def _added(records: list[tuple[int, int]], bits: int, hashes: U64, times: I64, most: int) -> int:
    """Adds the records whose key belongs to the share, which is made smaller for that; returns the share's bits.

    Of many records a share is taken at once that has about as many as are wanted. JSON gets a hash that is short enough
    for any reader.
    """
    guessed = min(max((len(hashes) // (2 * most)).bit_length() - 1, bits), SMALLEST_BITS)
    if guessed:
        inside = np.flatnonzero(hashes < np.uint64(1 << (64 - guessed)))
        hashes, times = hashes[inside], times[inside]
    short = hashes >> np.uint64(64 - HASH_BITS)
    while bits < guessed or (len(records) + len(short) > 2 * most and bits < SMALLEST_BITS):
        bits += 1
        records[:] = [record for record in records if belongs(record[0], bits)]
        kept = short >> np.uint64(HASH_BITS - bits) == 0
        short, times = short[kept], times[kept]
    records += zip(short.tolist(), times.tolist(), strict=True)
    del records[2 * most :]
    return bits


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """A batch over all its buckets.

    before_ms, after_ms  the interval of the join
    right_ends           where each right partition was read to
    left_ms              left's watermark, if it is known
    """

    before_ms: int
    after_ms: int
    samples: Sequence[WaitSample]
    right_ends: Mapping[int, int]
    left_ms: int | None = None

    @property
    def listed_ms(self) -> int:
        return self.samples[0].listed_ms

    @property
    def follows(self) -> bool:
        return all(sample.follows for sample in self.samples)


def belongs(key: int, bits: int) -> bool:
    """Returns whether a key belongs to the share of one in 2 ** bits."""
    return not bits or key >> (HASH_BITS - bits) == 0
