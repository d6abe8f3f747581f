"""Which ids were seen: 16-byte hashes in sorted tiers. Pure.

    tier   two arrays, sorted by the high half; the low half decides where high halves are equal
    add    a new tier, merged with its neighbour while that is less than eight times as large: few tiers are looked
           through, and each id is moved a few times
    merge  a slice of the hashes' range after the other, so that beside the old and the new arrays (32 bytes an id)
           there is little: at most 40 bytes an id in memory, and 16 between merges

A column is looked up in sorted order, which makes neighbouring look-ups touch the same memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl

from dedup.hashing import Hashes, Mask, first_ones, hashes_of, joined

_GROWTH = 8
_SLICES_FROM = 1 << 18  # merges smaller than this are done in one go
_SLICES = 32


class Known(Protocol):
    """Ids that were seen, however they are kept."""

    def contains(self, hashes: Hashes) -> Mask: ...


class SeenIds:
    """A set of 128-bit hashes; adding one twice takes its room twice, and means the same."""

    def __init__(self) -> None:
        self._tiers: list[Hashes] = []  # the largest first

    def __len__(self) -> int:
        return sum(len(tier) for tier in self._tiers)

    @property
    def nbytes(self) -> int:
        return sum(tier.high.nbytes + tier.low.nbytes for tier in self._tiers)

    def add(self, hashes: Hashes) -> None:
        if not len(hashes):
            return
        tier = _sorted(hashes)
        while self._tiers and len(self._tiers[-1]) < _GROWTH * len(tier):
            tier = _merged(self._tiers.pop(), tier)
        self._tiers.append(tier)

    def take_over(self, other: SeenIds) -> None:
        """All of the other's hashes."""
        for tier in other._tiers:
            self.add(tier)

    def contains(self, hashes: Hashes) -> Mask:
        """Of each row whether its hash was added before."""
        found = np.zeros(len(hashes), np.bool_)
        if not len(hashes) or not self._tiers:
            return found
        order = np.argsort(hashes.high)
        asked = hashes.at(order)
        present = np.zeros(len(hashes), np.bool_)
        for tier in self._tiers:
            present |= _in_tier(tier, asked)
        found[order] = present
        return found


def fresh_rows(ids: pl.Series, seen: Known, under_way: SeenIds) -> Mask:
    """Which rows have no result yet: neither seen nor under way, where the new ones are put.

    Rows without an id cannot be told apart: they are fresh.
    """
    has_id = ids.is_not_null().to_numpy()
    hashes = hashes_of(ids.drop_nulls())
    new = ~seen.contains(hashes) & ~under_way.contains(hashes) & first_ones(hashes)
    under_way.add(hashes.at(new))
    fresh = np.ones(len(ids), np.bool_)
    fresh[has_id] = new
    return fresh


def _in_tier(tier: Hashes, asked: Hashes) -> Mask:
    """`asked` is sorted by the high half."""
    last = len(tier) - 1
    at = np.searchsorted(tier.high, asked.high)
    in_reach = at <= last
    at = np.minimum(at, last)
    same = in_reach & (tier.high[at] == asked.high)
    present: Mask = same & (tier.low[at] == asked.low)
    # Equal high halves with other low ones: repeated ids never come here, other ones once in 2^64.
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


def _sorted(hashes: Hashes) -> Hashes:
    return hashes.at(np.argsort(hashes.high))


def _merged(a: Hashes, b: Hashes) -> Hashes:
    size = len(a) + len(b)
    if size < _SLICES_FROM:
        return _sorted(joined([a, b]))
    bounds = (np.arange(1, _SLICES, dtype=np.uint64) << np.uint64(64 - 5)).astype(np.uint64)
    cuts_a = [0, *np.searchsorted(a.high, bounds).tolist(), len(a)]
    cuts_b = [0, *np.searchsorted(b.high, bounds).tolist(), len(b)]
    out = Hashes(np.empty(size, np.uint64), np.empty(size, np.uint64))
    for i in range(_SLICES):
        of_a, of_b = slice(cuts_a[i], cuts_a[i + 1]), slice(cuts_b[i], cuts_b[i + 1])
        to = slice(of_a.start + of_b.start, of_a.stop + of_b.stop)
        part = _sorted(joined([Hashes(a.high[of_a], a.low[of_a]), Hashes(b.high[of_b], b.low[of_b])]))
        out.high[to], out.low[to] = part.high, part.low
    return out
