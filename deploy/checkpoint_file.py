"""A small file of ours in a checkpoint, on any file system: JSON with a checksum, replaced as a whole.

For what others look at, not for what must survive a power failure: it is not synced to the disk. Calls raise what the
file system raises; each has errors of its own.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any

import fsspec

from teacup.base import files
from teacup.base.fields import local_folder

log = logging.getLogger("teacup.deploy.checkpoint_file")


class CheckpointFile:
    """One file, which several processes may write and read."""

    def __init__(self, checkpoint: str, name: str) -> None:
        """checkpoint: a folder or a URL."""
        self._folder, self._name = local_folder(checkpoint), name
        self._where = f"{checkpoint.rstrip('/') if self._folder is None else self._folder}/{name}"

    def read(self) -> Any:
        """Returns the content; None if there is no file, or it is damaged."""
        try:
            data = self._data()
        except FileNotFoundError:
            return None
        try:
            return files.from_checked_text(data.decode().rstrip("\n"))
        except ValueError as error:
            log.debug("%s is damaged: %s", self._where, error)
            return None

    def write(self, value: Any, room: int = 0) -> None:
        """Replaces the content. room: bytes that the file has at least, for `overwrite`."""
        data = _line(value).ljust(room, b"\n")
        if self._folder is None:
            storage, path = fsspec.core.url_to_fs(self._where)
            storage.pipe_file(path, data)
            return
        new = self._folder / f"{self._name}.{os.getpid()}.new"
        new.write_bytes(data)
        new.replace(self._folder / self._name)

    def overwrite(self, value: Any) -> bool:
        """Writes over the content, with the blocks that the file has: a full disk takes that, too.

        Returns False, and writes nothing, if it is too long for them, or the file is not of this machine. A reader may
        find half of it, and takes that for a damaged file.
        """
        data = _line(value)
        if self._folder is None or len(data) > (self._folder / self._name).stat().st_size:
            return False
        with (self._folder / self._name).open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            file.write(data.ljust(size, b"\n"))
        return True

    def remove(self) -> None:
        """Removes the file, if it is there."""
        with suppress(FileNotFoundError):
            if self._folder is not None:
                (self._folder / self._name).unlink()
            else:
                storage, path = fsspec.core.url_to_fs(self._where)
                storage.rm_file(path)

    def _data(self) -> bytes:
        if self._folder is not None:
            return (self._folder / self._name).read_bytes()
        storage, path = fsspec.core.url_to_fs(self._where)
        return bytes(storage.cat_file(path))


def _line(value: Any) -> bytes:
    return f"{files.checked_text(value)}\n".encode()
