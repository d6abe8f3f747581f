"""Which batches may be a replay, and where in the output the results of their earlier attempts may be. Pure.

Spark runs one batch after another and has at most one that is planned and not committed: the one in its offset log
whose number is not in the commit log. Only that one can have written results before a driver's restart.

    batches   those up to `last_batch` may be replays; None: none
    output    results of the replay have a record time >= `since_ms` (None: unknown), and are among the last `limit`
              results of the output: what was appended last is kept if the limit cuts. If results carry the tag of their
              batch, only those of the batch itself (and of later ones, should the checkpoint have gone back) count
    settled   the earlier attempt's writes can still arrive until its producer gives up, `delivery.timeout.ms` after it
              is known to have ended

The output is read in pieces (`Loaded`) through a Protocol, `RecentResults`, wherever it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Protocol

import polars as pl

from dedup.errors import DedupConfigInvalid
from teacup.base.fields import INT64_MAX, Allowed, Count, coerce_fields
from teacup.kafka.delivery.provenance import BatchTag

Millis = Annotated[int, Allowed("a whole number of milliseconds, 0 or more", lambda ms: 0 <= ms <= INT64_MAX)]


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """Which batches may be a replay after a driver's start.

    last_batch   the last batch that an earlier driver may have run; None: none
    since_ms     no result of a replay has an earlier record time; None: unknown
    started_ms   when this driver started: the earlier one had ended by then
    run          distinguishes one start of a driver from another
    """

    last_batch: int | None = None
    since_ms: int | None = None
    started_ms: int = 0
    run: str = ""

    def covers(self, batch: int) -> bool:
        """Returns whether the batch may be a replay."""
        return self.last_batch is not None and batch <= self.last_batch


def uncommitted_batch(planned: Iterable[int], committed: Iterable[int]) -> int | None:
    """Returns the batch that is planned but not committed, of the checkpoint's two lists; None if there is none."""
    last, done = max(planned, default=None), max(committed, default=-1)
    return last if last is not None and last > done else None


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """What part of the output is loaded: results with a record time >= `since_ms`, among the last `limit`.

    batch   only results of this batch, or of a later one of its generation; None: of any writer
    """

    since_ms: int | None
    limit: int
    batch: BatchTag | None = None


@dataclass(frozen=True, slots=True)
class DedupConfig:
    """The configuration of a deduplicator.

    limit        how many ids are loaded at most, the last ones
    lookback_ms  how much further back than the replay range the output is searched
    quiet_ms     how long there must be no duplicate before filtering ends
    settle_ms    how long an earlier attempt's writes may still arrive: its producer's `delivery.timeout.ms`
    """

    limit: Count = 5_000_000
    lookback_ms: Millis = 60_000
    quiet_ms: Millis = 60_000
    settle_ms: Millis = 30_000

    def __post_init__(self) -> None:
        coerce_fields(self, DedupConfigInvalid)

    def bounds(self, since_ms: int | None, batch: BatchTag | None = None) -> LoadLimits:
        """Returns what to load if no result of the replay has a record time below `since_ms` (None: unknown)."""
        return LoadLimits(None if since_ms is None else max(since_ms - self.lookback_ms, 0), self.limit, batch)

    def settled_at_ms(self, ended_ms: int) -> int:
        """Returns the time from which nothing can arrive from an attempt that had ended by `ended_ms`."""
        return ended_ms + self.settle_ms


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
