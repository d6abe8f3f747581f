"""The Spark edge: which attempt this is, what may be a replay, and the deduplicator for any streaming DataFrame.

How a task learns about the driver's restart: when the driver starts, it looks in the checkpoint for the batch that was
planned and not committed, and puts its number (`ReplayRange`) into the stage that is sent to the tasks. A task gets its
batch from Spark's local property `streaming.sql.batchId`, and its attempt from the `TaskContext`.

Spark does not report to Python that a stage was run before, and its tasks count their attempts from 0 again. A stage is
rerun only if files of a shuffle that it reads were lost: so let the filtering stage read its source itself, as our own
jobs do.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import fsspec
import polars as pl
import pyarrow as pa

from dedup.errors import DedupError
from dedup.replayrange import DedupConfig, ReplayRange, uncommitted_batch
from dedup.restart.states import Attempt
from dedup.restart.worker import OpenResults, Setup, discard_deduplicator, open_deduplicator
from kafkaio.now import wall_ms
from sparkio.checkpoint import SparkLogs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches = Iterator[pa.RecordBatch]
_ID = "__teacup_id"
_BATCH = "streaming.sql.batchId"


def current_attempt() -> Attempt:
    """Returns the attempt that this task is. Raises `DedupError` outside a batch of a streaming query."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if context is None or batch is None:
        raise DedupError("this task does not belong to a batch of a streaming query; deduplicate a streaming DataFrame")
    return Attempt(int(batch), context.attemptNumber())


def location_problem(checkpoint: str) -> str | None:
    """Returns why a restart could not be detected with this checkpoint; None if it could. Connects to nothing."""
    if re.match(r"(?!file:)[a-z][a-z0-9+.-]+:/[^/]", checkpoint):
        return (
            "write it with two slashes and the host (scheme://host/path), or it would be looked for on this machine, "
            "and no restart would be noticed"
        )
    protocol, _ = fsspec.core.split_protocol(checkpoint)
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        return f"Python reads it too, through fsspec, which has no driver for it: {error}"
    return None


def replay_of(checkpoint: str, since_of: Callable[[str], int | None] | None = None) -> ReplayRange:
    """Returns what may be a replay when a query starts on this checkpoint (a folder, or a URL that fsspec can read).

    since_of   the source's offset (JSON) that a batch ends at -> the record time below which it has no result, if known

    Raises `DedupError` if the checkpoint cannot be read.
    """
    problem = location_problem(checkpoint)
    if problem is not None:
        raise DedupError(f"checkpoint {checkpoint!r}: {problem}")
    try:
        logs = SparkLogs.at(checkpoint)
        planned, committed = logs.planned(), logs.committed()
        end = logs.ends(planned[-1])[0] if planned and since_of is not None else None
    except Exception as error:  # each file system raises errors of its own
        line = str(error).split("\n", 1)[0]
        raise DedupError(f"checkpoint {checkpoint!r} cannot be read: {type(error).__name__}: {line}") from error
    since_ms = since_of(end) if end is not None and since_of is not None else None
    last = uncommitted_batch(planned, committed)
    return ReplayRange(last, since_ms, wall_ms(), uuid.uuid4().hex)


def restart_deduplicator(
    frame: DataFrame,
    *,
    id: str,
    results: OpenResults,
    checkpoint: str,
    name: str = "restart-deduplicator",
    config: DedupConfig | None = None,
    since_of: Callable[[str], int | None] | None = None,
) -> DataFrame:
    """Returns the rows of a streaming DataFrame that have no result yet, for whatever sink follows.

    id          Spark SQL for what identifies a row's result, cast to binary; if it is null, the row goes through
    results     opens a reader of recent results, in the workers: `lambda: KafkaResults("out", kafka)`
    checkpoint  the checkpoint location that the query will be started with, in full (`hdfs://host/...`)
    since_of    the source's offset (JSON; of the first source if there are several) that the last planned batch ends at
                -> the time in ms below which no result of that batch has its record time (of a topic) or time column
                (of files); None: unknown. Results older than that, less `config.lookback_ms`, are then not loaded

    Call it again at each start of the query, and put no shuffle between it and the sink. A row counts as seen only once
    it is in the output; so rows that are repeated within the replay range are dropped only if one task has them. In a
    `foreachBatch` that uses its batch more than once, `persist()` it: otherwise a batch that may be a replay would be
    filtered against its own output after the first write.
    """
    found = results()
    try:
        found.check()  # what cannot be read is reported now, not after the first crash
    finally:
        found.close()
    setup = Setup(name, config or DedupConfig(), replay_of(checkpoint, since_of), results)
    columns = frame.columns

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        return filtered(setup, batches, columns, current_attempt)

    return frame.selectExpr("*", f"cast({id} as binary) as {_ID}").mapInArrow(rows, frame.schema)


def filtered(
    setup: Setup, batches: Iterable[pa.RecordBatch], columns: list[str], attempt: Callable[[], Attempt]
) -> Batches:
    """Yields the rows that have no result yet, of batches with an id column, without that column."""
    deduplicator = open_deduplicator(setup)
    try:
        now = attempt()
        filtering = deduplicator.begin(now)
        for batch in batches:
            kept = batch.select(columns)
            if filtering and len(batch):
                fresh = deduplicator.keep(pl.Series(pl.from_arrow(batch.column(_ID))))
                kept = kept.filter(pa.array(fresh))
            yield kept
        if filtering:
            deduplicator.say_task(now.batch)
    except Exception:
        discard_deduplicator(setup)
        raise
