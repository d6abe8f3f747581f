"""Up to where a run under `availableNow` reads: the ends that its first look found. Pure.

Otherwise it might never end, as records keep coming. A partition that was not listed at the first look is not read by
this run: the next one reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkaio.topiclog import Ends


class ListedEnds:
    """The ends of one topic at the first look."""

    def __init__(self) -> None:
        self._first: dict[int, int] | None = None

    def target(self, partition: int) -> int:
        """Returns up to which offset this run reads a partition; 0 if it was not listed."""
        return 0 if self._first is None else self._first.get(partition, 0)

    def cut(self, ends: Mapping[int, Ends]) -> dict[int, Ends]:
        """Returns these ends, with nothing readable after those of the first look. The first call is the first look."""
        if self._first is None:
            self._first = {p: now.stable for p, now in ends.items()}
        first = self._first
        return {p: replace(now, stable=min(now.stable, first.get(p, now.start))) for p, now in ends.items()}
