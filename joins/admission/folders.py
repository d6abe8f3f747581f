"""Where a machine keeps the files of a join's batches: slices, marks, facts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def own_folder() -> Path:
    """Returns the default folder for windows on this machine: a folder of this user, because everybody shares /tmp."""
    return Path(tempfile.gettempdir()) / f"teacup-windows-{os.getuid()}"


def generation_folder(windows: Path, join: str, generation: str) -> Path:
    """Returns where a join keeps the windows of one checkpoint's generation."""
    return windows / f"{join}-{generation}"


def bucket_folder(windows: Path | None, join: str, generation: str, bucket: str) -> Path:
    """Returns where a join keeps the files of one bucket; windows=None: this user's own folder."""
    return generation_folder(windows or own_folder(), join, generation) / bucket
