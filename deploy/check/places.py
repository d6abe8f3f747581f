"""Checkpoints and folders, looked at without writing to them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from deploy.check.observed import PlaceFacts
from deploy.checkpoint.localfolder import local_folder
from deploy.checkpoint.lock import holder_of
from kafkaio.exitcode import ExitCode


def checkpoint_facts(location: str, read: Callable[[], str]) -> PlaceFacts:
    """Looks at a checkpoint. read: says what is in it; raises if it belongs to another job, or cannot be read."""
    try:
        content = read()
    except Exception as error:  # noqa: BLE001 - each file system raises errors of its own
        problem, code = str(error) or type(error).__name__, getattr(error, "exit_code", ExitCode.CHECKPOINT)
        return PlaceFacts(key="checkpoint", location=location, problem=problem, code=code)
    folder = local_folder(location)
    if folder is None:
        return PlaceFacts(key="checkpoint", location=location, content=content)
    if (holder := holder_of(folder)) is not None:
        content += f"; a job runs on it now (process {holder})"
    return folder_facts("checkpoint", folder, content)


def folder_facts(key: str, folder: Path, content: str = "") -> PlaceFacts:
    """Looks at a folder of this machine, which is created if it is missing when the job runs."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = f"{folder} cannot be written to; give the job a folder that its user may write to"
        return PlaceFacts(key=key, location=str(folder), problem=problem)
    return PlaceFacts(key=key, location=str(folder), content=content, free_bytes=shutil.disk_usage(there).free)
