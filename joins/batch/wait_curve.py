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

Tasks take samples of whole batches (`WaitSample`); all that is remembered is in the driver (`WaitCurve`), so that it
does not matter which worker reads a record, and nothing is lost with a worker.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from joins.batch.waits import BOUNDS_MS, SMALLEST_BITS, BatchWaits, WaitSample, belongs

HORIZON_MS = 600_000
"""How long a left record without a match is remembered: nobody learns what waiting longer than that would bring."""
REMEMBERED = 20_000
"""About how many left records without a match, and right records ahead of left, are remembered; beyond that, a smaller
share of the keys."""
PLANS = 200_000
"""About how many plans are remembered, over all right partitions, to know when a record became readable."""
OF_A_KEY = 8
"""How many records of a key and a side are remembered at most: each meets all of the other side."""
STRETCHES = 12
"""The counts are kept by stretches of time, so that what is too old can be left out."""


def _none() -> list[float]:
    return [0.0] * (len(BOUNDS_MS) + 1)


@dataclass(slots=True)
class _Stretch:
    """The counts of a stretch of time. Each list has a place for every bound, and one beyond the last.

    lost, lost_after      pairs, by how much less waiting loses them: any, or that of a shorter `after`
    gained, gained_after  left records, by how much more waiting matches them: any, or that of a longer `after`
    waited                pairs, by how long left waited from its own time on
    lag                   pairs, by how long after left's time the right record became readable
    """

    since_ms: int
    rows: int = 0
    matched: int = 0
    left_out: int = 0
    lost: list[float] = field(default_factory=_none)
    lost_after: list[float] = field(default_factory=_none)
    gained: list[float] = field(default_factory=_none)
    gained_after: list[float] = field(default_factory=_none)
    waited: list[float] = field(default_factory=_none)
    lag: list[float] = field(default_factory=_none)


_LISTS = ("lost", "lost_after", "gained", "gained_after", "waited", "lag")


@dataclass(slots=True)
class _Missed:
    """A left record without a match that is gone, and where its smallest needs are counted: need, list, place, weight.

    bits   its key belongs to a share of one in 2 ** bits
    """

    time_ms: int
    gone_ms: int
    bits: int
    counted: dict[str, tuple[int, list[float], int, float]] = field(default_factory=dict)

    def count(self, what: str, needed_ms: int, into: list[float], weight: float) -> None:
        """Counts a need, in place of a larger one that was counted before."""
        if (known := self.counted.get(what)) is not None:
            if known[0] <= needed_ms:
                return
            known[1][known[2]] -= known[3]
        at = bisect_left(BOUNDS_MS, needed_ms)
        into[at] += weight
        self.counted[what] = (needed_ms, into, at, weight)


@dataclass(slots=True)
class _Readable:
    """From when on the records of a right partition could be read: the plans that read them, oldest first.

    ends   where each plan's range ended; plans: its time, and whether the records came since the plan before
    """

    ends: list[int] = field(default_factory=list)
    plans: list[tuple[int, bool]] = field(default_factory=list)

    def add(self, end: int, listed_ms: int, known: bool, most: int) -> None:
        """Adds a plan; of several in a row that know nothing, the last one is enough."""
        if self.ends and end <= self.ends[-1]:
            return
        if self.ends and not (known or self.plans[-1][1]):
            self.ends[-1], self.plans[-1] = end, (listed_ms, known)
            return
        self.ends.append(end)
        self.plans.append((listed_ms, known))
        if len(self.ends) > 2 * most:
            del self.ends[:most], self.plans[:most]

    def of(self, offset: int) -> tuple[int, bool] | None:
        """Returns by when a record could be read, and whether not much earlier; None: nothing is known."""
        at = bisect_right(self.ends, offset)
        return self.plans[at] if at < len(self.ends) else None


class WaitCurve:
    """Adds up batches, over the last `kept_ms` or slightly less."""

    def __init__(self, before_ms: int, after_ms: int, kept_ms: int = 3_600_000) -> None:
        self._before_ms, self._after_ms, self._stretch_ms = before_ms, after_ms, max(kept_ms // STRETCHES, 1)
        self._stretches: deque[_Stretch] = deque(maxlen=STRETCHES)
        self._readable: dict[int, _Readable] = {}
        self._missed: dict[int, list[_Missed]] = {}
        self._gone: deque[tuple[int, int]] = deque()
        self._missed_bits = 0
        self._ahead: dict[int, list[tuple[int, int, int]]] = {}
        self._ahead_bits = self._ahead_added = 0
        self._followed = False

    def add(self, batch: BatchWaits) -> list[int]:
        """Adds a batch, after the one before it; returns how long after left's time right became readable, by pair."""
        now_ms, follows = batch.listed_ms, batch.follows and self._followed
        self._followed = batch.follows
        if not self._stretches or now_ms - self._stretches[-1].since_ms >= self._stretch_ms:
            self._stretches.append(_Stretch(now_ms))
        counts = self._stretches[-1]
        most = max(PLANS // max(len(batch.right_ends), 1), 10)
        for p, end in batch.right_ends.items():
            self._readable.setdefault(p, _Readable()).add(end, now_ms, follows, most)
        lags_ms: list[int] = []
        for sample in batch.samples:
            lags_ms += self._add_pairs(sample, counts, follows=follows)
            counts.left_out += sample.left_out
        if not follows:
            return lags_ms
        self._forget(now_ms, batch.left_ms)
        for sample in batch.samples:
            counts.rows += sample.rows
            counts.matched += sample.matched
            self._add_right(sample, counts)
        for sample in batch.samples:
            self._add_missed(sample, counts)
        return lags_ms

    def _add_pairs(self, sample: WaitSample, counts: _Stretch, *, follows: bool) -> Iterator[int]:
        gone_ms = sample.listed_ms
        for left_ms, right_ms, p, offset, weight in sample.pairs:
            plan = self._readable[p].of(offset) if p in self._readable else None
            if sample.appended:
                readable_ms = right_ms
            elif plan is not None and (plan[1] or gone_ms - plan[0] >= HORIZON_MS):  # or earlier still
                readable_ms = plan[0]
            else:
                counts.left_out += weight
                continue
            yield readable_ms - left_ms
            counts.lag[bisect_left(BOUNDS_MS, readable_ms - left_ms)] += weight
            if follows:
                spare_ms = max(gone_ms - readable_ms, 0)
                counts.lost[bisect_right(BOUNDS_MS, spare_ms)] += weight
                spare_after_ms = max(min(spare_ms, left_ms + self._after_ms - right_ms), 0)
                counts.lost_after[bisect_right(BOUNDS_MS, spare_after_ms)] += weight
                counts.waited[bisect_left(BOUNDS_MS, gone_ms - left_ms)] += weight

    def _add_right(self, sample: WaitSample, counts: _Stretch) -> None:
        """Lets right records meet the left ones that are gone, and remembers them for those that will go."""
        for key, right_ms in sample.right:
            readable_ms = right_ms if sample.appended else sample.listed_ms
            for missed in self._missed.get(key, ()):
                self._meet(missed, right_ms, readable_ms, sample.right_bits, counts)
            if belongs(key, self._ahead_bits) and len(self._ahead.get(key, ())) < OF_A_KEY:
                seen = (right_ms, readable_ms, max(sample.right_bits, self._ahead_bits))
                self._ahead.setdefault(key, []).append(seen)
                self._ahead_added += 1

    def _add_missed(self, sample: WaitSample, counts: _Stretch) -> None:
        for key, left_ms in sample.missed:
            if not belongs(key, self._missed_bits) or len(self._missed.get(key, ())) >= OF_A_KEY:
                continue
            missed = _Missed(left_ms, sample.listed_ms, max(sample.missed_bits, self._missed_bits))
            for right_ms, readable_ms, bits in self._ahead.get(key, ()):
                self._meet(missed, right_ms, readable_ms, bits, counts)
            self._missed.setdefault(key, []).append(missed)
            self._gone.append((sample.listed_ms, key))
        while len(self._gone) > REMEMBERED and self._missed_bits < SMALLEST_BITS:
            self._missed_bits += 1
            self._missed = {key: them for key, them in self._missed.items() if belongs(key, self._missed_bits)}
            self._gone = deque(each for each in self._gone if belongs(each[1], self._missed_bits))
        while len(self._gone) > REMEMBERED:
            self._forget_oldest()

    def _meet(self, missed: _Missed, right_ms: int, readable_ms: int, bits: int, counts: _Stretch) -> None:
        """Counts by how much more waiting these two would match, unless an earlier right record needs less."""
        if right_ms < missed.time_ms - self._before_ms:
            return
        beyond_ms = right_ms - missed.time_ms - self._after_ms
        missing_ms = readable_ms - missed.gone_ms
        weight = 2.0 ** max(missed.bits, bits, self._missed_bits)
        if beyond_ms > 0 or missing_ms > 0:
            missed.count("after", max(missing_ms, beyond_ms), counts.gained_after, weight)
        if beyond_ms <= 0 < missing_ms:
            missed.count("waiting", missing_ms, counts.gained, weight)

    def _forget(self, now_ms: int, left_ms: int | None) -> None:
        """Forgets left records that were gone long ago and, now and then, right ones that left has in its reach."""
        while self._gone and now_ms - self._gone[0][0] > HORIZON_MS:
            self._forget_oldest()
        if self._ahead_added < REMEMBERED // 4:
            return
        self._ahead_added = 0
        reach_ms = -1 if left_ms is None else left_ms + self._after_ms
        kept = {key: [each for each in them if each[0] > reach_ms] for key, them in self._ahead.items()}
        self._ahead = {key: them for key, them in kept.items() if them}
        while sum(map(len, self._ahead.values())) > REMEMBERED:
            if self._ahead_bits == SMALLEST_BITS:
                self._ahead.clear()
                break
            self._ahead_bits += 1
            self._ahead = {
                key: [(right_ms, readable_ms, max(bits, self._ahead_bits)) for right_ms, readable_ms, bits in them]
                for key, them in self._ahead.items()
                if belongs(key, self._ahead_bits)
            }

    def _forget_oldest(self) -> None:
        _, key = self._gone.popleft()
        self._missed[key].pop(0)
        if not self._missed[key]:
            del self._missed[key]

    def drawn(self) -> dict[str, Any]:
        """Returns the curve as JSON.

        rows, matched   of left records, in the batches that were looked at while the join followed its topics
        left_out        matched rows of which it is not known when their right record became readable
        less            [ms, lost by less waiting, lost by a shorter `after`]: shares of the rows
        more            [ms, gained by more waiting, gained by a longer `after`]
        waited_ms       how long left records waited from their own time on, by share of the pairs
        lag_ms          how long after left's time the right record became readable, by share of the pairs
        """
        of = list(self._stretches)
        total = {name: [sum(each) for each in zip(*(getattr(c, name) for c in of), strict=True)] for name in _LISTS}
        summed = {name: list(accumulate(values)) for name, values in total.items()}
        rows = sum(counts.rows for counts in of)
        reach = range(1, BOUNDS_MS.index(HORIZON_MS) + 1) if rows else range(0)

        def shares(name: str) -> list[list[float]]:
            both = (summed[name], summed[f"{name}_after"])
            return [[BOUNDS_MS[at], *(round(max(each[at], 0.0) / rows, 7) for each in both)] for at in reach]

        return {
            "since_ms": of[0].since_ms if of else None,
            "rows": rows,
            "matched": sum(counts.matched for counts in of),
            "left_out": sum(counts.left_out for counts in of),
            "less": shares("lost"),
            "more": shares("gained"),
            "waited_ms": _quantiles(total["waited"]) if of else {},
            "lag_ms": _quantiles(total["lag"]) if of else {},
        }


QUANTILES = (0.5, 0.9, 0.99, 0.999)


def _quantiles(counts: Sequence[float]) -> dict[str, int | None]:
    """Returns for each quantile the first bound that is not below it; None beyond the last, or without any counts."""
    summed = list(accumulate(counts))
    found: dict[str, int | None] = {}
    for quantile in QUANTILES:
        at = bisect_left(summed, quantile * summed[-1]) if summed[-1] else len(BOUNDS_MS)
        found[f"{quantile:g}"] = BOUNDS_MS[at] if at < len(BOUNDS_MS) else None
    return found
