"""A checkpoint on any file system: access to it, and small files of ours in it.

**Access.** If an object store refuses a job, its configuration is wrong, and no retry helps. Two clients reach it, each
with its own driver and credentials: Python (fsspec; `s3fs` for `s3a://`), in the driver and in tasks that copy windows,
and Spark's JVM (Hadoop; `hadoop-aws`), only in the driver. Their errors are recognised by what they have in common, and
the message says who was refused, why, and what it needs. Other errors, such as a store that does not answer, are left
to the caller.

**A file:** JSON with a checksum, replaced as a whole, for others to look at. It need not survive a power failure, so it
is not synced to the disk. Calls raise the file system's own errors.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import fsspec

from deploy.errors import CheckpointRefused
from teacup.base import files
from teacup.base.fields import local_folder
from teacup.spark.checkpoint import SparkLogs

log = logging.getLogger("teacup.deploy.checkpoint.file")

T = TypeVar("T")

_WITHOUT = frozenset({"NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "CredentialRetrievalError"})
_NO_BUCKET = "NoSuchBucket"
_OF_HADOOP = {
    "has no driver": re.compile(r"(Class org\.apache\.hadoop\.fs\.\S+ not found|No FileSystem for scheme [^\n]*)"),
    "finds no credentials": re.compile(r"(No ?A[Ww][Ss] ?Credentials[^\n]*|NoAuthWithAWSException[^\n]*)"),
    "is refused": re.compile(r"((?:AccessDeniedException|InvalidAccessKeyId|SignatureDoesNotMatch)[^\n]*)"),
    "finds no such bucket": re.compile(r"((?:UnknownStoreException|NoSuchBucket)[^\n]*)"),
}
_PYTHON_NEEDS = (
    "Give the credentials to the process of the job, and to those of its executors (S3: `AWS_ACCESS_KEY_ID` and "
    "`AWS_SECRET_ACCESS_KEY` in the environment, `spark.executorEnv.…` for executors), or correct `checkpoint`"
)
_SPARK_NEEDS = (
    "Its driver is a jar (S3: `hadoop-aws` of Spark's Hadoop in `spark.driver.extraClassPath`), its credentials are "
    "properties (`spark.hadoop.fs.s3a.…`) or those of the environment; or correct `checkpoint`"
)


class CheckpointFile:
    """One file, which several processes may write and read."""

    def __init__(self, checkpoint: str, name: str) -> None:
        """checkpoint: a folder or a URL."""
        self._folder, self._name = local_folder(checkpoint), name
        self._where = f"{checkpoint.rstrip('/') if self._folder is None else self._folder}/{name}"

    def read(self, kind: type[T]) -> T | None:
        """Returns the content; None if there is no file, or it is damaged, or of another version."""
        try:
            data = self._data()
        except FileNotFoundError:
            return None
        try:
            return files.from_checked_text(data.decode().rstrip("\n"), kind)
        except ValueError as error:
            log.debug("%s is damaged, or of another version: %s", self._where, error)
            return None

    def write(self, value: Any, room: int = 0) -> None:
        """Replaces the content. room: the least size of the file in bytes, for `overwrite`."""
        data = _line(value).ljust(room, b"\n")
        if self._folder is None:
            storage, path = fsspec.core.url_to_fs(self._where)
            storage.pipe_file(path, data)
            return
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


def refused(location: str, error: BaseException) -> CheckpointRefused | None:
    """Returns the error to raise if a file system's error means that access was refused; None for other errors."""
    if local_folder(location) is not None:
        return None
    name = type(error).__name__
    if name in _WITHOUT:
        what = "finds no credentials"
    elif isinstance(error, PermissionError):
        what = "is refused"
    elif type(error.__cause__).__name__ == _NO_BUCKET:
        what = "finds no such bucket"
    else:
        return None
    return CheckpointRefused(f"checkpoint {location!r}: Python {what} ({name}: {error}). {_PYTHON_NEEDS}")


def refused_to_spark(location: str, text: str) -> CheckpointRefused | None:
    """Does the same for the text of a Spark error."""
    if local_folder(location) is not None:
        return None
    found = ((what, words) for what, pattern in _OF_HADOOP.items() if (words := pattern.search(text)) is not None)
    what, words = next(found, ("", None))
    if words is None:
        return None
    return CheckpointRefused(f"checkpoint {location!r}: Spark {what} ({words[1].strip()}). {_SPARK_NEEDS}")


@contextmanager
def naming_the_store(location: str) -> Iterator[None]:
    """Raises `CheckpointRefused` instead of a Spark error that means it."""
    try:
        yield
    except Exception as error:
        if (refusal := refused_to_spark(location, str(error))) is not None:
            raise refusal from None
        raise


def check_access(location: str) -> None:
    """Raises `CheckpointRefused` if the checkpoint's store refuses Python.

    Whether other errors matter, such as a missing driver, depends on the job.
    """
    if local_folder(location) is not None:
        return
    try:
        SparkLogs.at(location).query_id()
    except Exception as error:
        if (refusal := refused(location, error)) is not None:
            raise refusal from error
