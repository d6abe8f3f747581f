"""The disk of a folder: whether it takes what is written, and how much more.

    disk_of           what a file system says of itself
    room_for          tries it, as a file system does not know the user's quota
    refusal_in        whether the text of an error says that a disk took nothing
    with_disk         an error of a file in one folder, with what its disk has left, for those who go on
    name_the_disks    a sentence for several folders: the candidates, the likely one first

Java and Python word such errors alike, as both take the system's own text.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FULL_BELOW = 1 << 20
"""Bytes; a disk with less free space is as good as full."""
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)  # for files without a name


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a folder. no_inodes: it has room, but not for more files."""

    free_bytes: int
    read_only: bool = False
    no_inodes: bool = False

    @property
    def problem(self) -> str:
        """Returns why it takes nothing; empty if it does, as far as it says."""
        if self.read_only:
            return "is read-only"
        if self.no_inodes:
            return "has no inode free"
        return f"is full ({self.free_bytes:,} bytes free)" if self.free_bytes < FULL_BELOW else ""

    def __str__(self) -> str:
        return self.problem or f"has {self.free_bytes / 1e9:,.1f} GB free"


def existing(folder: Path) -> Path:
    """Returns the folder, or the nearest existing one above it."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def disk_of(folder: Path) -> Disk:
    """Returns the disk that a folder is on, or will be. Raises `OSError`."""
    stats = os.statvfs(existing(folder))
    read_only = bool(stats.f_flag & os.ST_RDONLY)
    return Disk(shutil.disk_usage(existing(folder)).free, read_only, bool(stats.f_files) and not stats.f_favail)


def room_for(folder: Path) -> str:
    """Returns why a file of `FULL_BELOW` bytes cannot be written there; empty if it can, or if that cannot be tried.

    The file has no name, and is gone at once.
    """
    try:
        file = os.open(existing(folder), os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        return "" if error.errno in _NOT_SUPPORTED else os.strerror(error.errno or 0)
    try:
        os.posix_fallocate(file, 0, FULL_BELOW)
    except OSError as error:
        return os.strerror(error.errno or 0) if error.errno in _REFUSALS else ""
    finally:
        os.close(file)
    return ""


def refusal_in(text: str) -> str:
    """Returns the system's words for a disk that is full or read-only, or a quota that is used up, if the text has
    them; otherwise an empty text.
    """
    return next((words for words in map(os.strerror, _REFUSALS) if words in text), "")


def with_disk(error: object, folder: Path) -> str:
    """Returns an error of writing to a folder, with what its disk has left if that may be the cause."""
    text, disk = str(error), _known(folder)
    if disk is None or not (refusal_in(text) or disk.problem):
        return text
    return f"{text}; its disk {disk}: make room there"


def name_the_disks(text: str, folders: Mapping[str, Path]) -> str:
    """Returns which folder an error is about, what its disk has left, and what to do.

    text      of the error, which may name the file
    folders   the folders that are written to, by purpose
    """

    def likely(item: tuple[str, Path, Disk | None]) -> tuple[bool, bool, int]:
        _, folder, disk = item
        return str(folder) not in text, disk is None or not disk.problem, 0 if disk is None else disk.free_bytes

    (what, folder, disk), *others = sorted(((what, path, _known(path)) for what, path in folders.items()), key=likely)
    shown = [f"{name} {path} {'is not known' if other is None else other}" for name, path, other in others]
    also = f" ({'; '.join(shown)})" if shown else ""
    return (
        f"the disk of {what} {folder} took nothing more: {refusal_in(text)}; it "
        f"{'cannot be looked at' if disk is None else disk}{also}. Make room there (or make it writable, or raise the "
        "quota), and start the job again: it continues"
    )


def _known(folder: Path) -> Disk | None:
    try:
        return disk_of(folder)
    except OSError:
        return None
