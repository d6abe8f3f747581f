"""What a batch has found out: where it ended, and what its records prove. The next admission begins from it.

The facts are a function of the admission and the log, so that they can be had again at any time by reading the batch's
ranges once more (`joins.window.batch.find_facts`). The task that carries a batch out keeps them beside its slices, and
a job's driver, to which they come back in the summary, keeps them too: files that may be lost.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from datadelay.progress import UNKNOWN
from joins.window.bounds import LATEST_MS
from joins.window.folders import bucket_folder

log = logging.getLogger(__name__)

KEPT = 3
"""Batches whose facts stay: the last one, and those that may run at the same time."""
NAME = re.compile(r"facts-(\d+)\.json")


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition after a batch.

    end          the next offset to read; of left at most the planned one
    progress_ms  every record from `end` on has at least this time
    tail         the times before `end` that do not fill a block yet
    below_ms     the records of the batch that took part have times below it
    future_ms    those that were turned away as from the future have at least this time
    held_ms      left only: the time of the record at `end`, where it was held back
    late         some records of the batch were late
    """

    end: int
    progress_ms: int
    tail: tuple[int, ...] = ()
    below_ms: int = UNKNOWN
    future_ms: int = LATEST_MS
    held_ms: int | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class BucketFacts:
    """One bucket after a batch; `oldest_ms` is the smallest time in its window, None where that is empty."""

    left: Mapping[int, PartitionFacts] = field(default_factory=dict)
    right: Mapping[int, PartitionFacts] = field(default_factory=dict)
    frontier_ms: int = UNKNOWN
    expiry_ms: int = UNKNOWN
    oldest_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "expiry": self.expiry_ms,
            "frontier": self.frontier_ms,
            "left": [[p, *asdict(facts).values()] for p, facts in sorted(self.left.items())],
            "oldest": self.oldest_ms,
            "right": [[p, *asdict(facts).values()] for p, facts in sorted(self.right.items())],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BucketFacts:
        def partitions(rows: list[list[Any]]) -> dict[int, PartitionFacts]:
            return {p: PartitionFacts(end, progress, tuple(tail), *others) for p, end, progress, tail, *others in rows}

        return cls(
            partitions(data["left"]), partitions(data["right"]), data["frontier"], data["expiry"], data["oldest"]
        )


class FactsFolder:
    """The facts of one bucket's last batches as files of one folder. It may lose anything, but never tells wrong."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, number: int, facts: BucketFacts) -> None:
        """Keep the facts of batch `number`, and forget those of long ago. A failure costs a later reading only."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary = self._folder / f".facts-{number}.json.{uuid.uuid4().hex}"
            temporary.write_text(json.dumps(facts.to_json()))
            temporary.replace(self._path(number))
            for path in self._folder.glob("facts-*.json"):
                match = NAME.fullmatch(path.name)
                if match and int(match[1]) <= number - KEPT:
                    path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: the facts of batch %d are not kept (%s); they are read again", self._folder, number, error)

    def has(self, number: int) -> bool:
        return self._path(number).exists()

    def load(self, number: int) -> BucketFacts | None:
        """None where they are lost, or no whole file."""
        try:
            return BucketFacts.from_json(json.loads(self._path(number).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s: the facts of batch %d cannot be read (%s)", self._folder, number, error)
            return None

    def _path(self, number: int) -> Path:
        return self._folder / f"facts-{number}.json"


def keep_facts(windows: Path | None, job: str, summaries: Iterable[Mapping[str, Any]]) -> None:
    """Keep what the tasks of a batch tell in their summaries on the driver's machine, where the next batch is planned.

    They are there already where the tasks ran on this machine.
    """
    for summary in summaries:
        folder = FactsFolder(bucket_folder(windows, job, summary["generation"], summary["bucket"]))
        if not folder.has(summary["number"]):
            folder.save(summary["number"], BucketFacts.from_json(summary["facts"]))
