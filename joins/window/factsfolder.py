"""The facts of batches as files, beside the slices: a cache, since the log gives them again.

    <folder>/facts-<number>-<digest>.json    of the batch with this number, carried out by the ticket with this digest

A checkpoint that was restored from a copy plans other batches under numbers that were already used. Their facts differ
from the old ones: the ticket's digest says which batch a file belongs to.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from joins.window.facts import BucketFacts
from joins.window.folders import bucket_folder
from kafkaio.sparselog import sparse

log = sparse(__name__)

KEPT = 3
"""Batches whose facts are kept: the last one, and those that may run at the same time."""
NAME = re.compile(r"\.?facts-(\d+)-[0-9a-f]+\.json(\.[0-9a-f]+)?")


class FactsFolder:
    """The facts of one bucket's last batches, as files in a folder. It may lose some, but never returns wrong ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, number: int, digest: str, facts: BucketFacts) -> None:
        """Keep the facts of batch `number`, and remove old ones. If this fails, they are only read again later."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._path(number, digest)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            temporary.write_text(json.dumps(facts.to_json()))
            temporary.replace(path)
            for other in self._folder.iterdir():
                match = NAME.fullmatch(other.name)
                if match and int(match[1]) <= number - KEPT:
                    other.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: the facts of batch %d are not kept (%s); they are read again", self._folder, number, error)

    def has(self, number: int, digest: str) -> bool:
        return self._path(number, digest).exists()

    def load(self, number: int, digest: str) -> BucketFacts | None:
        """None if they are lost, or the file is incomplete."""
        try:
            return BucketFacts.from_json(json.loads(self._path(number, digest).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s: the facts of batch %d cannot be read (%s)", self._folder, number, error)
            return None

    def _path(self, number: int, digest: str) -> Path:
        return self._folder / f"facts-{number}-{digest}.json"


def keep_facts(windows: Path | None, job: str, summaries: Iterable[Mapping[str, Any]]) -> None:
    """Keep the facts in the tasks' summaries where the driver finds them when it plans the next batch."""
    for summary in summaries:
        folder = FactsFolder(bucket_folder(windows, job, summary["generation"], summary["bucket"]))
        if not folder.has(summary["number"], summary["ticket"]):
            folder.save(summary["number"], summary["ticket"], BucketFacts.from_json(summary["facts"]))
