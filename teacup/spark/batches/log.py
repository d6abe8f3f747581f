"""Spark's own record of which batches are planned and committed, on any file system that Spark reaches.

    metadata     the id of the query, kept as long as its checkpoint
    offsets/N    the end of batch N, written before it runs
    commits/N    written once it is done

The files are those of Structured Streaming, so a checkpoint can go on under either. They are written as a whole or not
at all: by its classes, or on this machine by ours, because Hadoop's local file system runs `chmod` or `readlink` for
each file, which takes longer than planning the batch. `teacup.spark.checkpoint` reads them without Spark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from teacup.base.fields import local_folder
from teacup.base.files import sync, write
from teacup.spark.errors import CheckpointInterrupted

_STREAMING = "org.apache.spark.sql.execution.streaming"
_VERSION, _COMMIT = "v1", '{"nextBatchWatermarkMs":0}'
_METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
"""What Spark would note of a query without watermarks or changed settings."""


FORGETS_EVERY = 10


class BatchLog:
    """The record of one checkpoint, for its only writer."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Creates what is missing. Raises py4j's errors."""
        self._folder = local_folder(checkpoint)
        self._checkpoint, self._keeps = checkpoint, int(spark.conf.get("spark.sql.streaming.minBatchesToRetain"))  # type: ignore[arg-type]
        jvm, session = spark.sparkContext._jvm, spark._jsparkSession
        assert jvm is not None
        self._jvm, streaming = jvm, jvm.org.apache.spark.sql.execution.streaming
        # Each creates its folder, and so the checkpoint's.
        self._offsets = streaming.checkpointing.OffsetSeqLog(session, f"{checkpoint}/offsets", False)
        self._commits = streaming.checkpointing.CommitLog(session, f"{checkpoint}/commits", False)
        path, hadoop = jvm.org.apache.hadoop.fs.Path(checkpoint, "metadata"), session.sessionState().newHadoopConf()
        known = streaming.runtime.StreamMetadata
        if known.read(path, hadoop).isEmpty():
            known.write(known(str(uuid.uuid4())), path, hadoop)
        self._made = streaming
        if self._folder is not None:
            for path in (self._folder / "metadata", self._folder):
                sync(path)

    def newest(self) -> tuple[int, bool]:
        """Returns the number of the newest planned batch, -1 if there is none, and whether it is committed.

        Raises `CheckpointInterrupted` if more than one is not.
        """
        planned, committed = self._number(self._offsets), self._number(self._commits)
        if committed not in (planned, planned - 1):
            raise CheckpointInterrupted(
                f"{self._checkpoint}: batch {planned} is planned, and {committed} is the last one committed. Files of "
                "this folder have been removed: restore them"
            )
        return planned, committed == planned

    def end(self, number: int) -> dict[str, Any]:
        """Returns the end of a planned batch; {} before the first."""
        if number < 0:
            return {}
        found = self._offsets.get(number)
        if found.isEmpty():
            raise CheckpointInterrupted(f"{self._checkpoint}: the plan of batch {number} is missing: restore it")
        end = found.get().offsets().apply(0)
        read: dict[str, Any] = {} if end.isEmpty() else json.loads(end.get().json())
        return read

    def plan(self, number: int, end: Mapping[str, Any]) -> None:
        """Notes the end of a batch; on this machine's disk before this returns."""
        text = json.dumps(end)
        if self._folder is not None:
            return self._write(self._folder / "offsets", number, _METADATA, text)
        ends = self._jvm.PythonUtils.toSeq([self._made.runtime.SerializedOffset(text)])
        self._add(self._offsets, number, self._made.checkpointing.OffsetSeq.fill(self._jvm.scala.Some(_METADATA), ends))

    def commit(self, number: int) -> None:
        """Notes that a batch is done, and now and then forgets old ones: that lists all."""
        if self._folder is not None:
            self._write(self._folder / "commits", number, _COMMIT)
        else:
            self._add(self._commits, number, self._made.checkpointing.CommitMetadata(0))
        if number % FORGETS_EVERY == 0:
            for log in (self._offsets, self._commits):
                log.purge(number - self._keeps + 1)

    def _number(self, log: Any) -> int:
        newest = log.getLatestBatchId()
        return -1 if newest.isEmpty() else int(newest.get())

    def _write(self, folder: Path, number: int, *lines: str) -> None:
        path = folder / str(number)
        if path.exists():
            raise self._taken(number)
        write(path, "\n".join((_VERSION, *lines)).encode())

    def _add(self, log: Any, number: int, content: Any) -> None:
        if not log.add(number, content):
            raise self._taken(number)

    def _taken(self, number: int) -> CheckpointInterrupted:
        return CheckpointInterrupted(f"{self._checkpoint}: another process has written batch {number}")
