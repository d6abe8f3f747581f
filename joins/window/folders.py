"""Where a machine keeps what a join's batches leave behind: slices, marks, facts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def own_folder() -> Path:
    """Where windows are kept on this machine unless told: a folder of this user's, as /tmp is everybody's."""
    return Path(tempfile.gettempdir()) / f"teacup-windows-{os.getuid()}"


def generation_folder(windows: Path, join: str, generation: str) -> Path:
    """Where a join keeps the window of one checkpoint's generation."""
    return windows / f"{join}-{generation}"


def bucket_folder(windows: Path | None, join: str, generation: str, bucket: int) -> Path:
    """Where a join keeps what belongs to one bucket; windows: None: this user's own folder."""
    return generation_folder(windows or own_folder(), join, generation) / str(bucket)
