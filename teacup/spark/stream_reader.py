"""What every reader does, whatever it plans, and the data source class from which a query of the library makes it.

    initialOffset   {}: nothing is planned yet. Spark calls it twice, and again when it replays batch 0, so it must be
                    a constant
    latestOffset    the next batch, as `plan` gives it; `start` itself if there is nothing to do, or if it is to stop,
                    even if it was asked to during planning. A batch carries its checksum (`teacup.base.files`), because
                    Spark may write its log without one
    partitions      one per Spark task, which gets some items of `work`
    read            on an executor: what the stage makes of them
    stop            closes connections

A job asks it in its own process (`teacup.spark.batches.loop`). Spark, for a query of the library, asks it in a process
beside the driver, which ends once its connection to the JVM is closed (`teacup.spark.planner_process`).

Errors of ours leave it with their mark (`teacup.spark.jvm_errors`).

A planning error that may pass, such as an unreachable broker, *holds* the reader: it plans again every second, logs
every ten seconds why, for how long, and when it gives up, and finally lets the error end the job or query. Each attempt
opens new connections, because librdkafka may never reconnect by itself.

Under `availableNow` a run reads up to the ends that its first look found (`teacup.kafka.log.topic_log`). A partition
that was not listed then is not read by this run. When all is read, the reader notes that (`all_read`) before it returns
`start`, because a run that is asked to stop ends with the same answer and is not done.

The reader and its stage travel as bytes, because Spark starts processes that only ask for the schema and need not
import what plans.
"""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from teacup.base.files import with_checksum
from teacup.base.logs import log_like_the_driver, mention
from teacup.base.now import Every, read_clocks, wall_ms
from teacup.base.process import jobs_together, use_arrow_without_pandas
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.topic_log import Ends, ListedEnds
from teacup.spark.jvm_errors import crossing, crossing_rows
from teacup.spark.planner_notes import BROKERS, PlannerNotes
from teacup.spark.planner_process import end_with_connection
from teacup.spark.worker import batch_of_task, turns


@dataclass(frozen=True, kw_only=True)
class ReaderControl:
    """The settings of a streaming reader.

    stopping            whether nothing more is to be planned: this makes a clean stop possible. With it the reader
                        looks for seconds before it says that there is nothing to do; in the library at once
    unreachable_for_s   how long an unreachable broker, or a wrong clock, only holds the reader
    anchor              a trusted reading of this machine's wall clock, with that of its monotonic clock
    """

    stopping: Callable[[], bool] | None = None
    unreachable_for_s: float = 300.0
    anchor: tuple[int, int] = field(default_factory=lambda: read_clocks())


log = logging.getLogger("teacup.spark.stream_reader")

PartitionStage = Callable[[Sequence[Any]], Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]]
"""The content of an input partition (some items of the reader's work) -> its rows, on an executor."""


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What the Spark tasks of a batch do.

    items     in pieces that their stage understands
    keys      what each item is about, the same in every batch: such items go to the same executor
    per_task  how many items a Spark task gets at most
    """

    items: Sequence[Any]
    keys: Sequence[Hashable]
    per_task: int = 1


SAY_EVERY_S = 10.0
HOLD_S = 1.0
WAIT_S = (0.01, 0.1)  # between two looks that find nothing: the first wait, doubled each time, and the longest
RESTS_S = 3.0
"""The longest wait where several jobs share a process: each job adds the wait of a single one, up to this. A reader
that has just planned waits no longer than alone."""
_REST_SHARE = 0.1  # of the time since the last plan
LOOKS_FOR_S = 5.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches. It connects on first use, as a query of the library also sends it to executors.

    all_read   under `availableNow`: whether the newest look found that all is read

    Subclasses give `plan`, `work`, `disconnect`; and `waits`, `holds_for_s` if they differ.
    """

    def __init__(self, name: str, control: ReaderControl, stage: bytes) -> None:
        """name: of the job, for the log; stage: as made by `pickled`."""
        self._name, self.stage, self.control = name, stage, control
        self.ends = False  # set by whoever runs it in its own process (`teacup.spark.batches.loop`)
        if jobs_together() > 1:
            mention(job=name)  # in a worker that carries out its tasks
        self.all_read = False
        self.listed: ListedEnds | None = None  # under `availableNow`
        self._held_since_s: float | None = None
        self._held_since_ms = 0
        self._wait_s, self._planned_s = WAIT_S[0], time.monotonic()
        self._report = Every(SAY_EVERY_S, at_once=True)
        self.notes = PlannerNotes()

    @abstractmethod
    def plan(self, start: dict[str, Any]) -> dict[str, Any] | None:
        """Plans the offset after `start`; None when there is nothing to do. Connects if it has to."""

    @abstractmethod
    def work(self, end: dict[str, Any]) -> BatchWork:
        """Returns the work of the batch that ends at `end`."""

    @abstractmethod
    def disconnect(self) -> None:
        """Closes what is open; the next plan opens it again."""

    def waits(self, start: dict[str, Any]) -> bool:
        """Returns whether the reader, with nothing to do now, plans again at once instead of returning `start`."""
        return False

    def holds_for_s(self, error: Exception) -> float | None:
        """Returns how long an error from planning only holds the reader; None if it ends the query at once.

        May be inf.
        """
        return self.control.unreachable_for_s if isinstance(error, KafkaUnavailable) else None

    def held_by(self, error: Exception) -> str:
        """Returns the meaning of an error that only holds the reader, in a word."""
        return BROKERS if isinstance(error, KafkaUnavailable) else "other"

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.listed = ListedEnds()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with crossing():
            return self.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with crossing():
            work = self.work(end) if end else BatchWork((), ())
            starts = range(0, len(work.items), work.per_task)
            return [SparkTask(work.items[at : at + work.per_task], len(starts) == 1) for at in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]:
        assert isinstance(partition, SparkTask)
        return carried_out(self._name, self.stage, partition)

    def stop(self) -> None:
        self.disconnect()

    def within_run(self, ends: Mapping[int, Ends]) -> Mapping[int, Ends]:
        """Returns the ends of the topic that a run under `availableNow` reads entirely, cut where that run ends."""
        return ends if self.listed is None else self.listed.cut(ends)

    def say(self, line: str) -> None:
        """Logs a line about waiting, unless one was logged within the last ten seconds."""
        if self._report.due():
            log.warning("%s %s", self._name, line)

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """Returns the next end; `start` itself if there is nothing to do for seconds, or the reader is to stop."""
        looks_until_s = time.monotonic() + self._looks_for_s
        while not self.stops:
            try:
                began_s = time.perf_counter()
                end = self.plan(start)
                if end is not None and end != start:
                    self.notes.planned(time.perf_counter() - began_s)
                done = end is not None or not (self.waits(start) or time.monotonic() < looks_until_s)
            except Exception as error:
                if not self._holds(error):
                    raise
                continue
            if self._held_since_s is not None:
                self._held_since_s = None
                self.notes.nothing_to_read()
            if end is not None:
                self._wait_s, self._planned_s = WAIT_S[0], time.monotonic()
            if done:
                self.all_read = self.listed is not None and (end is None or end == start)
                return start if end is None or self.stops else with_checksum(end)
            time.sleep(self._wait_s)
            self._wait_s = min(2 * self._wait_s, self._waits_at_most_s)
        return start

    @property
    def stops(self) -> bool:
        """Returns whether it plans nothing more."""
        return self.ends or (self.control.stopping is not None and self.control.stopping())

    @property
    def _waits_at_most_s(self) -> float:
        together_s = min(WAIT_S[1] * jobs_together(), RESTS_S)
        return max(WAIT_S[1], min(together_s, _REST_SHARE * (time.monotonic() - self._planned_s)))

    @property
    def _looks_for_s(self) -> float:
        """The caller must be able to stop between two looks. A run under `availableNow` is over."""
        return 0.0 if self.control.stopping is None or self.listed is not None else LOOKS_FOR_S

    def _holds(self, error: Exception) -> bool:
        """Waits a second if the error may still pass. Returns whether it may."""
        gives_up_s, now_s = self.holds_for_s(error), time.monotonic()
        if gives_up_s is None:
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
            self._held_since_ms = wall_ms()
        self.notes.waits(self.held_by(error), lambda: (self._held_since_ms, str(error)))
        waited_s = now_s - self._held_since_s
        if waited_s > gives_up_s:
            log.error("%s gives up after %.0f s", self._name, waited_s)
            return False
        limit = "" if gives_up_s == math.inf else f"; gives up after {gives_up_s:.0f} s"
        self.say(f"holds: {error} (for {waited_s:.0f} s now{limit})")
        if isinstance(error, KafkaUnavailable):
            self.disconnect()
        time.sleep(HOLD_S)
        return True


class SparkTask(InputPartition):
    """What a Spark task gets: some items of a batch's work.

    whole   no other task of the batch has any, or none on the same executor
    """

    def __init__(self, items: Sequence[Any], whole: bool) -> None:
        super().__init__(tuple(items))
        self.whole = whole


def carried_out(name: str, stage: bytes, task: SparkTask) -> Iterator[Any]:
    """Carries out a Spark task of a job, on an executor: yields what the stage (`pickled`) makes of it."""
    batch = batch_of_task()
    if batch is not None:
        turns.had(name, batch, task.whole)
    made: PartitionStage = cloudpickle.loads(stage)
    return crossing_rows(made)(task.value)


def payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yields the bytes in the last column of these batches."""
    for batch in batches:
        yield from batch.column(batch.num_columns - 1).to_pylist()


def pickled(stage: PartitionStage) -> bytes:
    """Pickles a stage. Only the executors' workers need what it imports, not the processes in which Spark plans."""
    return bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]


def stream_source(kind: str, name: str, schema: str, reader: Callable[[], StreamReader]) -> type[DataSource]:
    """Makes a data source class for a job. The parts of the reader travel in it, so they appear in no plan or log.

    They travel as bytes: Spark starts processes that only ask for the schema and need not import what plans.

    kind, name   together the name of the source in Spark
    schema       of the rows
    """
    columns, makes_reader = schema, bytes(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]

    class StreamSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"teacup_{kind}_" + "".join(c if c.isalnum() else "_" for c in name).lower()

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            end_with_connection()
            log_like_the_driver()
            use_arrow_without_pandas()
            return MadeWhenAsked(makes_reader)

    return StreamSource


class MadeWhenAsked(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that is made when it is first used.

    One of the processes that Spark starts only hands it on and need not import what plans.
    """

    def __init__(self, makes_reader: bytes) -> None:
        self._makes_reader = makes_reader

    @cached_property
    def _made(self) -> StreamReader:
        made: StreamReader = cloudpickle.loads(self._makes_reader)()
        return made

    def initialOffset(self) -> dict[str, Any]:
        return self._made.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._made.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._made.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._made.latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._made.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]:
        return self._made.read(partition)

    def stop(self) -> None:
        if "_made" in self.__dict__:
            self._made.stop()


def rows_of(spark: SparkSession, source: type[DataSource]) -> DataFrame:
    """Registers a streaming source and reads from it."""
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()
