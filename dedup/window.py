"""Ids seen within a window of time: generations, each with the newest time in it; old ones are dropped whole. Pure.

An id is known at least for the window, and at most a quarter longer than that. Where the limit is reached, the oldest
generations go, whatever their age. A generation begins when the newest time is a quarter of the window past the newest
one at which the last generation began: old records in between do not matter. Those without a time count as the newest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dedup.hashing import Hashes, Mask
from dedup.seen import SeenIds

_GENERATIONS = 4
_BLOCK = 33


def proven_ms(times: npt.NDArray[np.int64], ceiling_ms: int) -> int | None:
    """How far these records have come: the median of the last valid times, of which a few may lie; None without any.

    ceiling_ms   times above it, and negative ones, are not valid
    """
    block = times[(times >= 0) & (times <= ceiling_ms)][-_BLOCK:]
    return int(np.sort(block)[(len(block) - 1) // 2]) if len(block) else None


@dataclass(slots=True)
class _Generation:
    begun_ms: int
    newest_ms: int
    seen: SeenIds = field(default_factory=SeenIds)


class SeenWindow:
    """limit   ids kept at most"""

    def __init__(self, window_ms: int, limit: int) -> None:
        self._window_ms, self._limit = window_ms, limit
        self._generations: list[_Generation] = []  # the oldest first

    def __len__(self) -> int:
        return sum(len(one.seen) for one in self._generations)

    def add(self, hashes: Hashes, newest_ms: int | None) -> int:
        """Ids of records up to about `newest_ms`, None where they have no times; one time that is ahead of all others
        would end the window for them, so that it must not be given.

        How many ids were forgotten before their time, as the limit was reached.
        """
        last = self._generations[-1] if self._generations else None
        if newest_ms is None:
            newest_ms = max((one.newest_ms for one in self._generations), default=0)
        full = last is not None and (
            newest_ms - last.begun_ms > self._window_ms // _GENERATIONS
            or len(last.seen) >= max(self._limit // _GENERATIONS, 1)
        )
        if last is None or full:
            last = _Generation(newest_ms, newest_ms)
            self._generations.append(last)
        last.newest_ms = max(last.newest_ms, newest_ms)
        last.seen.add(hashes)
        newest = max(one.newest_ms for one in self._generations)
        self._generations = [one for one in self._generations if one.newest_ms >= newest - self._window_ms]
        forgotten = 0
        while len(self) > self._limit and len(self._generations) > 1:
            forgotten += len(self._generations.pop(0).seen)
        return forgotten

    def contains(self, hashes: Hashes) -> Mask:
        found = np.zeros(len(hashes), np.bool_)
        for one in self._generations:
            found |= one.seen.contains(hashes)
        return found
