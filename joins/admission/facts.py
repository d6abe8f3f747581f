"""What a batch found out: where it ended, and what its records prove. The next admission starts from it. Pure.

Facts are a function of the admission and the log: reading the batch's ranges once more gives them again at any time
(`joins.admission.batchreader.find_facts`). The task that carries out a batch keeps them beside its slices. A job's
driver gets them in the summary and keeps them too. These files may be lost (`factsfolder`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from datadelay.progress import UNKNOWN
from joins.sides import BothSides
from kafkaio.times import EARLIEST_MS, LATEST_MS


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition after a batch.

    end          the next offset to read; for left at most the planned one
    progress_ms  every record from `end` on has at least this time
    tail         the times before `end` that do not fill a block yet
    below_ms     the records of the batch that took part have times below it
    future_ms    those that were rejected as from the future have at least this time
    held_ms      left only: the time of the record at `end`, if it was held back
    late         some records of the batch were late
    schemas      the schemas with which records of the batch were decoded, each with the first offset (Avro, Protobuf)
    """

    end: int
    progress_ms: int
    tail: tuple[int, ...] = ()
    below_ms: int = EARLIEST_MS
    future_ms: int = LATEST_MS
    held_ms: int | None = None
    late: bool = False
    schemas: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BucketFacts(BothSides[Mapping[int, PartitionFacts]]):
    """One bucket after a batch; `oldest_ms` is the smallest time in its window, None if the window is empty."""

    left: Mapping[int, PartitionFacts] = field(default_factory=dict)
    right: Mapping[int, PartitionFacts] = field(default_factory=dict)
    frontier_ms: int = UNKNOWN
    expiry_ms: int = UNKNOWN
    oldest_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the facts as summaries and files hold them."""
        return {
            "expiry": self.expiry_ms,
            "frontier": self.frontier_ms,
            "left": _rows(self.left),
            "oldest": self.oldest_ms,
            "right": _rows(self.right),
        }

    @classmethod
    def of_parts(cls, parts: Iterable[BucketFacts]) -> BucketFacts:
        """Puts together what the parts of a bucket found out.

        All found the same of its partitions, which the first part tells in full, and each of its own window.
        """
        first, *others = parts
        oldest = [part.oldest_ms for part in (first, *others) if part.oldest_ms is not None]
        return replace(first, oldest_ms=min(oldest, default=None))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BucketFacts:
        """Reads what `to_json` wrote."""

        def partitions(rows: list[list[Any]]) -> dict[int, PartitionFacts]:
            return {
                p: PartitionFacts(end, progress, tuple(tail), below, future, held, late, pairs(schemas))
                for p, end, progress, tail, below, future, held, late, schemas in rows
            }

        return cls(
            partitions(data["left"]), partitions(data["right"]), data["frontier"], data["expiry"], data["oldest"]
        )


def pairs(rows: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    """Reads schemas and their first offsets from JSON."""
    return tuple((number, first) for number, first in rows)


def _rows(partitions: Mapping[int, PartitionFacts]) -> list[list[Any]]:
    """Returns for each partition its number and the fields of its facts, in their order.

    `asdict` takes ten times as long, and a batch may have thousands of partitions.
    """
    return [
        [p, f.end, f.progress_ms, list(f.tail), f.below_ms, f.future_ms, f.held_ms, f.late, list(map(list, f.schemas))]
        for p, f in sorted(partitions.items())
    ]
