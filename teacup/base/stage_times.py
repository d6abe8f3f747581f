"""How long the stages of a piece of work take when they call each other: each second counts for one stage. Pure.

    over(stage, items)     an iterator of the same items; what it takes to get each counts, not what is done with it
    within(stage)          a block

Inside a stage another one may begin, whose time does not count for the outer one. So a `match` that waits for `fetch`
is not charged for the wait. It takes two looks at a clock per block or item; items are batches of records, never single
ones. For one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_END = object()

Clock = Callable[[], float]
"""Seconds since some moment."""


def no_clock() -> float:
    """A clock that stands still, for when times are not wanted."""
    return 0.0


class StageTimes:
    """Seconds by stage, on a clock in seconds."""

    def __init__(self, clock: Clock = no_clock) -> None:
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0
        self.seconds: dict[str, float] = {}

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Counts the time inside for the stage."""
        self._charge()
        self._open.append(stage)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def over(self, stage: str, items: Iterable[T]) -> Generator[T, None, None]:
        """Yields the items; closes their iterator if it is closed itself."""
        iterator = iter(items)
        try:
            while True:
                with self.within(stage):
                    item = next(iterator, _END)
                if item is _END:
                    return
                yield item  # type: ignore[misc]
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()

    def _charge(self) -> None:
        """Adds the time since the last look to the innermost open stage."""
        now = self._clock()
        if self._open:
            stage = self._open[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


def longest(times: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the longest of several times for each stage."""
    most: dict[str, float] = {}
    for seconds in times:
        for stage, took in seconds.items():
            most[stage] = max(took, most.get(stage, 0.0))
    return most
