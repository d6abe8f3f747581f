"""Recent results of an output, as the deduplicator reads them: a Protocol, and a piece of the output. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from dedup.replayrange import LoadLimits


@dataclass(frozen=True, slots=True)
class Loaded:
    """A piece of the output.

    ids      binary or text, of results only
    foreign  how many records have no id, because other writers wrote them
    """

    ids: pl.Series
    foreign: int


class RecentResults(Protocol):
    """The output of a job, wherever it is stored."""

    def check(self) -> None:
        """Raises what a load would raise, as far as a glance at the output shows; called once, when a query starts."""
        ...

    def load(self, bounds: LoadLimits) -> Iterator[Loaded]:
        """Yields what the output holds within the bounds; from the second call on only what was added since."""
        ...

    def close(self) -> None:
        """Closes connections."""
        ...
