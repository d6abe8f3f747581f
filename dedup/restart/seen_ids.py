"""Which ids were seen, as 16-byte hashes in sorted tiers; one column at a time. Pure.

    hash   two 64-bit hashes (xxh3, by polars) of the id's bytes with different seeds
    tier   two arrays, sorted by the high half; the low half decides between equal high halves
    add    a new tier, merged with its neighbour while that is less than eight times as large: few tiers are searched,
           and each id is moved a few times
    merge  needs the smaller tier's places in the larger one, at most half as many as there are ids, and one byte per id
           beside the old and the new arrays (32 bytes per id): at most 40 bytes of memory per id, and 16 between merges

A column is looked up in sorted order, so that neighbouring look-ups touch the same memory.

Hashes are the same in every process with the same version of polars. That is enough: they are never stored, and what
was seen is read again from the output. A result is wrongly dropped if its hash equals that of another: with n ids seen
and m rows filtered the odds are n * m / 2^128; for 10^8 ids and 10^12 rows 3 * 10^-19.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Returns the hash of each id (binary or text). Raises `ValueError` if one is null."""
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


_GROWTH = 8


class SeenIds:
    """A set of 128-bit hashes; a hash that is added twice takes twice the space, with no other effect."""

    def __init__(self) -> None:
        self._tiers: list[Hashes] = []  # the largest first

    def __len__(self) -> int:
        return sum(len(tier) for tier in self._tiers)

    @property
    def nbytes(self) -> int:
        """The bytes that the hashes take."""
        return sum(tier.high.nbytes + tier.low.nbytes for tier in self._tiers)

    def add(self, hashes: Hashes) -> None:
        """Adds all hashes."""
        if not len(hashes):
            return
        self._put(hashes.at(np.argsort(hashes.high)))

    def take_over(self, other: SeenIds) -> None:
        """Moves all hashes from the other set, which is then empty, so that each is stored once."""
        while other._tiers:
            self._put(other._tiers.pop())

    def _put(self, tier: Hashes) -> None:
        while self._tiers and len(self._tiers[-1]) < _GROWTH * len(tier):
            tier = _merged(self._tiers.pop(), tier)
        self._tiers.append(tier)

    def contains(self, hashes: Hashes) -> Mask:
        """Returns for each row whether its hash was added before."""
        seen = np.zeros(len(hashes), np.bool_)
        if not len(hashes) or not self._tiers:
            return seen
        order = np.argsort(hashes.high)
        asked = hashes.at(order)
        present = np.zeros(len(hashes), np.bool_)
        for tier in self._tiers:
            present |= _in_tier(tier, asked)
        seen[order] = present
        return seen


def fresh_rows(ids: pl.Series, seen: Callable[[Hashes], Mask], under_way: SeenIds | None) -> Mask:
    """Returns which rows have no result yet: neither seen nor under way. The new ones are added to `under_way`.

    seen        for each hash whether it was seen
    under_way   None: rows are only compared with what was seen; repeats among them are not detected

    Rows without an id cannot be compared: they count as fresh.
    """
    has_id = ids.is_not_null().to_numpy()
    hashes = hashes_of(ids.drop_nulls())
    new = ~seen(hashes)
    if under_way is not None:
        new &= ~under_way.contains(hashes) & first_ones(hashes)
        under_way.add(hashes.at(new))
    fresh = np.ones(len(ids), np.bool_)
    fresh[has_id] = new
    return fresh


def _in_tier(tier: Hashes, asked: Hashes) -> Mask:
    """Returns which hashes the tier holds; `asked` is sorted by the high half."""
    last = len(tier) - 1
    at = np.searchsorted(tier.high, asked.high)
    in_reach = at <= last
    at = np.minimum(at, last)
    same = in_reach & (tier.high[at] == asked.high)
    present: Mask = same & (tier.low[at] == asked.low)
    # Equal high halves with different low ones: repeated ids never get here, others once in 2^64.
    rest = np.flatnonzero(same & ~present)
    while len(rest):
        step = at[rest] + 1
        rest, step = rest[step <= last], step[step <= last]
        still = tier.high[step] == asked.high[rest]
        rest, step = rest[still], step[still]
        at[rest] = step
        hit = tier.low[step] == asked.low[rest]
        present[rest[hit]] = True
        rest = rest[~hit]
    return present


def _merged(a: Hashes, b: Hashes) -> Hashes:
    few, many = (a, b) if len(a) < len(b) else (b, a)
    at = np.searchsorted(many.high, few.high)
    at += np.arange(len(few))
    of_many = np.ones(len(few) + len(many), np.bool_)
    of_many[at] = False
    out = Hashes(np.empty(len(of_many), np.uint64), np.empty(len(of_many), np.uint64))
    for to, some, rest in ((out.high, few.high, many.high), (out.low, few.low, many.low)):
        to[at] = some
        to[of_many] = rest
    return out
