"""The facts of batches as files, beside the slices: a cache, as they can be had again from the log."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from joins.window.facts import BucketFacts
from joins.window.folders import bucket_folder

log = logging.getLogger(__name__)

KEPT = 3
"""Batches whose facts stay: the last one, and those that may run at the same time."""
NAME = re.compile(r"facts-(\d+)\.json")


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
