"""The facts of batches as files: a cache, as they can be found again in the log.

    <windows>/<join>-<generation>/
        <bucket>/facts-<number>-<digest>.json   written by the task: the batch's number, and the ticket's digest
        facts-<number>.json                     written by the driver: all buckets, each with its ticket's digest

Each file is JSON with a checksum. One that was changed or cut off counts as lost.

A checkpoint that was restored from a copy plans other batches under numbers that were already used. Their facts differ
from the old ones: the ticket's digest says which batch a file belongs to.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from joins.batch.facts import BucketFacts
from joins.batch.state import BatchPlan
from joins.batch.ticket import Ticket
from joins.read.summary import BucketSummary
from teacup.base.disks import with_disk
from teacup.base.files import checked_text, from_checked_text, replace_file
from teacup.base.logs import sparse

log = sparse("teacup.joins.read.facts_files")

ByBucket = dict[int, tuple[str, BucketFacts]]
KEPT = 3
"""How many batches' facts are kept: of the last batch, and of batches that may run at the same time."""
_NOT_KEPT = "%s: the facts of batch %d are not kept (%s); they are read again"
NAME = re.compile(r"\.?facts-(\d+)-[0-9a-f]+\.json(\.[0-9a-f]+)?")


def own_folder() -> Path:
    """Returns this user's default folder for windows on this machine; all users share /tmp."""
    return Path(tempfile.gettempdir()) / f"teacup-windows-{os.getuid()}"


def generation_folder(windows: Path, join: str, generation: str) -> Path:
    """Returns where a join keeps the windows of one checkpoint's generation."""
    return windows / f"{join}-{generation}"


def bucket_folder(windows: Path | None, join: str, generation: str, bucket: str) -> Path:
    """Returns where a join keeps the files of one bucket; windows=None: this user's own folder."""
    return generation_folder(windows or own_folder(), join, generation) / bucket


def save_facts(folder: Path, number: int, digest: str, facts: BucketFacts) -> None:
    """Saves the facts of batch `number` of one bucket, and removes old ones.

    A failure only means reading again later.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(_of_task(folder, number, digest), checked_text(facts).encode())
        for name in os.listdir(folder):
            match = NAME.fullmatch(name)
            if match and int(match[1]) <= number - KEPT:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        log.warning(_NOT_KEPT, folder, number, with_disk(error, folder))


def load_facts(folder: Path, number: int, digest: str) -> BucketFacts | None:
    """Returns the facts of a batch of one bucket; None if they are lost, or the file is damaged."""
    try:
        return from_checked_text(_of_task(folder, number, digest).read_text(), BucketFacts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s: the facts of batch %d cannot be read: %s", folder, number, error)
        return None


def keep_facts(windows: Path | None, job: str, summaries: Sequence[BucketSummary]) -> None:
    """Saves the facts from a batch's summaries for the driver's next plan."""
    for number, generation in {(summary.number, summary.generation) for summary in summaries}:
        content = _by_bucket(summaries)
        folder = generation_folder(windows or own_folder(), job, generation)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(_of_all(folder, number), checked_text(content).encode())
            _of_all(folder, number - KEPT).unlink(missing_ok=True)
        except OSError as error:
            log.warning(_NOT_KEPT, folder, number, with_disk(error, folder))


def _by_bucket(summaries: Sequence[BucketSummary]) -> ByBucket:
    """Returns the digest and the facts of each ticket, with the parts of a divided one merged."""
    if not any(summary.is_part for summary in summaries):
        return {summary.bucket: (summary.ticket, summary.facts) for summary in summaries}
    parts = sorted(summaries, key=lambda summary: summary.bucket)
    return {0: (parts[0].ticket, BucketFacts.of_parts(part.facts for part in parts))}


def known_facts(job: str, batch_plan: BatchPlan, folders: Iterable[Path | None]) -> dict[int, BucketFacts]:
    """Finds the facts of a batch, by bucket, as far as these folders have them; None: this user's own folder."""
    by_bucket: dict[int, BucketFacts] = {}
    missing = Ticket.all_of(batch_plan)
    for windows in folders:
        folder = generation_folder(windows or own_folder(), job, batch_plan.generation)
        loaded = _loaded(_of_all(folder, batch_plan.number)) if missing else {}
        for ticket in missing:
            facts = loaded.get((ticket.bucket.number, ticket.digest)) or _by_tasks(folder, ticket)
            if facts is not None:
                by_bucket[ticket.bucket.number] = facts
        missing = [ticket for ticket in missing if ticket.bucket.number not in by_bucket]
    return by_bucket


def _by_tasks(folder: Path, ticket: Ticket) -> BucketFacts | None:
    """Loads the facts that tasks on this machine have kept; None if those of a part are missing."""
    parts = []
    for part in ticket.divided():
        facts = load_facts(folder / part.name_of_part, part.number, part.digest)
        if facts is None:
            return None
        parts.append(facts)
    return BucketFacts.of_parts(parts)


def _of_task(folder: Path, number: int, digest: str) -> Path:
    return folder / f"facts-{number}-{digest}.json"


def _of_all(folder: Path, number: int) -> Path:
    return folder / f"facts-{number}.json"


def _loaded(path: Path) -> dict[tuple[int, str], BucketFacts]:
    """Loads facts by bucket and digest; nothing if the file is lost or damaged."""
    try:
        content = from_checked_text(path.read_text(), ByBucket)
        return {(bucket, digest): facts for bucket, (digest, facts) in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return {}
