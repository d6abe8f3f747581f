"""Recent results of an output, as the deduplicator reads them: a Protocol, and what stands in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from dedup.replayrange import Bounds


@dataclass(frozen=True, slots=True)
class Loaded:
    """A piece of the output.

    ids      binary or text, those of results alone
    foreign  records without an id, as other writers leave them
    """

    ids: pl.Series
    foreign: int


class RecentResults(Protocol):
    """The output of a job, whatever it is kept in."""

    def check(self) -> None:
        """Raises what a load would, as far as a glance at the output shows: asked once, where a query starts."""
        ...

    def load(self, bounds: Bounds) -> Iterator[Loaded]:
        """What stands in the output within the bounds; from the second call on only what was added since."""
        ...

    def close(self) -> None: ...
