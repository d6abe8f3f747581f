"""The wait curve: how many more left records would match if left waited longer, and how many fewer otherwise. Pure.

A left record of time t goes once right is complete beyond `t + after`. How long that takes follows from `after`,
`disorder` and `producer_delay`, and few people know what their right records need. They are told by these times, all
by the planner's clock:

    gone       when the batch was planned in which a left record left
    readable   when the batch was planned that read a right record: it could be read by then, and not at the plan before
    spare      gone - readable: so much earlier left could have gone, and still have had this right record
    missing    readable - gone, of a right record that came when its left was gone: so much longer left had to wait

    x s less   loses the pairs with spare < x; if `after` is shorter by x, also those with right > t + after - x
    x s more   matches left records with missing <= x; if `after` is longer by x, also with right <= t + after + x

What is lost is counted on pairs, each n-th of a batch, and can only be too high: a batch is planned a moment after a
record came, and where another right record would take the place of the lost one, that row counts as well. What would
be gained is an estimate, of a share of the keys.

This means something only as long as the join *follows* both topics, reading what came since the last plan. In a
backlog, and at its start, nobody knows when a record became readable, unless its broker wrote the time of the append
into it and this is its event time (`appended`). Pairs without a known time are left out, and counted.

Tasks sample their batches (`joins.read.waits`). The samples of the last hour are kept; what they say is computed when
somebody looks at the curve.
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
"""Nobody learns what waiting longer than that would bring."""
REMEMBERED = 100_000
"""About how many sampled records are remembered: beyond that, less than an hour."""
PLANS = 200_000
"""About how many plans are remembered, over all right partitions, to know when a record became readable."""
OF_A_KEY = 16
"""How many sampled records of a key and a side count at most: each meets all of the other side."""
QUANTILES = (0.5, 0.9, 0.99, 0.999)

_PAIR = ("lag_ms", "rows", "spare_ms", "spare_after_ms", "waited_ms", "followed")
_RECORD = ("key", "is_right", "time_ms", "at_ms", "bits")
"""Of a left record without a match, and when it was gone; or of a right record, and when it was readable."""


@dataclass(frozen=True, slots=True)
class BatchWaits:
    """A batch over all its buckets.

    before_ms, after_ms  the interval of the join
    samples              of each bucket, at least one
    right_ends           where each right partition was read to
    rows, matched        of left records, and how many of them have a right one
    follows              the batch was small, and read what its plan named: the join follows its topics
    """

    before_ms: int
    after_ms: int
    samples: Sequence[WaitSample]
    right_ends: Mapping[int, int]
    rows: int
    matched: int
    follows: bool


class _Plans:
    """From when on the records of a right partition could be read: where plans ended, their times, oldest first."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._plans: list[tuple[int, bool]] = []

    def add(self, end: int, listed_ms: int, known: bool, most: int) -> None:
        """Adds a plan. known: its records came since the plan before; of several that are not, the last is enough."""
        if self._ends and end <= self._ends[-1]:
            return
        if self._ends and not (known or self._plans[-1][1]):
            del self._ends[-1], self._plans[-1]
        self._ends.append(end)
        self._plans.append((listed_ms, known))
        if len(self._ends) > 2 * most:
            del self._ends[:most], self._plans[:most]

    def readable_ms(self, offset: int, gone_ms: int) -> int | None:
        """Returns by when a record could be read; None: it may have been much earlier, if not longer than matters."""
        listed_ms, known = self._plans[bisect_right(self._ends, offset)]
        return listed_ms if known or gone_ms - listed_ms >= HORIZON_MS else None


class _Batch(NamedTuple):
    """What is remembered of a batch; pairs, records: a row each, with the columns `_PAIR` and `_RECORD`."""

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
        """Adds a batch, after the one before it; returns how long after left's time right became readable, by pair."""
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

        rows, matched   of left records, in the batches that were looked at while the join followed its topics
        left_out        matched rows of which it is not known when their right record became readable
        less            [ms, lost by less waiting, lost by a shorter `after`]: shares of the rows
        more            [ms, gained by more waiting, gained by a longer `after`]
        waited_ms       how long left records waited from their own time on, by share of the pairs
        lag_ms          how long after left's time the right record became readable, by share of the pairs
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
        """Returns, up to each bound, how many left records would match by waiting, and by a longer `after`.

        A left record and a right one that are both sampled stand for as many as the smaller of their shares says. Of
        the right records that a left one meets, that counts which needs the least.
        """
        found = pl.DataFrame(records, schema=list(_RECORD))
        found = found.filter(pl.int_range(pl.len()).over(["key", "is_right"]) < OF_A_KEY).with_row_index("nth")
        is_right = pl.col("is_right") == 1
        met = found.filter(~is_right).join(found.filter(is_right), on="key")
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
    """Returns for each of `BOUNDS_MS` how many rows have a duration up to it; with `right`, below it."""
    places = np.searchsorted(BOUNDS_MS, durations_ms, side)
    return np.bincount(places, rows, len(BOUNDS_MS) + 1).cumsum().astype(np.int64)


def quantiles(durations_ms: I64, rows: I64) -> dict[str, int | None]:
    """Returns for each quantile the first bound that is not below it; None beyond the last, or without any rows."""
    summed, bounds = _summed(durations_ms, rows, "left"), (*BOUNDS_MS, None)
    return {f"{q:g}": bounds[np.searchsorted(summed, q * summed[-1])] if summed[-1] else None for q in QUANTILES}
