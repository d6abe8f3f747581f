"""The edge to Spark: what a task knows of a restart, and the deduplicator in a worker process.

When the driver starts, it looks in the checkpoint for the batch that was planned and not committed, and puts its number
(`ReplayRange`) into the stage that is sent to the tasks. A task gets its batch from the local property
`streaming.sql.batchId`, which a job's loop sets as a query does, and its attempt from the `TaskContext`.

A worker process keeps one deduplicator for each job and start of its driver. A newly forked worker has none, and
creates it from what the task brings. The deduplicator waits until earlier writes are settled, loads, and logs what it
does.

Spark does not tell Python that a stage has run before, and its tasks count their attempts from 0 again. A stage is
rerun only if files of a shuffle that it reads were lost: so let the filtering stage read its source itself, as our own
jobs do.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec
import polars as pl
import pyarrow as pa

from dedup.errors import DedupError
from dedup.replay_range import DedupConfig, RecentResults, ReplayRange, uncommitted_batch
from dedup.restart.deduplicator import Attempt, Deduplicator, FilterChange, FilterReport, FilterState
from dedup.restart.seen_ids import Mask
from teacup.base.now import wall_ms
from teacup.base.process import PerProcess
from teacup.kafka.delivery.provenance import BatchTag
from teacup.spark.checkpoint import SparkLogs
from teacup.spark.worker import batch_of_task, this_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("teacup.dedup.restart.worker")

OpenResults = Callable[[], RecentResults]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a stage carries to the workers.

    name     of the job
    results  opens a reader of recent results
    """

    name: str
    config: DedupConfig
    replay: ReplayRange
    results: OpenResults


class WorkerDeduplicator:
    """The deduplicator of a job in this process, with its reader of results. Used by one task at a time."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._core = Deduplicator(setup.config, setup.replay)
        self._results: RecentResults | None = None
        self._reported: Counter[str] = Counter()
        self._changes: tuple[FilterChange, ...] = ()

    def begin(self, attempt: Attempt, since_ms: int | None = None, batch: BatchTag | None = None) -> bool:
        """Begins a task, loading first if needed; returns whether its rows must be filtered.

        since_ms   no result of its batch has an earlier record time; None: unknown here, the driver may have known
        batch      the tag of its results; None: they have no tag
        """
        if self._core.dormant(attempt):
            return False
        load = self._core.begin(attempt, wall_ms(), since_ms, batch)
        self._say()
        if load is not None:
            if load.new_range:
                self.close()
            wait_until_settled(self._setup.name, load.settled_ms)
            self._results = self._results or self._setup.results()
            began = time.monotonic()
            self._core.load(self._results.load(load.bounds), wall_ms)
            took = time.monotonic() - began
            log.info("%s: %d ids are known after %.1f s", self._setup.name, self._core.seen, took)
        if not self._core.filtering:
            self.close()
        return self._core.filtering

    def keep(self, ids: pl.Series) -> Mask:
        """Returns which rows have no result yet."""
        return self._core.keep(ids, wall_ms())

    def durable(self) -> None:
        """Notes that the rows that `keep` has passed since the last call are now in the output."""
        self._core.durable()

    def report(self) -> FilterReport:
        """Returns whether it filters, its changes of state, and what it loaded and dropped since the last report."""
        since = self._core.counts - self._reported
        changes, self._changes, self._reported = self._changes, (), self._core.counts.copy()
        return FilterReport(filtering=int(self._core.filtering), changes=changes, **since)

    def say_task(self, batch: int) -> None:
        """Logs a line about a task that has filtered, with counts since the last one, for users without summaries."""
        counts = self.report()
        counted = {name: getattr(counts, name) for name in ("loaded", "dropped", "without_id")}
        fields = {"event": "deduplicator", "at_ms": wall_ms(), "name": self._setup.name, "batch": batch}
        log.warning("%s", json.dumps({**fields, "state": FilterState.FILTERING, **counted}, sort_keys=True))

    def close(self) -> None:
        """Closes the reader of results; the next load opens it again."""
        if self._results is not None:
            self._results.close()
            self._results = None

    def _say(self) -> None:
        for change in self._core.changes():
            self._changes += (change,)
            log.warning("%s", json.dumps(change.to_json(self._setup.name), sort_keys=True))


def wait_until_settled(name: str, settled_ms: int) -> None:
    """Waits until nothing of an earlier attempt of this job can arrive."""
    rest_s = (settled_ms - wall_ms()) / 1000
    if rest_s > 0:
        log.info("%s: waits %.1f s until writes of the earlier attempt have arrived or were given up", name, rest_s)
        time.sleep(rest_s)


_kept: PerProcess[tuple[str, str], WorkerDeduplicator] = PerProcess(4, WorkerDeduplicator.close)


def open_deduplicator(setup: Setup) -> WorkerDeduplicator:
    """Returns this process's deduplicator for a job and start of its driver."""
    return _kept.get((setup.name, setup.replay.run), lambda: WorkerDeduplicator(setup))


def discard_deduplicator(setup: Setup) -> None:
    """Drops this process's deduplicator after a failure; the next task creates one, which loads what it needs."""
    _kept.discard((setup.name, setup.replay.run))


Batches = Iterator[pa.RecordBatch]
_ID = "__teacup_id"


def current_attempt() -> Attempt:
    """Returns the attempt that this task is. Raises `DedupError` outside a batch."""
    batch = batch_of_task()
    if batch is None:
        raise DedupError("this task does not belong to a batch of a streaming query; deduplicate a streaming DataFrame")
    return Attempt(batch, this_task().earlier)


def location_problem(checkpoint: str) -> str | None:
    """Returns why this checkpoint cannot be opened; None if it may be. Connects to nothing."""
    if re.match(r"(?!file:)[a-z][a-z0-9+.-]+:/[^/]", checkpoint):
        return "write it with two slashes and the host (scheme://host/path), or it would be looked for on this machine"
    protocol, _ = fsspec.core.split_protocol(checkpoint)
    try:
        fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:
        return f"fsspec has no driver for it: {error}"
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

    id          Spark SQL for what identifies a row's result, cast to binary; a row with a null id passes
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
    row_ids = results()
    try:
        row_ids.check()  # reports now what cannot be read, not after the first crash
    finally:
        row_ids.close()
    setup = Setup(name, config or DedupConfig(), replay_of(checkpoint, since_of), results)
    columns = frame.columns

    def rows(batches: Iterable[pa.RecordBatch]) -> Batches:
        return filtered(setup, batches, columns, current_attempt)

    return frame.selectExpr("*", f"cast({id} as binary) as {_ID}").mapInArrow(rows, frame.schema)


def filtered(
    setup: Setup, batches: Iterable[pa.RecordBatch], columns: list[str], attempt: Callable[[], Attempt]
) -> Batches:
    """Yields the rows without a result, from batches with an id column, without that column."""
    deduplicator = open_deduplicator(setup)
    try:
        now = attempt()
        filtering = deduplicator.begin(now)
        for batch in batches:
            fresh_rows = batch.select(columns)
            if filtering and len(batch):
                fresh = deduplicator.keep(pl.Series(pl.from_arrow(batch.column(_ID))))
                fresh_rows = fresh_rows.filter(pa.array(fresh))
            yield fresh_rows
        if filtering:
            deduplicator.say_task(now.batch)
    except Exception:
        discard_deduplicator(setup)
        raise
