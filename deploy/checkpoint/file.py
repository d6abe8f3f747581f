"""A small file in a checkpoint: JSON with a checksum, replaced as a whole. Calls raise the file system's own errors."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Any, TypeVar

import fsspec

from teacup.base import files
from teacup.base.fields import local_folder

log = logging.getLogger("teacup.deploy.checkpoint.file")

T = TypeVar("T")


class CheckpointFile:
    """One file, which several processes may write and read."""

    def __init__(self, checkpoint: str, name: str) -> None:
        """checkpoint: a folder or a URL."""
        self._folder, self._name = local_folder(checkpoint), name
        self._where = f"{checkpoint.rstrip('/') if self._folder is None else self._folder}/{name}"

    def read(self, kind: type[T]) -> T | None:
        """Returns the content; None if there is no file, or it is damaged, or of another version."""
        try:
            return self.checked(kind)
        except FileNotFoundError:
            return None
        except ValueError as error:
            log.debug("%s is damaged, or of another version: %s", self._where, error)
            return None

    def checked(self, kind: type[T]) -> T:
        """Returns the content. Raises `FileNotFoundError`, or `ValueError` if it is damaged, or of another version."""
        return files.from_checked_text(self._data().decode().rstrip("\n"), kind)

    def write(self, value: Any, room: int = 0, *, durable: bool = False) -> None:
        """Replaces the content.

        room     the least size of the file in bytes, for `overwrite`
        durable  whether it survives a power failure once this returns; a file for others to look at need not
        """
        data = _line(value).ljust(room, b"\n")
        if self._folder is None:
            storage, path = fsspec.core.url_to_fs(self._where)
            storage.pipe_file(path, data)
        elif durable:
            files.write(self._folder / self._name, data)
        else:
            new = self._folder / f"{self._name}.{os.getpid()}.new"
            new.write_bytes(data)
            new.replace(self._folder / self._name)

    def overwrite(self, value: Any) -> bool:
        """Writes into the file's existing blocks, which works on a full disk.

        Returns False, and writes nothing, if it does not fit, or the file is not on this machine. A reader that finds
        half of it takes the file for damaged.
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
