"""Local files that survive a power failure.

Spark writes each file of a local checkpoint under another name and renames it, but never syncs it to the disk: a power
failure may lose the newest ones, or leave them empty. The plan of a batch that has been delivered must not be lost, or
the next start would plan another batch with the same number. So each plan is synced before its batch runs. The rest may
be lost: a batch that is delivered but not committed runs again, and finds its receipt.
"""

from __future__ import annotations

import os
from pathlib import Path

from deploy.checkpoint.localfolder import local_folder


def write(path: Path, data: bytes) -> None:
    """Replaces a file as a whole: whatever happens, the old or the new one is there. Durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync_plan(checkpoint: str, batch_id: int) -> None:
    """Syncs the plan of a batch to the disk, with the folders that lead to it; only local checkpoints need this."""
    folder = local_folder(checkpoint)
    if folder is None:
        return
    plans = folder / "offsets"
    for path in (plans / str(batch_id), plans / f".{batch_id}.crc", plans, folder / "metadata", folder):
        if path.exists():  # whether there is a checksum beside the file depends on Spark's file system
            sync(path)


def sync(path: Path) -> None:
    """Syncs a file, or the names in a folder, to the disk."""
    at = os.open(path, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
