"""What the report of a store's feeder means for left. Pure.

Right is in a store (`joins.right_source.Store`), and another system reports how far. `admission` decides what such a
report means for left:

    ok, caught_up        Every right record below `consumed_until` is stored: this is the watermark.
    unknown, stale       Nothing new is known. What was known remains true, because stored records stay stored.
    from the future      The collector's clock or ours is wrong: nothing new is known.
    from the past        By the clocks of both APIs: ours is wrong (`clock_ahead`), so nothing is planned by it.
    another generation   Of the feeder or of the store: what was known no longer holds; left stops completely.

A verdict that holds left says why, and since when.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from datadelay.model import Delay, DelayState
from datadelay.watermark import UNKNOWN
from teacup.base.times import LATEST_MS, iso

CONSUMER, STORE = "generation.consumer", "generation.store"
"""The names of the generations in the identity of every batch plan."""

CLOCK_TOLERANCE_MS = 60_000
"""How far the collector's clock may be ahead of the join's, and the join's ahead of those of both APIs. Partitions that
are read to their end are judged by the clock."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a delay means for left.

    watermark_ms   every right record below it is stored; UNKNOWN if nothing is known
    waits_for      why nothing new is known; None if there is news
    shut           no left record is admitted, even after `max_wait`
    """

    watermark_ms: int = UNKNOWN
    waits_for: str | None = None
    shut: bool = False


def admission(
    delay: Delay,
    store_generation: str,
    pinned: Mapping[str, object],
    accepted: Collection[str] = (),
    now_ms: int = LATEST_MS,
) -> Admission:
    """Returns what a delay means, by its own clock, for a join that started with the `pinned` generations."""
    who = f"{delay.consumer!r} in {delay.topic!r}"
    for name, what, now in (
        (CONSUMER, f"consumer {who}", delay.generation),
        (STORE, "the store", store_generation),
    ):
        pinned_generation = pinned.get(name)
        if pinned_generation is not None and now != pinned_generation and now not in accepted:
            return Admission(waits_for=_other(what, str(pinned_generation), now), shut=True)
    fed = delay.store_generation
    if fed is not None and fed != store_generation and fed not in accepted:
        return Admission(
            waits_for=f"consumer {who} feeds a store of generation {fed}, but the store here has {store_generation}: "
            "correct the address of one of them, or let the feeder start over with this store",
            shut=True,
        )
    ahead_ms = delay.listed_ms - now_ms
    if ahead_ms > CLOCK_TOLERANCE_MS:
        return Admission(
            waits_for=f"the delay of {who} was collected by a clock that is {ahead_ms / 1_000:.0f} s ahead of this "
            f"machine's ({iso(now_ms)}): set the one that is wrong; if it is the collector's, call `rewind` afterwards"
        )
    if delay.state in (DelayState.OK, DelayState.CAUGHT_UP) and delay.consumed_until_ms is not None:
        return Admission(delay.consumed_until_ms)
    reason = f": {delay.reason}" if delay.reason else ""
    return Admission(waits_for=f"the delay of {who} is {delay.state} since {iso(delay.since_ms)}{reason}")


def clock_ahead(delay: Delay, store_ms: int | None, now_ms: int) -> str | None:
    """Says why the join's clock must be wrong: it is ahead of the clocks of both APIs. None if it may be right.

    If the clock is ahead, an idle left topic counts as read up to that time, and records that follow count as late. If
    only one API is behind, its own clock is wrong, which harms no row.
    """
    ahead_ms = now_ms - max(delay.now_ms, now_ms if store_ms is None else store_ms)
    if ahead_ms <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"the clock of this machine ({iso(now_ms)}) is {ahead_ms / 1_000:.0f} s ahead of those of the storage API and "
        "of the Data Delay API: set the one that is wrong"
    )


def _other(what: str, pinned: str, now: str) -> str:
    return (
        f"{what} has generation {now}, this checkpoint began with {pinned}: what was stored may be gone. Start a new "
        f"checkpoint at a time (`start: TIME`), or, where all of right is stored again, add {now!r} to "
        "`accept_generations`"
    )
