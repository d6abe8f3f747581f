"""The moment by which a request judges items, and what it takes for expired by it. Pure.

A clock is evidence, not truth: it may be hours ahead for a second. So nothing is gone by the word of a clock alone.
What a request takes for expired (it does not store it, overwrites it, does not find it, or frees it) is recorded before
the request is answered, as the namespace's horizon (`stored.StoredNamespace.beyond`). Whatever the clock says later:

    an acknowledged item at or above `retained_from` was never taken for expired

All back ends judge by this class, and record what it has noted.
"""

from __future__ import annotations

from kafkaio.times import iso


class Moment:
    """The time of a request, and the version below which it took items for expired (None: it took none)."""

    __slots__ = ("gone_below", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.gone_below: int | None = None

    def is_over(self, version: int, expires_at_ms: int) -> bool:
        """Tells whether an item has expired; if so, that is noted."""
        if expires_at_ms > self.now_ms:
            return False
        if self.gone_below is None or version >= self.gone_below:
            self.gone_below = version + 1
        return True


CLOCK_TOLERANCE_MS = 30_000
"""How far the clock of a store's server may differ from ours."""
FREED_AFTER_MS = 3 * 3_600_000
"""A server frees an item this long after its expiry: so its clock may be two hours ahead, and it frees nothing live."""


def other_clock(server_ms: int, now_ms: int) -> str | None:
    """Returns why the clock of a store's server, or ours, is wrong; None: they agree. Neither of them is the truth."""
    ahead_ms = server_ms - now_ms
    if abs(ahead_ms) <= CLOCK_TOLERANCE_MS:
        return None
    return (
        f"its clock differs by {ahead_ms / 1_000:.0f} s from the clock of this server ({iso(now_ms)}), and one of them "
        "would take live items for expired: set the one that is wrong"
    )
