"""The accounts of a batch: what was read, joined, received, dropped and written must add up, in each bucket. Pure.

    left records read               = left records with a row that arrived     (every left record has one)
    rows joined                     = rows that arrived here
    new results                     = results delivered + results refused (dead letters) + those left out by type

`teacup.kafka.delivery.delivery` compares what was sent with what was acknowledged. Rows are counted where they arrive,
not where they are made, so that a row lost in between shows. A task reports what became of a bucket's batch
(`DeliveredBatch`), and the driver checks that each has reported once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from dedup.restart.deduplicator import FilterReport
from deploy.errors import AccountsDiffer
from joins.items import C
from joins.rows.frames import MISMATCH, is_null
from teacup.spark.jvm_errors import FIRST_TRY, TaskRun

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """Rows of one outcome and reason that became dead letters because they could not be written, and why."""

    outcome: str
    reason: str
    why: str
    rows: int = 1


@dataclass(slots=True)
class Accounts:
    """Counts what became of the rows of a ticket.

    received                     the ticket's rows that have arrived
    lefts                        the left records that they are about
    results, delivered, refused, left_out  rows for the output topic
    refused_before               rows refused by an earlier attempt, and committed as dead letters
    mismatches                   by side: results with a value that is not of the side's schema
    """

    bucket: str
    received: int = 0
    lefts: int = 0
    results: int = 0
    delivered: int = 0
    left_out: int = 0
    refused: Counter[Refused] = field(default_factory=Counter)
    refused_before: Counter[Refused] = field(default_factory=Counter)
    mismatches: Counter[str] = field(default_factory=Counter)
    _last: tuple[int, int] = (-1, -1)

    def receive(self, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Counts rows in the schema of `joins.rows.frames.ROW`; those about one left record are consecutive.

        Returns which rows are the first about their left record.
        """
        self.received += len(rows)
        for name in (name for name in rows.columns if name.endswith(MISMATCH)):
            self.mismatches[name.removesuffix(MISMATCH)] += int(rows[name].sum())
        about_left = ~is_null(rows["left_offset"])
        partitions, offsets = (
            rows[name].filter(pl.Series(about_left)).to_numpy() for name in ("left_partition", "left_offset")
        )
        first = np.zeros(len(rows), np.bool_)
        if len(offsets):
            partition, offset = self._last
            differs = np.diff(offsets, prepend=offset) != 0
            differs |= np.diff(partitions, prepend=partition) != 0
            self.lefts += int(np.count_nonzero(differs))
            self._last = int(partitions[-1]), int(offsets[-1])
            first[about_left] = differs
        return first

    def all_refused(self) -> tuple[Refused, ...]:
        """Returns the rows that became dead letters in any attempt."""
        return tuple(replace(of, rows=rows) for of, rows in (self.refused + self.refused_before).items())

    def check_written(self) -> None:
        """Checks the results, before any part is committed. Raises `AccountsDiffer`."""
        refused = self.refused.total()
        if self.results != self.delivered + refused + self.left_out:
            raise AccountsDiffer(
                f"{self.bucket}: of {self.results} results {self.delivered} were delivered, {refused} refused and "
                f"{self.left_out} left out by the join's type; these must add up, and nothing more is committed"
            )

    def check_joined(self, read: int, joined: int) -> None:
        """Checks left records and rows, before the batch counts as done. Raises `AccountsDiffer`."""
        if (read, joined) != (self.lefts, self.received):
            raise AccountsDiffer(
                f"{self.bucket}: {read} left records were read, {joined} rows joined, but {self.received} rows about "
                f"{self.lefts} left records were delivered; these must be the same, and the batch is not committed"
            )


def check_whole(parts: Sequence[int], expected: int, what: str) -> None:
    """Checks that each part of a batch has reported exactly once, before it is committed. Raises `AccountsDiffer`."""
    if len(set(parts)) != len(parts) or len(parts) != expected:
        raise AccountsDiffer(
            f"summaries came from {what} {sorted(parts)}, and {expected} were expected: rows may be missing, and the "
            "batch is not committed"
        )


def total(counts: Iterable[Mapping[T, int]]) -> dict[T, int]:
    """Adds up counts by name."""
    added: Counter[T] = Counter()
    for part in counts:
        added.update(part)
    return dict(added)


@dataclass(frozen=True, slots=True)
class DeliveredBatch(Generic[C]):
    """A task's report to the driver, one per bucket and batch.

    summary           the join's summary
    sent              the batch's rows in the output, by topic, including those of earlier attempts
    refused           rows that became dead letters because they could not be written, in any attempt
    delivered_before  how many rows were in the output before this attempt
    deduplicator      None: the job has none
    seconds           by stage: `produce` makes records and hands them over, `commit` waits until they are durable
    task              the attempt that delivered it
    mismatches        by side: rows with a value that is not of the side's schema
    """

    summary: C
    sent: Mapping[str, int]
    refused: Sequence[Refused]
    delivered_before: int
    deduplicator: FilterReport | None = None
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)
    task: TaskRun = FIRST_TRY
    mismatches: Mapping[str, int] = field(default_factory=dict)
