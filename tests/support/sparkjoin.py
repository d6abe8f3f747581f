"""A streaming join on the session's broker and a shared Spark, driven by tests: put records, run, look at the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from joins.items import ITEM_SCHEMA, End, Item, Rows, item_rows, items_in
from joins.plan.reader import JoinControl
from joins.plan.start.copartition import with_path
from joins.read.summary import BucketSummary
from joins.spec import JoinSpec
from joins.streaming import join_kind_of, stage_frame
from joins.testing import oracle
from joins.testing.history import Event, History, TopicHistory
from teacup.kafka.write.writer import TopicWriter
from tests.support.queries import run_to_its_end

DEADLINE_S = 90.0
APPENDED_MS = 2**41  # to the oracle nothing that a test puts is from the future, but what lies beyond this


@dataclass(frozen=True)
class Put:
    """A record to be produced: partition, key, event time, value, headers."""

    partition: int
    key: bytes | None
    time_ms: int
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes], ...] = ()


def produce(kafka: dict[str, str], topic: str, records: Iterable[Put]) -> None:
    """Write records in this order, and wait until they are acknowledged."""
    records = list(records)
    writer = TopicWriter(kafka)
    writer.write(
        topic,
        [r.key for r in records],
        [r.value for r in records],
        [list(r.headers) or None for r in records],
        timestamps=[r.time_ms for r in records],
        partitions=[r.partition for r in records],
    )
    writer.flush()
    writer.close()


def history(spec: JoinSpec, left: Sequence[Put], right: Sequence[Put]) -> History:
    """The same records for the oracle, readable from the start."""
    return History(_topic(spec.left.topic, left), _topic(spec.right.topic, right), start_ms=APPENDED_MS)


def _topic(name: str, records: Sequence[Put]) -> TopicHistory:
    partitions: dict[int, list[Event]] = {p: [] for p in range(max((r.partition for r in records), default=0) + 1)}
    for r in records:
        events = partitions[r.partition]
        events.append(
            Event(
                partition=r.partition,
                offset=len(events),
                time_ms=r.time_ms,
                key=r.key,
                value=r.value,
                appended_ms=APPENDED_MS,
                readable_ms=APPENDED_MS,
            )
        )
    return TopicHistory(name, tuple(tuple(events) for events in partitions.values()))


@dataclass
class Running:
    """A query and what has come out of it so far: rows as dictionaries, summaries of buckets."""

    query: Any
    rows: list[dict[str, Any]] = field(default_factory=list)
    summaries: list[BucketSummary] = field(default_factory=list)

    def take(self, items: Iterable[Item[BucketSummary]]) -> None:
        """Keep what a batch gives."""
        for item in items:
            if isinstance(item, Rows):
                self.rows += item.frame.to_dicts()
            elif isinstance(item, End):
                self.summaries.append(item.summary)

    def writer(self, spark: Any, spec: JoinSpec, folder: Path) -> Any:
        """Of a query whose batches come here, through the JVM; checkpoint, slices and facts are below `folder`."""
        windows = folder / "windows"
        chosen = with_path(spec) if "right" in join_kind_of(spec).inputs else spec
        stage = join_kind_of(chosen).stage(chosen, windows, None)
        control = JoinControl(windows=windows)
        frame = stage_frame(spark, chosen, lambda tickets: item_rows(stage(tickets)), ITEM_SCHEMA, control)
        writer = frame.writeStream.foreachBatch(lambda batch, number: self.take(items_in(batch.toArrow().to_batches())))
        return writer.option("checkpointLocation", str(folder / "checkpoint"))

    def results(self) -> list[oracle.Result]:
        """Rows of left records as the oracle gives them, in its order."""
        found = [
            oracle.Result(
                r["left_partition"],
                r["left_offset"],
                r["right_partition"],
                r["right_offset"],
                r["outcome"],
                r["reason"],
            )
            for r in self.rows
            if r["outcome"] in ("matched", "unmatched")
        ]
        return sorted(found, key=lambda r: (r.left_partition, r.left_offset))

    def about(self, outcome: str) -> list[dict[str, Any]]:
        return [r for r in self.rows if r["outcome"] == outcome]

    def until(self, condition: Callable[[Running], bool], what: str) -> Running:
        """Wait until it holds; AssertionError after the deadline, the query's own error where it failed."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition(self):
            if not self.query.isActive and self.query.exception() is not None:
                raise self.query.exception()
            assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}; {len(self.rows)} rows so far"
            time.sleep(0.05)
        return self

    def until_left(self, count: int) -> Running:
        return self.until(lambda run: len(run.results()) + _dead_left(run) >= count, f"{count} left records are out")

    @property
    def largest_window(self) -> int:
        return max((summary.window_records for summary in self.summaries), default=0)


def _dead_left(run: Running) -> int:
    return sum(1 for r in run.about("dead_letter") if r["left_offset"] is not None)


def drained(joined: DataFrame, folder: Path) -> Running:
    """What a streaming DataFrame gives of all that is there now, with a checkpoint below `folder`."""
    run = Running(None)

    def collect(batch: DataFrame, number: int) -> None:
        run.rows.extend(row.asDict() for row in batch.collect())

    writer = joined.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder / "checkpoint"))
    run_to_its_end(writer.trigger(availableNow=True).start)
    return run


@contextmanager
def running(spark: Any, spec: JoinSpec, folder: Path):
    """Run a join with a checkpoint, slices and facts below `folder`; stopped in the end."""
    run = Running(None)
    run.query = run.writer(spark, spec, folder).trigger(processingTime="100 milliseconds").start()
    try:
        yield run
    finally:
        run.query.stop()


def run_of_all(spark: Any, spec: JoinSpec, folder: Path) -> Running:
    """The same, over all that is there now."""
    run = Running(None)
    run_to_its_end(run.writer(spark, spec, folder).trigger(availableNow=True).start)
    return run
