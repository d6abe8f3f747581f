"""Ids as 128-bit hashes, one column at a time. Pure.

Two 64-bit hashes (xxh3, by polars) of the id's bytes with different seeds. They are the same in every process with the
same version of polars. That is enough: hashes are never stored, what was seen is read again from the output. A result
is wrongly dropped if its hash equals that of another: with n ids seen and m rows filtered the odds are n * m / 2^128;
for 10^8 ids and 10^12 rows 3 * 10^-19.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

SEEDS = (0x7EAC0B, 0xD0D1E5)


@dataclass(frozen=True, slots=True)
class Hashes:
    """Hashes of ids, as two halves of equal length."""

    high: U64
    low: U64

    def __len__(self) -> int:
        return len(self.high)

    def at(self, mask: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Hashes:
        """Returns the hashes at these indices, or where this mask is true."""
        return Hashes(self.high[mask], self.low[mask])


def hashes_of(ids: pl.Series) -> Hashes:
    """Returns the hash of each id (binary or text). Raises ValueError if one is null."""
    if ids.null_count():
        raise ValueError(f"{ids.null_count()} of {len(ids)} ids are null; filter them out first")
    column = ids.cast(pl.Binary) if ids.dtype == pl.String else ids
    high, low = (column.hash(seed).to_numpy() for seed in SEEDS)
    return Hashes(high, low)


def first_ones(hashes: Hashes) -> Mask:
    """Returns which rows are the first with their hash."""
    order = np.lexsort((hashes.low, hashes.high))
    high, low = hashes.high[order], hashes.low[order]
    again = np.zeros(len(hashes), np.bool_)
    again[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    first = np.empty(len(hashes), np.bool_)
    first[order] = ~again  # the sort is stable, so of equal hashes the first in the column comes first
    return first
