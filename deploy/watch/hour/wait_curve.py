"""The wait curve: how many more left records would match if left waited longer, and how many fewer if shorter. Pure.

A left record of time t goes once right is complete beyond `t + after`. How long that takes depends on `after`,
`disorder` and `producer_delay`, and few people know which values their right records need. The wait curve shows it,
from these times by the planner's clock:

    gone       when the batch that sent off a left record was planned
    readable   when the batch that read a right record was planned: it was readable by then, but not at the plan before
    spare      gone - readable: how much earlier left could have gone and still have matched this right record
    missing    readable - gone, for a right record that came after its left was gone: how much longer left had to wait

    x s less   loses the pairs with spare < x; if `after` is shorter by x, also those with right > t + after - x
    x s more   matches left records with missing <= x; if `after` is longer by x, also with right <= t + after + x

Losses are counted on a sample of pairs, every n-th of a batch, and can only be overestimated: a batch is planned a
moment after a record came, and a row also counts as lost if another right record would replace the lost one. Gains are
an estimate from a share of the keys.

All this holds only while the join *follows* both topics, reading what came since the last plan. In a backlog, and when
the join starts, it is unknown when a record became readable, unless the broker wrote the append time into it and this
is its event time (`appended`). Pairs without a known time are left out and counted.

Tasks sample their batches (`joins.read.waits`). The samples of the last hour are kept, and the curve is computed when
somebody looks at it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from joins.read.waits import BOUNDS_MS, WaitSample
from joins.rows.frames import I64

HORIZON_MS = 600_000
"""The curve ends here: the effect of waiting longer is not shown."""
REMEMBERED = 100_000
"""Approximate limit of remembered samples; with more, they cover less than an hour."""
PLANS = 200_000
"""Approximate limit of remembered plans, over all right partitions; they tell when a record became readable."""
OF_A_KEY = 16
"""The most sampled records that count per key and side, because each meets all of the other side."""
QUANTILES = (0.5, 0.9, 0.99, 0.999)

_PAIR = ("lag_ms", "rows", "spare_ms", "spare_after_ms", "waited_ms", "followed")
_RECORD = ("key", "is_right", "time_ms", "at_ms", "bits")
"""A left record without a match (`at_ms`: when it was gone) or a right record (when it became readable)."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """The samples of a batch, over all its buckets.

    before_ms, after_ms  the join's interval
    samples              one per bucket, at least one
    right_ends           the end of what was read of each right partition
    rows, matched        rows of left records, and how many of them have a match
    follows              the join follows its topics: the batch was small and read all that was planned
    """

    before_ms: int
    after_ms: int
    samples: Sequence[WaitSample]
    right_ends: Mapping[int, int]
    rows: int
    matched: int
    follows: bool


class _Plans:
    """When the records of a right partition became readable: the ends and times of plans, oldest first."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._plans: list[tuple[int, bool]] = []

    def add(self, end: int, listed_ms: int, known: bool, most: int) -> None:
        """Adds a plan. `known`: its records came since the plan before. Of several unknown ones, the last is enough."""
        if self._ends and end <= self._ends[-1]:
            return
        if self._ends and not (known or self._plans[-1][1]):
            del self._ends[-1], self._plans[-1]
        self._ends.append(end)
        self._plans.append((listed_ms, known))
        if len(self._ends) > 2 * most:
            del self._ends[:most], self._plans[:most]

    def readable_ms(self, offset: int, gone_ms: int) -> int | None:
        """Returns when a record became readable; None if it may have been much earlier, and that matters."""
        listed_ms, known = self._plans[bisect_right(self._ends, offset)]
        return listed_ms if known or gone_ms - listed_ms >= HORIZON_MS else None


class _Batch(NamedTuple):
    """What is remembered of a batch. `pairs` and `records` are tables with the columns `_PAIR` and `_RECORD`."""

    listed_ms: int
    rows: int
    matched: int
    left_out: int
    pairs: I64
    records: I64


class WaitCurve:
    """Remembers the batches of the last `kept_ms`."""

    def __init__(self, before_ms: int, after_ms: int, kept_ms: int) -> None:
        self._before_ms, self._after_ms, self._kept_ms = before_ms, after_ms, kept_ms
        self._plans: dict[int, _Plans] = {}
        self._batches: deque[_Batch] = deque()
        self._size = 0
        self._followed = False

    def add(self, batch: BatchWaits) -> list[int]:
        """Adds the next batch; returns for each pair how long after left's time right became readable."""
        now_ms, follows = batch.samples[0].listed_ms, batch.follows and self._followed
        self._followed = batch.follows
        for p, end in batch.right_ends.items():
            self._plans.setdefault(p, _Plans()).add(end, now_ms, follows, max(PLANS // len(batch.right_ends), 10))
        pairs, records, left_out = [], [], 0
        for of in batch.samples:
            for left_ms, right_ms, p, offset, rows in of.pairs:
                readable_ms = right_ms if of.appended else self._plans[p].readable_ms(offset, now_ms)
                if readable_ms is None:
                    left_out += rows
                    continue
                spare_ms = max(now_ms - readable_ms, 0)
                spare_after_ms = max(min(spare_ms, left_ms + self._after_ms - right_ms), 0)
                pairs.append((readable_ms - left_ms, rows, spare_ms, spare_after_ms, now_ms - left_ms, follows))
            if follows:
                records += [(key, 0, time_ms, now_ms, of.bits) for key, time_ms in of.missed]
                records += [(key, 1, ms, ms if of.appended else now_ms, of.bits) for key, ms in of.right]
        counts = (batch.rows, batch.matched) if follows else (0, 0)
        self._batches.append(_Batch(now_ms, *counts, left_out, _table(pairs, _PAIR), _table(records, _RECORD)))
        self._size += len(pairs) + len(records)
        while len(self._batches) > 1 and (
            now_ms - self._batches[0].listed_ms >= self._kept_ms or self._size > REMEMBERED
        ):
            oldest = self._batches.popleft()
            self._size -= len(oldest.pairs) + len(oldest.records)
        return [pair[0] for pair in pairs]

    def drawn(self) -> dict[str, Any]:
        """Returns the curve as JSON.

        since_ms        when the first of these batches was planned; None: there is none
        rows, matched   rows of left records in the batches where the join followed its topics, and their matches
        left_out        matched rows for which it is unknown when the right record became readable
        less            [ms, lost by less waiting, lost by a shorter `after`], as fractions of the rows
        more            [ms, gained by more waiting, gained by a longer `after`], as fractions of the rows
        waited_ms       quantiles over the pairs: how long left records waited from their own time on
        lag_ms          quantiles over the pairs: how long after left's time the right record became readable
        """
        rows, batches = sum(of.rows for of in self._batches), list(self._batches)
        pairs = np.concatenate([_table([], _PAIR), *(of.pairs for of in batches)])
        lag_ms, stands_for, *spares_ms, waited_ms, followed = pairs.T

        def shares(both: Sequence[I64]) -> list[list[float]]:
            reach = range(1, BOUNDS_MS.index(HORIZON_MS) + 1) if rows else ()
            return [[BOUNDS_MS[at], *(round(float(each[at]) / rows, 7) for each in both)] for at in reach]

        return {
            "since_ms": batches[0].listed_ms if batches else None,
            "rows": rows,
            "matched": sum(of.matched for of in batches),
            "left_out": sum(of.left_out for of in batches),
            "less": shares([_summed(spare_ms, stands_for * followed, "right") for spare_ms in spares_ms]),
            "more": shares(self._gained(np.concatenate([_table([], _RECORD), *(of.records for of in batches)]))),
            "waited_ms": quantiles(waited_ms, stands_for * followed),
            "lag_ms": quantiles(lag_ms, stands_for),
        }

    def _gained(self, records: I64) -> list[I64]:
        """Returns how many left records would match, up to each bound, by waiting longer and by a longer `after`.

        A pair of sampled records counts for as many pairs as the smaller of the two sampling shares implies. Of the
        right records that a left record meets, the one that needs the least counts.
        """
        sampled = pl.DataFrame(records, schema=list(_RECORD))
        sampled = sampled.filter(pl.int_range(pl.len()).over(["key", "is_right"]) < OF_A_KEY).with_row_index("nth")
        is_right = pl.col("is_right") == 1
        met = sampled.filter(~is_right).join(sampled.filter(is_right), on="key")
        met = met.select(
            "nth",
            missing=pl.col("at_ms_right") - pl.col("at_ms"),
            beyond=pl.col("time_ms_right") - pl.col("time_ms") - self._after_ms,
            rows=2 ** pl.max_horizontal("bits", "bits_right"),
        ).filter(pl.col("beyond") >= -self._before_ms - self._after_ms)
        gained = []
        for needed in (pl.when(pl.col("beyond") <= 0).then("missing"), pl.max_horizontal("missing", "beyond")):
            needing = met.with_columns(needed=needed).filter(pl.col("needed") > 0)
            least = needing.sort("needed").unique("nth", keep="first")
            gained.append(_summed(least["needed"].to_numpy(), least["rows"].to_numpy(), "left"))
        return gained


def _table(rows: Sequence[tuple[int, ...]], columns: Sequence[str]) -> I64:
    return np.array(rows, np.int64).reshape(-1, len(columns))


def _summed(durations_ms: I64, rows: I64, side: Literal["left", "right"]) -> I64:
    """Returns for each of `BOUNDS_MS` the number of rows with a duration up to it or, with `right`, below it."""
    places = np.searchsorted(BOUNDS_MS, durations_ms, side)
    return np.bincount(places, rows, len(BOUNDS_MS) + 1).cumsum().astype(np.int64)


def quantiles(durations_ms: I64, rows: I64) -> dict[str, int | None]:
    """Returns for each quantile the first bound at or above it; None beyond the last bound, or without rows."""
    summed, bounds = _summed(durations_ms, rows, "left"), (*BOUNDS_MS, None)
    return {f"{q:g}": bounds[np.searchsorted(summed, q * summed[-1])] if summed[-1] else None for q in QUANTILES}
