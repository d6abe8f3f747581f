"""Which ids were seen: 16-byte hashes in sorted tiers. Pure.

    tier   two arrays, sorted by the high half; the low half decides where high halves are equal
    add    a new tier, merged with its neighbour while that is less than eight times as large: few tiers are looked
           through, and each id is moved a few times
    merge  the smaller tier's places in the larger one, at most half as many as there are ids, and a byte an id beside
           the old and the new arrays (32 bytes an id): at most 40 bytes an id in memory, and 16 between merges

A column is looked up in sorted order, which makes neighbouring look-ups touch the same memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import polars as pl

from dedup.hashing import Hashes, Mask, first_ones, hashes_of

_GROWTH = 8


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
        self._put(hashes.at(np.argsort(hashes.high)))

    def take_over(self, other: SeenIds) -> None:
        """All of the other's hashes, which has none then: each is kept once."""
        while other._tiers:
            self._put(other._tiers.pop())

    def _put(self, tier: Hashes) -> None:
        while self._tiers and len(self._tiers[-1]) < _GROWTH * len(tier):
            tier = _merged(self._tiers.pop(), tier)
        self._tiers.append(tier)

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


def fresh_rows(ids: pl.Series, seen: Known, under_way: SeenIds | None) -> Mask:
    """Which rows have no result yet: neither seen nor under way, where the new ones are put.

    under_way   None: rows are compared with what is seen alone, and repeats among them are not looked for

    Rows without an id cannot be told apart: they are fresh.
    """
    has_id = ids.is_not_null().to_numpy()
    hashes = hashes_of(ids.drop_nulls())
    new = ~seen.contains(hashes)
    if under_way is not None:
        new &= ~under_way.contains(hashes) & first_ones(hashes)
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
