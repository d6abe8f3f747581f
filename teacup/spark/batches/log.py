"""The record of which batches are planned and committed, in files like those of Structured Streaming.

    metadata     the id of the checkpoint
    offsets/N    the end of batch N, written before it runs
    commits/N    written once it is done

A file is there as a whole or not at all: an object store's put is like that, elsewhere it is written under another name
and renamed. On this machine a plan is on the disk before its batch runs. Otherwise a power failure could take the plan
of a batch that was delivered, and the next start would plan another one with the same number. `SparkLogs` reads them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from teacup.base.fields import local_folder
from teacup.base.files import check, write
from teacup.spark.checkpoint import COMMITS, METADATA, OFFSETS
from teacup.spark.checkpoint_access import opened, reached
from teacup.spark.errors import CheckpointInterrupted

_VERSION, _COMMIT = "v1", '{"nextBatchWatermarkMs":0}'
_OF_PLAN = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
"""What Spark would note of a query without watermarks or changed settings."""
_RENAMING = frozenset({"hdfs", "arrow_hdfs", "webhdfs"})
"""File systems that show a file while it is written, and rename it atomically."""

FORGETS_EVERY = 10


class BatchLog:
    """The record of one checkpoint, for its only writer. Calls raise `CheckpointUnreachable`, `CheckpointRefused`.

    What writes on this machine raises `OSError` instead, which says whether a disk is full.
    """

    def __init__(self, checkpoint: str, keeps: int) -> None:
        """Creates what is missing. keeps: how many batches, at least. Raises `CheckpointDriverMissing`, too."""
        self._checkpoint, self._keeps, self._folder = checkpoint, keeps, local_folder(checkpoint)
        self._logs = opened(checkpoint)
        with self._written():
            if self._folder is not None:
                for log in (OFFSETS, COMMITS):
                    (self._folder / log).mkdir(parents=True, exist_ok=True)
            if not self._logs.files.exists(self._path(METADATA)):
                self._write(METADATA, json.dumps({"id": str(uuid.uuid4())}))

    def newest(self) -> tuple[int, bool]:
        """Returns the number of the newest planned batch, -1 if there is none, and whether it is committed.

        Raises `CheckpointInterrupted` if more than one is not.
        """
        with reached(self._checkpoint):
            planned, committed = ([-1, *batches][-1] for batches in (self._logs.planned(), self._logs.committed()))
        if committed not in (planned, planned - 1):
            raise CheckpointInterrupted(
                f"{self._checkpoint}: batch {planned} is planned, and {committed} is the last one committed. Files of "
                "this folder have been removed: restore them"
            )
        return planned, committed == planned

    def end(self, number: int) -> dict[str, Any]:
        """Returns the end of a planned batch; {} before the first. Raises `CheckpointInterrupted`."""
        if number < 0:
            return {}
        try:
            with reached(self._checkpoint, but=(FileNotFoundError, ValueError)):
                (end,) = self._logs.ends(number)
            read: dict[str, Any] = {} if end is None else json.loads(end)
            check(read)
        except (FileNotFoundError, ValueError) as error:
            raise CheckpointInterrupted(
                f"{self._checkpoint}: the plan of batch {number} is missing or damaged ({error}): restore it"
            ) from error
        return read

    def plan(self, number: int, end: Mapping[str, Any]) -> None:
        """Notes the end of a batch. Raises `CheckpointInterrupted` if another process has done that, too."""
        self._add(OFFSETS, number, _OF_PLAN, json.dumps(end))

    def commit(self, number: int) -> None:
        """Notes that a batch is done, and now and then forgets old ones: that lists all.

        Raises `CheckpointInterrupted` if another process has done that, too.
        """
        self._add(COMMITS, number, _COMMIT)
        if number % FORGETS_EVERY == 0:
            with self._written():
                for log, numbers in ((OFFSETS, self._logs.planned()), (COMMITS, self._logs.committed())):
                    for old in (one for one in numbers if one <= number - self._keeps):
                        with suppress(FileNotFoundError):
                            self._logs.files.rm_file(self._path(f"{log}/{old}"))

    def _add(self, log: str, number: int, *lines: str) -> None:
        with self._written():
            taken = self._logs.files.exists(self._path(f"{log}/{number}"))
            if not taken:
                self._write(f"{log}/{number}", "\n".join((_VERSION, *lines)))
        if taken:
            raise CheckpointInterrupted(f"{self._checkpoint}: another process has written batch {number}")

    def _write(self, name: str, text: str) -> None:
        if self._folder is not None:
            write(self._folder / name, text.encode())
            return
        files, path = self._logs.files, self._path(name)
        renames = not _RENAMING.isdisjoint([files.protocol] if isinstance(files.protocol, str) else files.protocol)
        files.pipe_file(f"{path}.new" if renames else path, text.encode())
        if renames:
            files.mv(f"{path}.new", path)

    def _path(self, name: str) -> str:
        return f"{self._logs.root}/{name}"

    def _written(self) -> AbstractContextManager[None]:
        return reached(self._checkpoint) if self._folder is None else nullcontext()
