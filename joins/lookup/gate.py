"""What left may rely on when a feeder stores right. Pure: a published delay in, a verdict out.

    ok, caught_up     every right record below `consumed_until` is stored: the frontier
    unknown, stale    nothing new is known; what was known remains true, because stored records stay stored
    from the future   the collector's clock is wrong, or ours: nothing new is known
    another generation, of the feeder or of the store: nothing that was known is true any more; left holds completely

A verdict that holds left says why and since when, for people.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from datadelay.model import Delay, DelayState
from datadelay.progress import UNKNOWN
from kafkaio.times import LATEST_MS, iso

CONSUMER, STORE = "generation.consumer", "generation.store"
"""The names of the generations in the first admission's identity, and in every later one."""

CLOCK_TOLERANCE_MS = 60_000
"""How far the collector's clock may be ahead: a partition that is read to its end is judged by it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a delay means for left.

    frontier_ms   every right record below it is stored; UNKNOWN if nothing says so
    waits_for     why nothing new is known; None if something is
    shut          left does not go at all, even after `max_wait`
    """

    frontier_ms: int = UNKNOWN
    waits_for: str | None = None
    shut: bool = False


def judge(
    delay: Delay,
    store_generation: str,
    pinned: Mapping[str, object],
    accepted: Collection[str] = (),
    now_ms: int = LATEST_MS,
) -> Verdict:
    """Returns what a delay means for a join that started with the `pinned` generations, by its own clock."""
    who = f"{delay.consumer!r} in {delay.topic!r}"
    for name, what, now in (
        (CONSUMER, f"consumer {who}", delay.generation),
        (STORE, "the store", store_generation),
    ):
        known = pinned.get(name)
        if known is not None and now != known and now not in accepted:
            return Verdict(waits_for=_other(what, str(known), now), shut=True)
    fed = delay.store_generation
    if fed is not None and fed != store_generation and fed not in accepted:
        return Verdict(
            waits_for=f"consumer {who} feeds a store of generation {fed}, but the store here has {store_generation}: "
            "correct the address of one of them, or let the feeder start over with this store",
            shut=True,
        )
    ahead_ms = delay.listed_ms - now_ms
    if ahead_ms > CLOCK_TOLERANCE_MS:
        return Verdict(
            waits_for=f"the delay of {who} was collected by a clock that is {ahead_ms / 1_000:.0f} s ahead of this "
            f"machine's ({iso(now_ms)}): set the one that is wrong; if it is the collector's, call `rewind` afterwards"
        )
    if delay.state in (DelayState.OK, DelayState.CAUGHT_UP) and delay.consumed_until_ms is not None:
        return Verdict(delay.consumed_until_ms)
    reason = f": {delay.reason}" if delay.reason else ""
    return Verdict(waits_for=f"the delay of {who} is {delay.state} since {iso(delay.since_ms)}{reason}")


def _other(what: str, known: str, now: str) -> str:
    return (
        f"{what} has generation {now}, this checkpoint began with {known}: what was stored may be gone. Start a new "
        f"checkpoint at a time (`start: TIME`), or, where all of right is stored again, add {now!r} to "
        "`accept_generations`"
    )
