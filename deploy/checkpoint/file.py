"""A checkpoint on any file system: whether that lets us in, and a small file of ours in it.

**Access.** An object store that refuses a job is a matter of configuration, which no retry helps. Two clients reach it,
each with a driver and credentials of its own: Python (fsspec; `s3fs` for `s3a://`), in the driver and in tasks that
copy windows, and the JVM of Spark (Hadoop; `hadoop-aws`), in the driver alone. Neither says where it has looked. So an
error is recognised by what all of them have in common, and the message says who was refused, why, and what it needs. An
error of any other kind, such as a store that does not answer, is left to whoever reads.

**A file:** JSON with a checksum, replaced as a whole. For what others look at, not for what must survive a power
failure: it is not synced to the disk. Calls raise what the file system raises; each has errors of its own.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import fsspec

from deploy.errors import CheckpointRefused
from teacup.base import files
from teacup.base.fields import local_folder
from teacup.spark.checkpoint import SparkLogs

log = logging.getLogger("teacup.deploy.checkpoint.file")

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


def refused(location: str, error: BaseException) -> CheckpointRefused | None:
    """Returns what to raise if a file system's error says that it does not let us in; None: it says something else."""
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
    """Does the same for the text of an error of Spark's."""
    if local_folder(location) is not None:
        return None
    found = ((what, words) for what, pattern in _OF_HADOOP.items() if (words := pattern.search(text)) is not None)
    what, words = next(found, ("", None))
    if words is None:
        return None
    return CheckpointRefused(f"checkpoint {location!r}: Spark {what} ({words[1].strip()}). {_SPARK_NEEDS}")


@contextmanager
def naming_the_store(location: str) -> Iterator[None]:
    """Raises `CheckpointRefused` in place of an error of Spark's that says so."""
    try:
        yield
    except Exception as error:
        if (refusal := refused_to_spark(location, str(error))) is not None:
            raise refusal from None
        raise


def check_access(location: str) -> None:
    """Raises `CheckpointRefused` if the store of a checkpoint does not let Python in.

    Whether any other error matters, such as that there is no driver, depends on the job.
    """
    if local_folder(location) is not None:
        return
    try:
        SparkLogs.at(location).query_id()
    except Exception as error:
        if (refusal := refused(location, error)) is not None:
            raise refusal from error
