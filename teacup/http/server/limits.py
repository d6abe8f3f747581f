"""Limits by caller: requests per second, requests under way, and bytes of bodies held at a time. Pure.

A bucket holds up to `burst` requests and gains `rate_per_s` requests per second. If there are too many callers, those
whose last request is oldest are dropped, so that made-up addresses cannot fill the memory.

A caller may have as many places for requests under way as it leaves free: one alone half of them, two a third each. So
there is nearly always a place for one more caller, and nothing is set aside for callers that do not come.

A body is held from its first byte until its request is answered, and a large answer until it is taken. One caller may
hold half of what all may hold together, so that one that is slow, or has many, leaves room for others. A caller that
holds nothing may always hold something; otherwise a large answer could never be sent.

uvicorn 0.54 does not know callers: its `limit_concurrency` is one number for all of them, and it does not count bytes.
"""

from __future__ import annotations

import math
from collections import Counter


class RateLimiter:
    """The token buckets of all callers."""

    def __init__(self, rate_per_s: float, burst: int, max_callers: int = 10_000) -> None:
        self._rate_per_s, self._burst, self._max_callers = rate_per_s, burst, max_callers
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, at which second; the latest callers last

    def take(self, caller: str, now_s: float) -> int | None:
        """Takes one request of `caller`; returns None if there was one left, else the whole seconds until there is one.

        now_s   of a monotonic clock
        """
        left, at_s = self._buckets.pop(caller, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at_s) * self._rate_per_s)
        self._buckets[caller] = (left - 1 if left >= 1 else left), now_s
        if len(self._buckets) > self._max_callers:
            del self._buckets[next(iter(self._buckets))]
        return None if left >= 1 else max(1, math.ceil((1 - left) / self._rate_per_s))


class Places:
    """Places for requests under way, `most` in all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()

    def take(self, caller: str) -> bool:
        """Takes a place for `caller`; returns False if there is none, or if fewer would be left than it has."""
        free, mine = self._most - self._of.total(), self._of[caller]
        if not free or (mine and mine >= free):
            return False
        self._of[caller] += 1
        return True

    def give_back(self, caller: str) -> None:
        """Frees a place of `caller`."""
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


class HeldBytes:
    """Bytes held now, at most `most` for all callers together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: Counter[str] = Counter()
        self._all = 0

    def take(self, caller: str, size: int) -> bool:
        """Holds `size` more bytes of `caller`; returns False, and holds nothing, if that exceeds a limit."""
        mine = self._of.get(caller, 0)
        if mine and (self._all + size > self._most or mine + size > self._most // 2):
            return False
        self._all += size
        self._of[caller] += size
        return True

    def give_back(self, caller: str, size: int) -> None:
        """Stops holding `size` bytes of `caller`."""
        self._all -= size
        self._of[caller] -= size
        if not self._of[caller]:
            del self._of[caller]
