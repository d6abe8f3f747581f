"""What deduplicators report of a batch. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dedup.restart.states import FilterChange


@dataclass(frozen=True, slots=True)
class FilterReport:
    """What the deduplicator of a worker, or of several, has done since their last reports.

    filtering    how many of them filter
    loaded       ids that were read from the output
    without_id   rows let through without an id
    foreign      records of other writers in what was loaded
    """

    filtering: int = 0
    loads: int = 0
    filter_calls: int = 0
    loaded: int = 0
    dropped: int = 0
    without_id: int = 0
    foreign: int = 0
    changes: tuple[FilterChange, ...] = ()

    def __add__(self, other: FilterReport) -> FilterReport:
        return FilterReport(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
