"""What every reader does, whatever it plans: a job's, or that of a query of the library (`teacup.spark.stream_source`).

    latest   the next end, as `plan` gives it; `start` itself if there is nothing to do, or if it is to stop, even if it
             was asked to during planning. {} is where nothing is planned yet. An end carries its checksum
             (`teacup.base.files`)
    tasks    of the batch that ends there: each gets some items of its `work`
    read     on an executor: what the stage makes of them

A planning error that may pass, such as an unreachable broker, *holds* the reader: it plans again every second, logs
every ten seconds why, for how long, and when it gives up, and finally lets the error end the job or query. Each attempt
opens new connections, because librdkafka may never reconnect by itself.

Under `available_now` a run reads up to the ends that its first look found (`teacup.kafka.log.topic_log`). A partition
that was not listed then is not read by this run. When all is read, the reader notes that (`all_read`) before it returns
`start`, because a run that is asked to stop ends with the same answer and is not done.

A stage travels as bytes, because processes that only plan need not import what it imports.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from teacup.base.files import with_checksum
from teacup.base.logs import mention
from teacup.base.now import Every, read_clocks, wall_ms
from teacup.base.process import jobs_together
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.topic_log import Ends, ListedEnds
from teacup.spark.jvm_errors import crossing_rows
from teacup.spark.planner_notes import BROKERS, PlannerNotes
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
"""Some items of the reader's work -> rows, on an executor."""


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
POLLS_FOR_S = 5.0


class StreamReader(ABC):
    """Plans batches. It connects on first use, as a query of the library also sends it to executors.

    all_read   under `available_now`: whether the newest look found that all is read

    Subclasses give `plan`, `work`, `disconnect`; and `waits`, `patience` if they differ.
    """

    def __init__(self, name: str, control: ReaderControl, stage: bytes) -> None:
        """name: of the job, for the log; stage: as made by `pickled`."""
        self._name, self.stage, self.control = name, stage, control
        self.ends = False  # set by whoever runs it in its own process (`teacup.spark.batches.loop`)
        if jobs_together() > 1:
            mention(job=name)  # in a worker that carries out its tasks
        self.all_read = False
        self.listed: ListedEnds | None = None  # under `available_now`
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

    def patience(self, error: Exception) -> tuple[str, float] | None:
        """Returns for an error of planning that may pass what it means, in a word, and for how many seconds (or inf) it
        only holds the reader; None for one that ends the job at once.
        """
        return (BROKERS, self.control.unreachable_for_s) if isinstance(error, KafkaUnavailable) else None

    def available_now(self) -> None:
        """Reads up to the ends that the next look finds, and no further."""
        self.listed = ListedEnds()

    def tasks(self, end: dict[str, Any]) -> list[SparkTask]:
        """Returns the tasks of the batch that ends at `end`, wherever they run; none where nothing was planned."""
        work = self.work(end) if end else BatchWork((), ())
        starts = range(0, len(work.items), work.per_task)
        return [SparkTask(tuple(work.items[at : at + work.per_task]), len(starts) == 1) for at in starts]

    def read(self, task: SparkTask) -> Iterator[Any]:
        """Carries out a task, on an executor: yields what the stage makes of it."""
        return carried_out(self._name, self.stage, task)

    def within_run(self, ends: Mapping[int, Ends]) -> Mapping[int, Ends]:
        """Returns the ends of the topic that a run under `available_now` reads entirely, cut where that run ends."""
        return ends if self.listed is None else self.listed.cut(ends)

    def say(self, line: str) -> None:
        """Logs a line about waiting, unless one was logged within the last ten seconds."""
        if self._report.due():
            log.warning("%s %s", self._name, line)

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """Returns the next end; `start` itself if there is nothing to do for seconds, or the reader is to stop."""
        polls_until_s = time.monotonic() + self._polls_for_s
        while not self.stops:
            try:
                began_s = time.perf_counter()
                end = self.plan(start)
                if end is not None and end != start:
                    self.notes.planned(time.perf_counter() - began_s)
                done = end is not None or not (self.waits(start) or time.monotonic() < polls_until_s)
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
    def _polls_for_s(self) -> float:
        """The caller must be able to stop between two looks. A run under `available_now` is over."""
        return 0.0 if self.control.stopping is None or self.listed is not None else POLLS_FOR_S

    def _holds(self, error: Exception) -> bool:
        """Waits a second if the error may still pass. Returns whether it may."""
        patience, now_s = self.patience(error), time.monotonic()
        if patience is None:
            return False
        held_by, gives_up_s = patience
        if self._held_since_s is None:
            self._held_since_s = now_s
            self._held_since_ms = wall_ms()
        self.notes.waits(held_by, lambda: (self._held_since_ms, str(error)))
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


@dataclass(frozen=True, slots=True)
class SparkTask:
    """What a Spark task gets: some items of a batch's work.

    whole   no other task of the batch has any, or none on the same executor
    """

    items: tuple[Any, ...]
    whole: bool


def carried_out(name: str, stage: bytes, task: SparkTask) -> Iterator[Any]:
    """Carries out a Spark task of a job, on an executor: yields what the stage (`pickled`) makes of it."""
    batch = batch_of_task()
    if batch is not None:
        turns.had(name, batch, task.whole)
    made: PartitionStage = cloudpickle.loads(stage)
    return crossing_rows(made)(task.items)


def payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yields the bytes in the last column of these batches."""
    for batch in batches:
        yield from batch.column(batch.num_columns - 1).to_pylist()


def pickled(stage: PartitionStage) -> bytes:
    """Pickles a stage. Only the executors' workers need what it imports, not the processes in which Spark plans."""
    return bytes(cloudpickle.dumps(stage))  # type: ignore[no-untyped-call]
