"""Local files that outlast a power loss.

Spark writes each file of a local checkpoint under another name and renames it, but never has it written to the disk
itself: a power loss may take the newest ones, or leave them empty. The plan of a batch that has been delivered must not
get lost, as the next start would plan another batch of the same number. So each plan is synced before its batch runs.
The rest may get lost: a batch that is in, and not committed, is run again, and finds its receipt.
"""

from __future__ import annotations

import os
from pathlib import Path

from deploy.lock import local_folder


def write(path: Path, data: bytes) -> None:
    """Replace a file whole: whatever happens, the old or the new one is there. Durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync_plan(checkpoint: str, batch_id: int) -> None:
    """Have the plan of a batch written to the disk, with what leads to it; only a local checkpoint needs that."""
    folder = local_folder(checkpoint)
    if folder is None:
        return
    plans = folder / "offsets"
    for path in (plans / str(batch_id), plans / f".{batch_id}.crc", plans, folder / "metadata", folder):
        if path.exists():  # a checksum is beside the file as Spark's file system has it
            sync(path)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk."""
    at = os.open(path, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
