"""What happens next in a run over a history: how it is cut into batches, and what interrupts them. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advance:
    """The clock advances."""

    ms: int


@dataclass(frozen=True, slots=True)
class Admit:
    """One batch of at most `max_records`."""

    max_records: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The process ends, and starts again from its checkpoint."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The last batch runs again, as after a failed task."""


@dataclass(frozen=True, slots=True)
class WrongClock:
    """The wall clock is wrong by `ms` when the next batch is planned, and right again after that."""

    ms: int


Cut = Advance | Admit | Restart | Retry | WrongClock
