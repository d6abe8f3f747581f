"""A temporary folder that a killed process does not leave behind for ever.

It is locked as long as its process lives: the kernel releases the lock with the process, even after `kill -9`. The next
process that needs such a folder removes unlocked ones of the same user and purpose.

Nothing beyond the standard library, as a job needs a folder before it imports anything slow.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from teacup.base.now import wall_ms

YOUNG_S = 60.0
"""A younger folder may be about to be locked."""


class ScratchFolder:
    """A new folder (`path`) for one purpose, in the folder for temporary files, until `close`."""

    def __init__(self, purpose: str) -> None:
        """Raises `FileNotFoundError` if no folder for temporary files can be written to."""
        prefix = f"teacup-{purpose}-"
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for other in self.path.parent.glob(f"{prefix}*"):
            if other != self.path:
                _remove_unless_used(other)

    def close(self) -> None:
        """Removes the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove_unless_used(folder: Path) -> None:
    with suppress(OSError):  # it is gone, another user's, or locked
        stat = folder.stat()
        if stat.st_uid != os.getuid() or wall_ms() / 1000 - stat.st_mtime < YOUNG_S:
            return
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
