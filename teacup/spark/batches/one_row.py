"""One batch of one row: has Spark load and start what a job of ours needs, without any topic.

It serves the archive of Spark's classes (`teacup.spark.class_archive`) and a process that waits for its turn
(`deploy.jobs.standby`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from teacup.base.scratch import ScratchFolder
from teacup.spark.batches.jobs import Report, Stream
from teacup.spark.batches.loop import BatchLoop
from teacup.spark.jvm_errors import summary_rows
from teacup.spark.stream_reader import BatchWork, ReaderControl, StreamReader, pickled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("teacup.spark.batches.one_row")

NAME = "one-row"
WITHIN_S = 60
POLL_EVERY_S = 0.5


def carry_out(spark: SparkSession, stopped: Callable[[], bool] = lambda: False) -> None:
    """Runs the batch, with a checkpoint that is removed again; ends early if it is to stop."""
    with ScratchFolder(NAME) as checkpoint:
        batches = BatchLoop(spark, NAME, str(checkpoint), Stream(_OneRow()), _finish, None).start()
        try:
            ends_s = time.monotonic() + WITHIN_S
            while not (stopped() or batches.awaitTermination(POLL_EVERY_S)):
                if time.monotonic() > ends_s:
                    break
        finally:
            batches.stop()


def rehearse(spark: SparkSession, stopped: Callable[[], bool]) -> None:
    """Runs it, so that the next job finds everything that Spark loads and starts for its first; takes seconds."""
    try:
        carry_out(spark, stopped)
    except Exception as error:  # noqa: BLE001 - nothing depends on it: the next job only starts more slowly
        log.debug("the batch of one row was not carried out: %s", error)


class _OneRow(StreamReader):
    """One batch of one task."""

    def __init__(self) -> None:
        super().__init__(NAME, ReaderControl(), pickled(_rows))

    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        return None if start else {"rows": 1}

    def work(self, end: dict[str, Any]) -> BatchWork:
        return BatchWork([1], [1])

    def disconnect(self) -> None:
        """Has nothing open."""


def _rows(items: Sequence[int]) -> Iterator[pa.RecordBatch]:
    return summary_rows(items)


def _finish(run: Callable[[], list[Report]], tasks: int, number: int) -> None:
    run()
